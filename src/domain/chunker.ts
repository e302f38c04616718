/**
 * Cuts a stream of bytes into chunks that never end in the middle of a UTF-8 character.
 *
 * A chunk is handed out when it is full, or on `flush`; bytes that begin a character which has not fully arrived (3 at
 * most) wait for the rest, or for `end`. Every byte comes out exactly once, in order. Bytes are copied on the way in, so
 * a caller may read into the same buffer again.
 */

/** Full chunks. Large enough that costs per entry vanish, small enough that a slow socket sees progress. */
export const CHUNK_BYTES = 32 * 1024;

export interface Chunker {
  /** Takes a copy of the bytes; returns the chunks that became full. */
  push(bytes: Uint8Array): Uint8Array[];
  /** What waits, up to the last whole character; undefined when that is nothing. */
  flush(): Uint8Array | undefined;
  /** All that waits, whole characters or not. */
  end(): Uint8Array | undefined;
  readonly waitingBytes: number;
}

/**
 * @param chunkBytes at least 4, the longest character
 * @param allocate gives a block of exactly `chunkBytes`, which may hold old bytes
 */
export function createChunker(
  chunkBytes: number = CHUNK_BYTES,
  allocate: (bytes: number) => Uint8Array = (bytes) => new Uint8Array(bytes),
): Chunker {
  let block: Uint8Array | undefined;
  let length = 0;

  /** Hands out the first `cut` bytes. A block that is nearly full goes as it is, a smaller part as a copy. */
  const take = (cut: number): Uint8Array => {
    const from = block as Uint8Array;
    if (cut < chunkBytes - 4) {
      const chunk = from.slice(0, cut);
      from.copyWithin(0, cut, length);
      length -= cut;
      return chunk;
    }
    const rest = from.slice(cut, length);
    block = undefined;
    length = rest.length;
    if (length > 0) {
      block = allocate(chunkBytes);
      block.set(rest);
    }
    return from.subarray(0, cut);
  };

  return {
    push(bytes) {
      const full: Uint8Array[] = [];
      for (let at = 0; at < bytes.length; ) {
        block ??= allocate(chunkBytes);
        const part = bytes.subarray(at, at + chunkBytes - length);
        block.set(part, length);
        length += part.length;
        at += part.length;
        if (length === chunkBytes) full.push(take(length - unfinishedBytes(block, length)));
      }
      return full;
    },
    flush() {
      if (block === undefined) return undefined;
      const cut = length - unfinishedBytes(block, length);
      return cut === 0 ? undefined : take(cut);
    },
    end: () => (length === 0 ? undefined : take(length)),
    get waitingBytes() {
      return length;
    },
  };
}

/**
 * How many of the last bytes (0 to 3) begin a UTF-8 character whose rest has not come yet. Bytes that can not become a
 * character are not waited for.
 */
export function unfinishedBytes(bytes: Uint8Array, length: number = bytes.length): number {
  for (let back = 1; back <= Math.min(3, length); back++) {
    const byte = bytes[length - back] as number;
    if (byte >= 0x80 && byte < 0xc0) continue;
    return characterBytes(byte) > back ? back : 0;
  }
  return 0;
}

/** Length of the character that this byte begins; 1 for what begins none. */
function characterBytes(lead: number): number {
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 1;
}

/**
 * The text of a chunk, or undefined when base64 is the better form: the bytes are not UTF-8, or JSON escapes would more
 * than double them (control characters take six).
 */
export function decodeText(bytes: Uint8Array): string | undefined {
  if (escapedBytes(bytes) > 2 * bytes.length) return undefined;
  try {
    // ignoreBOM keeps a byte order mark; by default a decoder swallows it.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** Bytes of the chunk inside a JSON string. */
function escapedBytes(bytes: Uint8Array): number {
  let total = bytes.length;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] as number;
    if (byte === 0x22 || byte === 0x5c) total += 1;
    else if (byte < 0x20) total += byte >= 8 && byte <= 13 && byte !== 11 ? 1 : 5;
  }
  return total;
}
