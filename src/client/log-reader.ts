/**
 * A cursor over one command's log, as an async iterator: every entry once, in order, gaps said.
 *
 * Live entries are buffered up to a bound. Beyond it, or where one is missing, the reader stops buffering and pages the
 * log from its own place until it reaches the head, then goes live again (DE4). So a consumer that never reads costs a
 * fixed amount of memory and slows nobody.
 */
import type { Entry } from '../protocol/entries.js';

/** Entries after a seq, in order; `headSeq` is the last seq of the log. */
export interface LogPage {
  readonly entries: readonly Entry[];
  readonly headSeq: number;
}

export interface LogReaderPorts {
  /** @throws AppError UNKNOWN_COMMAND when nothing of the command is left */
  fetchPage(afterSeq: number): Promise<LogPage>;
  /** Everything up to this seq was taken by the consumer, that is: it came back for more. */
  onConsumed(seq: number): void;
  /** The first entry was asked for. */
  onActive(): void;
}

export interface LogReader extends AsyncIterableIterator<Entry> {
  /** A live entry. Duplicates are dropped. */
  offer(entry: Entry): void;
  /** Gives the buffer up and takes no more; what is asked for later is read from the log. */
  suspend(): void;
  /** No more entries will come: the iterator ends with this error after what is buffered. */
  fail(error: Error): void;
}

const firstSeq = (entry: Entry): number => (entry.type === 'gap' ? entry.fromSeq : entry.seq);

/** What an entry takes in memory, roughly. */
const sizeOf = (entry: Entry): number =>
  200 + (entry.type === 'output' ? 2 * (entry.data?.length ?? 0) + 2 * (entry.base64?.length ?? 0) : 0);

/** An empty page though the head is further: the log is being repaired (FAULTS L2), so ask again a little later. */
const EMPTY_PAGE_DELAY_MS = 250;

/** @param afterSeq the first entry read is the one after it @param limitBytes bound of the buffer */
export function createLogReader(afterSeq: number, limitBytes: number, ports: LogReaderPorts): LogReader {
  let queue: Entry[] = [];
  let queuedBytes = 0;
  /** Last seq that is in the queue or was given out. */
  let tailSeq = afterSeq;
  /** Last seq given out; consumed when the consumer comes back. */
  let givenSeq = afterSeq;
  let headSeq = afterSeq;
  let behind = false;
  let active = false;
  let over = false;
  let failure: Error | undefined;
  let wake: (() => void) | undefined;
  let turn: Promise<unknown> = Promise.resolve();

  function push(entry: Entry): void {
    queue.push(entry);
    queuedBytes += sizeOf(entry);
    tailSeq = entry.seq;
  }

  async function catchUp(): Promise<void> {
    const page = await ports.fetchPage(tailSeq);
    headSeq = Math.max(headSeq, page.headSeq);
    for (const entry of page.entries) if (entry.seq > tailSeq) push(entry);
    if (tailSeq >= headSeq) behind = false;
    else if (page.entries.length === 0) await new Promise((resolve) => setTimeout(resolve, EMPTY_PAGE_DELAY_MS));
  }

  function consume(): void {
    if (givenSeq > afterSeq) ports.onConsumed(givenSeq);
  }

  async function take(): Promise<IteratorResult<Entry>> {
    if (!active) {
      active = true;
      ports.onActive();
    }
    consume();
    while (!over) {
      const entry = queue.shift();
      if (entry !== undefined) {
        queuedBytes -= sizeOf(entry);
        givenSeq = entry.seq;
        over = entry.type === 'ended';
        return { done: false, value: entry };
      }
      if (failure !== undefined) {
        over = true;
        throw failure;
      }
      if (behind) await catchUp();
      else await new Promise<void>((resolve) => (wake = resolve));
    }
    return { done: true, value: undefined };
  }

  const reader: LogReader = {
    offer(entry) {
      headSeq = Math.max(headSeq, entry.seq);
      if (over || behind || entry.seq <= tailSeq) return;
      const fits = queue.length === 0 || queuedBytes + sizeOf(entry) <= limitBytes;
      if (fits && firstSeq(entry) <= tailSeq + 1) push(entry);
      else behind = true;
      wake?.();
      wake = undefined;
    },
    suspend() {
      queue = [];
      queuedBytes = 0;
      tailSeq = givenSeq;
      behind = true;
    },
    fail(error) {
      failure ??= error;
      behind = false;
      wake?.();
      wake = undefined;
    },
    next() {
      const result = turn.then(take);
      turn = result.catch(() => undefined); // The caller has the rejection; the next call only waits for its turn.
      return result;
    },
    /** Leaving a loop keeps the place: iterating again goes on with the next entry. */
    return() {
      consume();
      return Promise.resolve({ done: true, value: undefined });
    },
    [Symbol.asyncIterator]: () => reader,
  };
  return reader;
}
