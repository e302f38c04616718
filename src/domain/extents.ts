/**
 * Which bytes of a file of fixed size are free. What is given out never overlaps and lies within the size; neighbours that
 * are given back become one, so that a queue that runs through the file leaves no splinters.
 */
export interface Extents {
  /** The lowest place with that much room in one piece; undefined when there is none. */
  take(bytes: number): number | undefined;
  /** Gives back exactly what was taken. */
  giveBack(offset: number, bytes: number): void;
  readonly usedBytes: number;
}

interface Extent {
  offset: number;
  bytes: number;
}

export function createExtents(capacityBytes: number): Extents {
  /** By offset; no two touch. Few, since what is taken first is given back first. */
  const free: Extent[] = [{ offset: 0, bytes: capacityBytes }];
  let usedBytes = 0;

  return {
    take(bytes) {
      const at = free.findIndex((extent) => extent.bytes >= bytes);
      const extent = free[at];
      if (extent === undefined) return undefined;
      const { offset } = extent;
      extent.offset += bytes;
      extent.bytes -= bytes;
      if (extent.bytes === 0) free.splice(at, 1);
      usedBytes += bytes;
      return offset;
    },
    giveBack(offset, bytes) {
      usedBytes -= bytes;
      const found = free.findIndex((extent) => extent.offset > offset);
      const at = found === -1 ? free.length : found;
      const before = free[at - 1];
      const after = free[at];
      const joinsBefore = before !== undefined && before.offset + before.bytes === offset;
      const joinsAfter = after !== undefined && offset + bytes === after.offset;
      if (joinsBefore) before.bytes += bytes + (joinsAfter ? after.bytes : 0);
      else if (joinsAfter) {
        after.offset = offset;
        after.bytes += bytes;
      } else free.splice(at, 0, { offset, bytes });
      if (joinsBefore && joinsAfter) free.splice(at, 1);
    },
    get usedBytes() {
      return usedBytes;
    },
  };
}
