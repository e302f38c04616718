/** Texts in Redis that others may have written. */

/** undefined where it is none. */
export function parseJson(text: string | null | undefined): unknown {
  if (text === null || text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    // Not ours, or half a record: as good as none.
    return undefined;
  }
}
