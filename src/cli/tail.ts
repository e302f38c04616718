/** The last lines of a log that comes as entries. Pure. */
import { outputOf } from '../client/command-handle.js';
import type { Entry } from '../protocol/entries.js';

const LINE_BREAK = 10;

const outputBytes = (entry: Entry): Uint8Array | undefined => {
  const item = outputOf(entry);
  return item?.type === 'output' ? item.bytes : undefined;
};

/** Line breaks in the output. */
export function countLines(entries: readonly Entry[]): number {
  let count = 0;
  for (const entry of entries) {
    for (const byte of outputBytes(entry) ?? []) if (byte === LINE_BREAK) count += 1;
  }
  return count;
}

/**
 * The entries that hold the last `tail` lines of output, the first of them cut where its line begins. What is no output
 * is kept where it stands after that. A break at the very end closes the last line and begins no further one.
 */
export function lastLines(entries: readonly Entry[], tail: number): Entry[] {
  const lastOutput = entries.map(outputBytes).findLast((bytes) => bytes !== undefined && bytes.length > 0);
  let breaksLeft = lastOutput?.at(-1) === LINE_BREAK ? tail + 1 : tail;
  const kept: Entry[] = [];
  for (const entry of entries.toReversed()) {
    const bytes = outputBytes(entry);
    if (bytes === undefined) {
      kept.unshift(entry);
      continue;
    }
    if (tail === 0) continue;
    for (let at = bytes.length - 1; at >= 0; at -= 1) {
      if (bytes[at] !== LINE_BREAK) continue;
      breaksLeft -= 1;
      if (breaksLeft > 0) continue;
      if (at + 1 < bytes.length) kept.unshift(cutBefore(entry, bytes, at + 1));
      return kept;
    }
    kept.unshift(entry);
  }
  return kept;
}

function cutBefore(entry: Entry, bytes: Uint8Array, from: number): Entry {
  if (entry.type !== 'output') return entry;
  const { data: _whole, ...rest } = entry;
  return { ...rest, at: entry.at + from, base64: Buffer.from(bytes.subarray(from)).toString('base64') };
}
