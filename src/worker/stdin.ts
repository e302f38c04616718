/**
 * Feeds the stdin of a command from what was written to it in Redis, by offset.
 *
 * - At most one page (64 KiB) is on its way; the next is read when the program took the one before. What waits beyond
 *   that waits in Redis, where the writer meets STDIN_FULL.
 * - A program that closed its stdin is no fault: it is told to later writers (STDIN_CLOSED), nothing else happens.
 * - A nudge says that there is more; a lost one costs one poll interval.
 */
import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fullJitterMs } from '../domain/backoff.js';
import type { CommandStore, InputState, Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { ClaimId, CommandId } from '../protocol/ids.js';

/** Where the bytes of a command's stdin go. */
export interface InputSink {
  /** Resolves when they were taken: true; false when the program does not read any more. Never rejects. */
  write(bytes: Uint8Array): Promise<boolean>;
  /** No more bytes will come. */
  end(): Promise<void>;
  /** Lets go at once. Idempotent. */
  close(): void;
}

/** A pipe whose other end is the stdin of a program. Owns the descriptor. */
export function pipeSink(writeFd: number): InputSink {
  const socket = new Socket({ fd: writeFd, readable: false, writable: true });
  // A program that closed its stdin shows in the answers of `write`; unheard, the error would end the worker.
  socket.on('error', () => {});
  return {
    write: (bytes) =>
      new Promise((resolve) => {
        socket.write(bytes, (error) => resolve(error === null || error === undefined));
      }),
    end: () =>
      new Promise((resolve) => {
        socket.once('close', () => resolve());
        socket.end(() => socket.destroy());
        if (socket.destroyed) resolve();
      }),
    close: () => void socket.destroy(),
  };
}

export interface StdinFeeder {
  /** What is stored now, as far as known; less than before is ignored. */
  wake(state: InputState): void;
  close(): void;
}

const PAGE_BYTES = 64 * 1024;
const BACKOFF = { baseMs: 50, capMs: 1_000 };

export function createStdinFeeder(
  ports: { readonly store: Pick<CommandStore, 'readStdin'>; readonly log: Log; readonly random: () => number },
  options: { readonly commandId: CommandId; readonly claimId: ClaimId; readonly sink: InputSink },
): StdinFeeder {
  const { store, log, random } = ports;
  const { commandId, claimId, sink } = options;
  const stopped = new AbortController();
  let stored: InputState = { endOffset: 0, eof: false };
  let offset = 0;
  /** What Redis knows to be taken. */
  let notedOffset = 0;
  /** `refused`: the program closed it, and that is not noted yet. */
  let state: 'open' | 'refused' | 'over' = 'open';
  let feeding = false;

  const hasMore = () => {
    if (state === 'over') return false;
    return state === 'refused' || stored.endOffset > offset || stored.eof || notedOffset < offset;
  };

  async function feed(): Promise<void> {
    feeding = true;
    for (let failures = 0; hasMore() && !stopped.signal.aborted; ) {
      try {
        await step();
        failures = 0;
      } catch (error) {
        if (failures === 0) log.debug({ commandId, error: messageOf(error) }, 'stdin can not be read, trying again');
        await sleep(fullJitterMs(failures, BACKOFF, random()), undefined, { signal: stopped.signal }).catch(() => {});
        failures += 1;
      }
    }
    feeding = false;
  }

  /** One page: read, written, and noted as taken. */
  async function step(): Promise<void> {
    const closed = state === 'refused';
    const taken = offset;
    const page = await store.readStdin({ commandId, claimId, takenOffset: taken, limitBytes: PAGE_BYTES, closed });
    notedOffset = taken;
    if (closed || page.type === 'claim_lost') {
      state = 'over';
      return;
    }
    stored = { endOffset: Math.max(stored.endOffset, page.endOffset), eof: stored.eof || page.eof };
    for (const bytes of page.chunks) {
      if (!(await sink.write(bytes))) {
        state = 'refused';
        return;
      }
      offset += bytes.length;
    }
    if (page.eof && offset >= page.endOffset) {
      state = 'over';
      await sink.end();
      return;
    }
    // More was said to be there than is: a server that lost its last writes. The writer repeats them by offset.
    if (page.chunks.length === 0) stored = { endOffset: page.endOffset, eof: page.eof };
  }

  return {
    wake(now) {
      stored = { endOffset: Math.max(stored.endOffset, now.endOffset), eof: stored.eof || now.eof };
      if (!feeding && hasMore()) void feed();
    },
    close() {
      stopped.abort();
      sink.close();
    },
  };
}
