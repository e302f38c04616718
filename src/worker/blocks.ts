/**
 * Blocks of memory for output, used again. A flood drops gigabytes from the spool; without this each dropped chunk would
 * be garbage outside of the heap, which the collector sees late (measured: twice the resident memory).
 */
export interface Blocks {
  /** A block of exactly this size that may hold old bytes. */
  allocate(bytes: number): Uint8Array;
  /** The same for any size: part of a block where that wastes little. */
  allocateFor(bytes: number): Uint8Array;
  /** Takes back a view of a block that nobody reads any more; other memory is left to the collector. */
  recycle(bytes: Uint8Array): void;
}

export function createBlocks(blockBytes: number, maxFree: number): Blocks {
  const free: ArrayBuffer[] = [];
  const allocate = (bytes: number): Uint8Array => {
    const block = bytes === blockBytes ? free.pop() : undefined;
    // Not as a Buffer, whose `slice` copies nothing.
    return new Uint8Array(block ?? Buffer.allocUnsafeSlow(bytes).buffer);
  };
  return {
    allocate,
    allocateFor: (bytes) =>
      bytes > blockBytes / 2 && bytes <= blockBytes ? allocate(blockBytes).subarray(0, bytes) : new Uint8Array(bytes),
    recycle({ buffer }) {
      if (buffer.byteLength === blockBytes && free.length < maxFree) free.push(buffer as ArrayBuffer);
    },
  };
}
