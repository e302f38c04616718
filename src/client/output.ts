/** The output of a command as its consumer wants it: pieces, text or bytes, from one place that all three share. */
import type { Entry, GapReason, OutputStream } from '../protocol/entries.js';
import type { LogReader } from './log-reader.js';

/** A piece of output. */
export interface OutputChunk {
  readonly type: 'output';
  readonly stream: OutputStream;
  /** Offset of the first byte in the whole output of all streams. */
  readonly at: number;
  /** Bytes that are not UTF-8 show as U+FFFD here. */
  readonly text: string;
  /** Exactly what the command wrote. */
  readonly bytes: Uint8Array;
}

/** Output that is no longer there. */
export interface OutputGap {
  readonly type: 'gap';
  readonly fromSeq: number;
  readonly toSeq: number;
  /** How much is missing, where known. */
  readonly bytes?: number;
  readonly reason: GapReason;
}

export interface ReadOptions {
  /** Ends the loop with its reason. The place is kept: reading again goes on with what was not given out. */
  readonly signal?: AbortSignal;
}

const bytesOf = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));

/** An entry as output, or undefined for an entry that is none. */
export function outputOf(entry: Entry): OutputChunk | OutputGap | undefined {
  if (entry.type === 'gap') {
    const { fromSeq, toSeq, bytes, reason } = entry;
    return { type: 'gap', fromSeq, toSeq, reason, ...(bytes === undefined ? {} : { bytes }) };
  }
  if (entry.type !== 'output') return undefined;
  const { stream, at, data, base64 } = entry;
  const bytes = base64 === undefined ? new TextEncoder().encode(data ?? '') : bytesOf(base64);
  return { type: 'output', stream, at, text: data ?? new TextDecoder().decode(bytes), bytes };
}

/** The value of the promise, or the reason of the signal, whichever comes first. */
async function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  signal.throwIfAborted();
  let abort: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    if (abort !== undefined) signal.removeEventListener('abort', abort);
  }
}

const gapLine = ({ bytes, reason }: OutputGap): string =>
  `\n[homing: ${bytes ?? 'an unknown number of'} bytes of output are missing here (${reason})]\n`;

export type OutputReader = ReturnType<typeof createOutputReader>;

/** @param entries keeps the place; nobody else reads from it */
export function createOutputReader(entries: LogReader) {
  /** Asked for and not given out: what a loop that was aborted leaves for the next one. */
  let pending: Promise<IteratorResult<Entry>> | undefined;

  async function* items({ signal }: ReadOptions = {}): AsyncGenerator<OutputChunk | OutputGap, undefined> {
    try {
      for (;;) {
        pending ??= entries.next();
        const { done, value } = await abortable(pending, signal);
        pending = undefined;
        if (done === true) return;
        const item = outputOf(value);
        if (item !== undefined) yield item;
      }
    } catch (error) {
      // A read that failed would fail for every later loop in the same way; one that was aborted is still under way.
      if (!signal?.aborted) pending = undefined;
      throw error;
    } finally {
      if (pending === undefined) void entries.return?.();
    }
  }

  async function* text(options: ReadOptions & { readonly onGap?: (gap: OutputGap) => string } = {}) {
    const { onGap = gapLine } = options;
    const decoders = new Map<OutputStream, TextDecoder>();
    const rest = () => {
      const left = [...decoders.values()].map((decoder) => decoder.decode()).join('');
      decoders.clear();
      return left;
    };
    for await (const item of items(options)) {
      let piece: string;
      if (item.type === 'gap') {
        piece = rest() + onGap(item);
      } else {
        const decoder = decoders.get(item.stream) ?? new TextDecoder();
        decoders.set(item.stream, decoder);
        piece = decoder.decode(item.bytes, { stream: true });
      }
      if (piece !== '') yield piece;
    }
    const last = rest();
    if (last !== '') yield last;
  }

  async function* bytes(options: ReadOptions & { readonly onGap: (gap: OutputGap) => void }) {
    for await (const item of items(options)) {
      if (item.type === 'gap') options.onGap(item);
      else yield item.bytes;
    }
  }

  return { items, text, bytes };
}
