/** Remembers the last bytes of a stream and gives them as text: what an exit notice shows. Fixed memory. */

export interface Tail {
  push(bytes: Uint8Array): void;
  /** The last characters; what is not UTF-8 becomes U+FFFD. */
  text(): string;
}

export function createTail(maxChars: number): Tail {
  const capacity = maxChars * 4;
  // Twice the need, so that most pushes only append and old bytes move rarely.
  const held = new Uint8Array(capacity * 2);
  let length = 0;
  return {
    push(bytes) {
      const part = bytes.length > capacity ? bytes.subarray(bytes.length - capacity) : bytes;
      if (length + part.length > held.length) {
        const keep = Math.max(0, capacity - part.length);
        held.copyWithin(0, length - keep, length);
        length = keep;
      }
      held.set(part, length);
      length += part.length;
    },
    text() {
      let from = Math.max(0, length - capacity);
      // A cut through a character leaves continuation bytes at the front; at the very beginning they are real.
      if (from > 0) while (from < length && ((held[from] as number) & 0xc0) === 0x80) from++;
      const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(held.subarray(from, length));
      return lastChars(text, maxChars);
    },
  };
}

/** The last UTF-16 units, without half of a surrogate pair at the front. */
function lastChars(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const cut = text.slice(-maxChars);
  const first = cut.charCodeAt(0);
  return first >= 0xdc00 && first < 0xe000 ? cut.slice(1) : cut;
}
