/** One command as the application sees it: its entries in order, its end exactly once, and what can be done to it. */
import { AppError } from '../errors.js';
import type { Entry, GapReason, Outcome, OutputStream } from '../protocol/entries.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import { createLogReader, type LogPage, type LogReader } from './log-reader.js';

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

export interface CommandHandle {
  readonly commandId: string;
  /** How this page came to know it. */
  readonly source: 'run' | 'resumed' | 'adopted' | 'viewed';
  /** What was known of it last: at the answer of run, open or resume, or when it came here. */
  readonly snapshot: Partial<CommandSnapshot>;
  /**
   * What the command wrote, in order, gaps said; ends with the command. One consumer at a time; leaving a loop keeps the
   * place. What is unread beyond 1 MiB is read from the log when it is asked for. An item counts as consumed, and is
   * acknowledged, when the next one is asked for.
   */
  readonly output: AsyncIterable<OutputChunk | OutputGap>;
  /** Every entry of the log; independent of `output`. */
  readonly events: AsyncIterable<Entry>;
  /**
   * The outcome, whatever happened to the output before it. A non-zero exit is an outcome, not an error.
   * @throws AppError when the session was closed before, or the command is gone
   */
  readonly ended: Promise<Outcome>;
  /** Asks for its end: `signal` (SIGTERM unless given), then SIGKILL after `graceMs`. */
  kill(options?: { signal?: string; graceMs?: number }): Promise<{ state: string }>;
  /** Writes to its stdin, in the order of the calls. @throws AppError STDIN_CLOSED, COMMAND_ENDED */
  write(data: string | Uint8Array, options?: { eof?: boolean }): Promise<void>;
  resize(cols: number, rows: number): Promise<void>;
  /** Says that nobody here will read its output: everything is acknowledged as it comes. */
  discard(): void;
}

/** What the session holds of a command; the application gets `handle`. */
export interface CommandStream {
  readonly handle: CommandHandle;
  /** Last seq that arrived. */
  receivedSeq(): number;
  /** Whether `ended` arrived or the stream failed: nothing more will come. */
  isOver(): boolean;
  receive(entry: Entry): void;
  update(snapshot: Partial<CommandSnapshot>): void;
  fail(error: Error): void;
}

export interface CommandStreamPorts {
  request<T>(method: string, params: object, onResult: (value: unknown) => T): Promise<T>;
  onConsumed(seq: number): void;
}

/** An unread handle keeps this much. */
const UNREAD_BYTES = 1024 * 1024;
/** One write is cut into frames of this size: base64 and the envelope stay below the server's frame limit. */
const WRITE_BYTES = 32 * 1024;

const bytesOf = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));

function base64Of(bytes: Uint8Array): string {
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

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

async function* outputFrom(entries: LogReader): AsyncGenerator<OutputChunk | OutputGap> {
  for await (const entry of entries) {
    const item = outputOf(entry);
    if (item !== undefined) yield item;
  }
}

/** @param afterSeq entries up to it were consumed before */
export function createCommandStream(
  commandId: string,
  source: CommandHandle['source'],
  afterSeq: number,
  ports: CommandStreamPorts,
): CommandStream {
  let snapshot: Partial<CommandSnapshot> = { commandId };
  let receivedSeq = afterSeq;
  let consumedSeq = afterSeq;
  let over = false;
  let discarded = false;
  let stdinOffset = 0;
  let writing: Promise<unknown> = Promise.resolve();
  let resolveEnded!: (outcome: Outcome) => void;
  let rejectEnded!: (error: Error) => void;
  const ended = new Promise<Outcome>((resolve, reject) => {
    resolveEnded = resolve;
    rejectEnded = reject;
  });
  ended.catch(() => undefined); // Whoever awaits it gets the error; nobody awaiting it is no fault.

  const consumed = (seq: number) => {
    if (seq <= consumedSeq) return;
    consumedSeq = seq;
    ports.onConsumed(seq);
  };
  const fetchPage = (after: number): Promise<LogPage> =>
    ports.request('command.log', { commandId, fromSeq: after + 1 }, (value) => value as LogPage);

  // Two independent readers; while only one is used, the other holds no memory and would read from the log.
  const readers: LogReader[] = [];
  const makeReader = (): LogReader => {
    const reader: LogReader = createLogReader(afterSeq, UNREAD_BYTES, {
      fetchPage,
      onConsumed: consumed,
      onActive() {
        activeReaders.add(reader);
        for (const other of readers) if (!activeReaders.has(other)) other.suspend();
      },
    });
    readers.push(reader);
    return reader;
  };
  const activeReaders = new Set<LogReader>();
  const events = makeReader();
  const outputEntries = makeReader();

  async function writeAll(bytes: Uint8Array, eof: boolean): Promise<void> {
    for (let from = 0; from < bytes.length || (eof && from === 0); from += WRITE_BYTES) {
      const part = bytes.subarray(from, from + WRITE_BYTES);
      const last = from + WRITE_BYTES >= bytes.length;
      const params = { commandId, offset: stdinOffset, base64: base64Of(part), ...(last && eof ? { eof } : {}) };
      await ports.request('command.write', params, () => undefined);
      stdinOffset += part.length;
    }
  }

  const handle: CommandHandle = {
    commandId,
    source,
    get snapshot() {
      return snapshot;
    },
    // A generator of its own for each loop, over the one reader that keeps the place.
    output: { [Symbol.asyncIterator]: () => outputFrom(outputEntries) },
    events,
    ended,
    kill: (options = {}) =>
      ports.request('command.kill', { commandId, ...options }, (value) => value as { state: string }),
    write(data, { eof = false } = {}) {
      const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
      const done = writing.then(() => writeAll(bytes, eof));
      writing = done.catch(() => undefined); // The caller has the rejection; later writes meet the same answer.
      return done;
    },
    resize: (cols, rows) => ports.request('command.resize', { commandId, cols, rows }, () => undefined),
    discard() {
      discarded = true;
      for (const reader of readers) reader.suspend();
      consumed(receivedSeq);
    },
  };

  return {
    handle,
    receivedSeq: () => receivedSeq,
    isOver: () => over,
    receive(entry) {
      if (entry.type === 'ended' && !over) {
        over = true;
        resolveEnded(entry.outcome);
      }
      if (entry.seq <= receivedSeq) return;
      receivedSeq = entry.seq;
      for (const reader of readers) reader.offer(entry);
      if (discarded) consumed(entry.seq);
    },
    update(next) {
      snapshot = { ...snapshot, ...next };
    },
    fail(error) {
      if (!over) rejectEnded(error instanceof AppError ? error : new Error(error.message, { cause: error }));
      over = true;
      for (const reader of readers) reader.fail(error);
    },
  };
}
