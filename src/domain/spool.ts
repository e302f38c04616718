/**
 * The log of one running command as its worker holds it: what is not stored yet, and what was stored lately.
 *
 *     kept, confirmed │ in flight, maybe stored │ never sent
 *                  cursor                     fresh
 *
 * Promises:
 * - Entries are numbered when they are added and leave in that order. What was handed out once never changes, since it may
 *   be stored: the same seq always has the same content (append's repair after a failover rests on this).
 * - Never-sent output weighs at most `spoolBytes`. Beyond that all of it between the command's first bytes and the newest
 *   `lastBytes` becomes one gap that occupies its range (CO7). Entries that are not output are never dropped.
 * - To the byte: the bytes of all outputs and gaps add up to the bytes that were added.
 * - Confirmed entries are kept for a rewind, at most `rewindBytes`. A rewind beyond them becomes a gap `redis_lost` over
 *   exactly the lost range.
 * - With a shelf, never-sent output beyond `memoryBytes` lies there and comes back when it is handed out. What the shelf
 *   does not take stays in memory; what it can not give back becomes a gap `spool` over exactly its range.
 */
import type { Entry, GapReason, OutputStream } from '../protocol/entries.js';

type Unnumbered<E> = E extends Entry ? Omit<E, 'commandId' | 'seq' | 'ts'> : never;

/** What a worker adds: output as bytes, everything else as it will be told. */
export type SpoolBody =
  | { readonly type: 'output'; readonly stream: OutputStream; readonly bytes: Uint8Array }
  | Unnumbered<Exclude<Entry, { type: 'output' | 'gap' }>>;

export interface SpoolEntry {
  readonly fromSeq: number;
  readonly seq: number;
  /** ms since 1970; of a gap: when its last part was dropped. */
  readonly ts: number;
  /** Offset of its first byte in the whole output; undefined for a gap whose beginning is no longer known. */
  readonly startOffset: number | undefined;
  readonly endOffset: number;
  readonly body: SpoolBody | { readonly type: 'gap'; readonly reason: GapReason };
}

/** Where output waits that is too much for the memory: a file. It never throws. */
export interface Shelf {
  /** Takes a copy; where it lies, or undefined when it can not be taken now. */
  put(bytes: Uint8Array): number | undefined;
  /** What lies there, in memory that the spool may recycle; it is gone from the shelf. undefined: it can not be read. */
  take(place: number, bytes: number): Uint8Array | undefined;
  /** Nobody will ask for it. */
  drop(place: number, bytes: number): void;
}

export interface SpoolOptions {
  readonly spoolBytes: number;
  /** Never-sent output within the first bytes of the command stays too; at most a quarter of `spoolBytes` counts. */
  readonly firstBytes: number;
  /** What stays of never-sent output when some must go; at most half of `spoolBytes` counts. */
  readonly lastBytes: number;
  readonly rewindBytes: number;
  /** Never-sent output in memory, beyond which it goes to the shelf. */
  readonly memoryBytes?: number;
  readonly shelf?: Shelf | undefined;
  /** Told about output bytes that nobody will ask for again, so that their memory can be used anew. */
  readonly recycle?: (bytes: Uint8Array) => void;
}

export interface Spool {
  /** @param reason why there would be a gap, if something must be dropped now */
  add(body: SpoolBody, nowMs: number, reason: 'flood' | 'spool'): void;
  /** The next entries to append, at most about `maxBytes` and `maxEntries`, at least one if there is one. */
  take(maxBytes: number, maxEntries: number, nowMs?: number): readonly SpoolEntry[];
  /** Everything up to `headSeq` is stored. `confirmedAtMs` is on the caller's monotonic clock, as for `forget`. */
  confirm(headSeq: number, confirmedAtMs: number): void;
  /** The log ends at `headSeq`, before or after what was confirmed: the next `take` begins after it. */
  rewind(headSeq: number, nowMs: number): void;
  /** Makes the next `take` begin with the last confirmed entry, so that a log that went back is noticed. */
  recheck(): void;
  /** Drops confirmed entries older than this, but the last. */
  forget(confirmedBeforeMs: number): void;
  /** Nothing is left to append. */
  readonly drained: boolean;
  readonly lastSeq: number;
  /** Output bytes added so far. */
  readonly outputBytes: number;
  /** Weight of what was never sent. */
  readonly waitingBytes: number;
  /** The part of it that is in memory. */
  readonly hereBytes: number;
}

/** What an entry costs beside its bytes; keeps a million empty lines from being free. */
const OVERHEAD_BYTES = 256;

interface Held {
  /** Of output on the shelf: without its bytes. */
  entry: SpoolEntry;
  confirmedAtMs: number;
  /** Where its output lies on the shelf. */
  place?: number | undefined;
}

const ON_SHELF = new Uint8Array(0);

export function createSpool(options: SpoolOptions): Spool {
  const { spoolBytes, firstBytes, rewindBytes, shelf, memoryBytes = spoolBytes } = options;
  const lastBytes = Math.min(options.lastBytes, Math.floor(spoolBytes / 2));
  const held: Held[] = [];
  let cursor = 0;
  let fresh = 0;
  let lastSeq = 0;
  let outputBytes = 0;
  let waitingBytes = 0;
  /** The part of it that is in memory. */
  let hereBytes = 0;
  let keptBytes = 0;

  const recycle = (entry: SpoolEntry) => {
    if (entry.body.type === 'output') options.recycle?.(entry.body.bytes);
  };

  const hold = (entry: SpoolEntry): Held => ({ entry, confirmedAtMs: 0 });

  /** A new entry: on the shelf where memory is used up. */
  function keep(entry: SpoolEntry): Held {
    const { body } = entry;
    const bytes = weightOf(entry);
    if (body.type === 'output' && shelf !== undefined && hereBytes + bytes > memoryBytes) {
      const at = shelf.put(body.bytes);
      if (at !== undefined) {
        recycle(entry);
        return { ...hold({ ...entry, body: { ...body, bytes: ON_SHELF } }), place: at };
      }
    }
    hereBytes += bytes;
    return hold(entry);
  }

  /** It is about to be sent: back into memory. It was never sent, so a gap may still take its place. */
  function bringBack(one: Held, at: number, nowMs: number): void {
    const { entry } = one;
    const bytes = shelf?.take(at, outputBytesOf(entry));
    one.place = undefined;
    if (entry.body.type !== 'output') return;
    one.entry =
      bytes === undefined ? joinGap(undefined, entry, nowMs, 'spool') : { ...entry, body: { ...entry.body, bytes } };
  }

  /** Replaces never-sent output between the first and the newest bytes by gaps, one for each run between other entries. */
  function shed(nowMs: number, reason: GapReason): void {
    let dropFrom = fresh;
    for (let left = Math.floor(spoolBytes / 4); dropFrom < held.length; dropFrom++) {
      const { entry } = held[dropFrom]!;
      left -= weightOf(entry);
      if (left < 0 || entry.body.type === 'gap' || (entry.startOffset ?? firstBytes) >= firstBytes) break;
    }
    let keepFrom = held.length;
    for (let left = lastBytes; keepFrom > dropFrom; keepFrom--) {
      left -= weightOf(held[keepFrom - 1]!.entry);
      if (left < 0) break;
    }
    const merged: Held[] = [];
    for (const one of held.slice(dropFrom, keepFrom)) {
      const { entry } = one;
      const before = merged.at(-1)?.entry;
      if (entry.body.type !== 'output' && entry.body.type !== 'gap') {
        merged.push(one);
      } else {
        const extended = before?.body.type === 'gap' ? before : undefined;
        if (extended !== undefined) merged.pop();
        merged.push(hold(joinGap(extended, entry, nowMs, reason)));
        if (one.place === undefined) recycle(entry);
        else shelf?.drop(one.place, outputBytesOf(entry));
      }
    }
    held.splice(dropFrom, keepFrom - dropFrom, ...merged);
    waitingBytes = 0;
    hereBytes = 0;
    for (const { entry, place } of held.slice(fresh)) {
      waitingBytes += weightOf(entry);
      if (place === undefined) hereBytes += weightOf(entry);
    }
  }

  /** Lets go of the oldest confirmed entries; the last one stays, for `recheck`. */
  function release(mayGo: (oldest: Held) => boolean): void {
    let gone = 0;
    while (gone < cursor - 1 && mayGo(held[gone]!)) {
      const { entry } = held[gone]!;
      keptBytes -= weightOf(entry);
      recycle(entry);
      gone++;
    }
    if (gone === 0) return;
    held.splice(0, gone);
    cursor -= gone;
    fresh -= gone;
  }

  return {
    add(body, nowMs, reason) {
      const startOffset = outputBytes;
      if (body.type === 'output') outputBytes += body.bytes.length;
      lastSeq += 1;
      const entry: SpoolEntry = {
        fromSeq: lastSeq,
        seq: lastSeq,
        ts: nowMs,
        startOffset,
        endOffset: outputBytes,
        body,
      };
      held.push(keep(entry));
      waitingBytes += weightOf(entry);
      if (waitingBytes > spoolBytes) shed(nowMs, reason);
    },
    take(maxBytes, maxEntries, nowMs = 0) {
      const taken: SpoolEntry[] = [];
      let bytes = 0;
      for (let i = cursor; i < held.length && taken.length < maxEntries; i++) {
        const one = held[i]!;
        const weight = weightOf(one.entry);
        bytes += weight;
        if (taken.length > 0 && bytes > maxBytes) break;
        if (i === fresh) {
          fresh += 1;
          waitingBytes -= weight;
          if (one.place === undefined) hereBytes -= weight;
          else bringBack(one, one.place, nowMs);
        }
        taken.push(one.entry);
      }
      return taken;
    },
    confirm(headSeq, confirmedAtMs) {
      while (cursor < fresh && held[cursor]!.entry.seq <= headSeq) {
        held[cursor]!.confirmedAtMs = confirmedAtMs;
        keptBytes += weightOf(held[cursor]!.entry);
        cursor += 1;
      }
      release(() => keptBytes > rewindBytes);
    },
    rewind(headSeq, nowMs) {
      let at = 0;
      while (at < fresh && held[at]!.entry.seq <= headSeq) at++;
      for (; cursor > at; cursor--) keptBytes -= weightOf(held[cursor - 1]!.entry);
      for (; cursor < at; cursor++) keptBytes += weightOf(held[cursor]!.entry);
      const next = held[at]?.entry;
      // Only what was forgotten can be missing, and that lies before everything held.
      const lostTo = (next?.fromSeq ?? lastSeq + 1) - 1;
      if (lostTo <= headSeq) return;
      const gap: SpoolEntry = {
        fromSeq: headSeq + 1,
        seq: lostTo,
        ts: nowMs,
        startOffset: headSeq === 0 ? 0 : undefined,
        endOffset: next?.startOffset ?? outputBytes,
        body: { type: 'gap', reason: 'redis_lost' },
      };
      held.splice(at, 0, { entry: gap, confirmedAtMs: 0 });
      fresh += 1;
    },
    recheck() {
      if (cursor === 0) return;
      cursor -= 1;
      keptBytes -= weightOf(held[cursor]!.entry);
    },
    forget(confirmedBeforeMs) {
      release((oldest) => oldest.confirmedAtMs < confirmedBeforeMs);
    },
    get drained() {
      return cursor === held.length;
    },
    get lastSeq() {
      return lastSeq;
    },
    get outputBytes() {
      return outputBytes;
    },
    get waitingBytes() {
      return waitingBytes;
    },
    get hereBytes() {
      return hereBytes;
    },
  };
}

/** Also of output whose bytes are elsewhere. */
const outputBytesOf = ({ body, startOffset, endOffset }: SpoolEntry): number =>
  body.type === 'output' ? endOffset - (startOffset ?? endOffset) : 0;

const weightOf = (entry: SpoolEntry): number => OVERHEAD_BYTES + outputBytesOf(entry);

const joinGap = (before: SpoolEntry | undefined, entry: SpoolEntry, nowMs: number, reason: GapReason): SpoolEntry => ({
  fromSeq: before?.fromSeq ?? entry.fromSeq,
  seq: entry.seq,
  ts: nowMs,
  startOffset: before === undefined ? entry.startOffset : before.startOffset,
  endOffset: entry.endOffset,
  body: { type: 'gap', reason },
});
