/** One command as the application sees it: its entries in order, its end exactly once, and what can be done to it. */
import { AppError } from '../errors.js';
import type { Entry, Outcome } from '../protocol/entries.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import { createLogReader, type LogPage, type LogReader } from './log-reader.js';
import { createOutputReader, type OutputChunk, type OutputGap, type ReadOptions } from './output.js';
import type { RequestOptions } from './types.js';

export { type OutputChunk, type OutputGap, outputOf } from './output.js';

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
  /**
   * The same as text; characters that two pieces share are put together. A gap becomes a line that says so, or what
   * `onGap` makes of it. It has one place with `output` and `bytes`.
   */
  text(options?: ReadOptions & { readonly onGap?: (gap: OutputGap) => string }): AsyncIterableIterator<string>;
  /** The same as bytes, exactly as written. Bytes can not say that some are missing, so `onGap` must. */
  bytes(options: ReadOptions & { readonly onGap: (gap: OutputGap) => void }): AsyncIterableIterator<Uint8Array>;
  /** Every entry of the log; independent of `output`. */
  readonly events: AsyncIterable<Entry>;
  /**
   * The outcome, whatever happened to the output before it. A non-zero exit is an outcome, not an error.
   * @throws AppError when the session was closed before, or the command is gone
   */
  readonly ended: Promise<Outcome>;
  /** Asks for its end: `signal` (SIGTERM unless given), then SIGKILL after `graceMs`. */
  kill(options?: { signal?: string; graceMs?: number }, request?: RequestOptions): Promise<{ state: string }>;
  /**
   * Writes to its stdin or terminal, in the order of the calls; resolves when the bytes are stored, which takes as long as
   * the command leaves too much unread. @throws AppError STDIN_CLOSED, COMMAND_ENDED, NOT_OWNER
   */
  write(data: string | Uint8Array, options?: { eof?: boolean }, request?: RequestOptions): Promise<void>;
  resize(cols: number, rows: number, request?: RequestOptions): Promise<void>;
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
  /** What was made later is another command, also by the same id. Infinite while nothing ended. */
  overAt(): number;
  receive(entry: Entry): void;
  update(snapshot: Partial<CommandSnapshot>): void;
  fail(error: Error): void;
}

export interface CommandStreamPorts {
  request<T>(method: string, params: object, onResult: (value: unknown) => T, options?: RequestOptions): Promise<T>;
  onConsumed(seq: number): void;
}

/** An unread handle keeps this much. */
const UNREAD_BYTES = 1024 * 1024;
/** One write is cut into frames of this size: base64 and the envelope stay below the server's frame limit. */
const WRITE_BYTES = 32 * 1024;

function base64Of(bytes: Uint8Array): string {
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
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
  let endedAt = Number.POSITIVE_INFINITY;
  let discarded = false;
  /** Unknown where somebody else may have written before; then it is asked for. */
  let stdinOffset = source === 'run' ? 0 : undefined;
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
  const output = createOutputReader(makeReader());

  async function writeAll(bytes: Uint8Array, eof: boolean, request?: RequestOptions): Promise<void> {
    let offset = stdinOffset ?? (await writeAt(0, new Uint8Array(), false, request));
    // A write that fails half-way may have been stored all the same: then the next one asks where to go on.
    stdinOffset = undefined;
    for (let from = 0; from < bytes.length || (eof && from === 0); from += WRITE_BYTES) {
      const part = bytes.subarray(from, from + WRITE_BYTES);
      await writeAt(offset, part, eof && from + WRITE_BYTES >= bytes.length, request);
      offset += part.length;
    }
    stdinOffset = offset;
  }

  /** Goes on until the bytes are taken: a program may read late, and a repeat changes nothing. @returns the next offset */
  async function writeAt(offset: number, bytes: Uint8Array, eof: boolean, request?: RequestOptions): Promise<number> {
    const params = { commandId, offset, base64: base64Of(bytes), ...(eof ? { eof } : {}) };
    const nextOffset = (value: unknown) => (value as { nextOffset: number }).nextOffset;
    for (;;) {
      try {
        return await ports.request('command.write', params, nextOffset, request);
      } catch (error) {
        // A limit that the caller set is kept; without one it is the program that decides when it reads.
        if (over || request?.timeoutMs !== undefined) throw error;
        if (!(error instanceof AppError && error.code === 'REDIS_UNAVAILABLE')) throw error;
      }
    }
  }

  const handle: CommandHandle = {
    commandId,
    source,
    get snapshot() {
      return snapshot;
    },
    output: { [Symbol.asyncIterator]: () => output.items() },
    text: output.text,
    bytes: output.bytes,
    events,
    ended,
    kill: (options = {}, request) =>
      ports.request('command.kill', { commandId, ...options }, (value) => value as { state: string }, request),
    write(data, { eof = false } = {}, request) {
      const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
      const done = writing.then(() => writeAll(bytes, eof, request));
      writing = done.catch(() => undefined); // The caller has the rejection; later writes meet the same answer.
      return done;
    },
    resize: (cols, rows, request) =>
      ports.request('command.resize', { commandId, cols, rows }, () => undefined, request),
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
    overAt: () => Math.max(endedAt, snapshot.createdAt ?? 0),
    receive(entry) {
      if (entry.type === 'ended' && !over) {
        over = true;
        endedAt = entry.ts;
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
