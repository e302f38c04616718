/** Keeps the terminals that were looked at last, so that going back to one is at once; older ones are read again. */

export interface Pool<T> {
  /** The one of this key, made where it is not there; it becomes the latest. */
  use(key: string, make: () => T): T;
  each(visit: (item: T) => void): void;
  clear(): void;
}

export function createPool<T extends { close(): void }>(size: number): Pool<T> {
  const items = new Map<string, T>();
  return {
    use(key, make) {
      const item = items.get(key) ?? make();
      items.delete(key);
      items.set(key, item);
      for (const [oldestKey, oldest] of items) {
        if (items.size <= size) break;
        items.delete(oldestKey);
        oldest.close();
      }
      return item;
    },
    each(visit) {
      for (const item of items.values()) visit(item);
    },
    clear() {
      for (const item of items.values()) item.close();
      items.clear();
    },
  };
}
