/**
 * The open streams of server-sent events of a node: counted for each principal, paced like viewers, ended with their
 * token, with their caller, and, spread over a window, with the node.
 *
 * A stream is a generator that is only asked for more when the socket took what came before: a slow reader costs one
 * page of memory and slows nobody else (DE5).
 */
import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import type { Log, Meter } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import { LIMITS } from '../protocol/limits.js';
import type { Claims } from '../protocol/token.js';
import { KEEP_ALIVE, retryText } from './sse.js';

/** How often a stream looks for news. */
const POLL_MS = 250;
/** What a quiet stream says in this time at most (PROTOCOL 4). */
export const KEEP_ALIVE_MS = 15_000;
/** How soon a client comes back; it adds no jitter of its own, so ours is in the number. */
const RETRY_MS = 1_000;
const FULL_RETRY_AFTER_MS = 5_000;

/** What a generator of events lives by. It yields after each look, '' when there is nothing new. */
export interface Pace {
  /** Waits until it is time for the next look. False: end. */
  next(): Promise<boolean>;
  /** Reads; 'failed' when Redis does not answer, and then the next look comes later. */
  attempt<T>(read: () => Promise<T>): Promise<T | 'failed'>;
}

export interface EventStreams {
  /** @throws AppError LIMIT_EXCEEDED */
  open(claims: Claims, events: (pace: Pace) => AsyncGenerator<string>): Readable;
  headers(reply: FastifyReply): FastifyReply;
  /** Ends every stream, spread over the window; clients come back to another node. */
  drain(withinMs: number): void;
  close(): void;
}

export function createEventStreams(options: {
  readonly log: Log;
  readonly meter: Meter;
  now(): number;
  random(): number;
  readonly keepAliveMs?: number | undefined;
}): EventStreams {
  const { log, meter, now, random, keepAliveMs = KEEP_ALIVE_MS } = options;
  const open = new Set<AbortController>();
  const counts = new Map<string, number>();
  const timers = new Set<NodeJS.Timeout>();

  function enter(key: string): void {
    const count = counts.get(key) ?? 0;
    if (count >= LIMITS.maxEventStreams) {
      const message = `at most ${LIMITS.maxEventStreams} event streams of one principal at a node, got ${count + 1}`;
      throw new AppError('LIMIT_EXCEEDED', message, { retryAfterMs: FULL_RETRY_AFTER_MS });
    }
    counts.set(key, count + 1);
  }

  function leave(key: string, stop: AbortController): void {
    if (!open.delete(stop)) return;
    const count = (counts.get(key) ?? 1) - 1;
    if (count === 0) counts.delete(key);
    else counts.set(key, count);
    meter.gauge('homing_event_streams', open.size);
  }

  function sleep(delayMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, delayMs);
      signal.addEventListener('abort', done);
      if (signal.aborted) done();
    });
  }

  async function* withKeepAlive(events: AsyncGenerator<string>): AsyncGenerator<string> {
    // Before any event: the headers leave with it, and the client knows that it is connected.
    yield retryText(RETRY_MS * (0.5 + random()));
    let sentAtMs = performance.now();
    for await (const text of events) {
      if (text === '' && performance.now() - sentAtMs < keepAliveMs) continue;
      yield text || KEEP_ALIVE;
      sentAtMs = performance.now();
    }
  }

  return {
    open(claims, events) {
      const key = `${claims.tenant.length}:${claims.tenant}${claims.principal}`;
      enter(key);
      const stop = new AbortController();
      open.add(stop);
      meter.gauge('homing_event_streams', open.size);
      let waitMs = 0;
      const pace: Pace = {
        async next() {
          await sleep(waitMs, stop.signal);
          waitMs = POLL_MS * (1 + random() / 4);
          // A token that is over reads nothing more; whoever comes back needs a new one (IS1).
          return !stop.signal.aborted && claims.expiresAtMs > now();
        },
        async attempt(read) {
          try {
            return await read();
          } catch (error) {
            if (!(error instanceof AppError)) throw error;
            log.debug({ fault: messageOf(error) }, 'could not read a page for an event stream');
            waitMs = 4 * POLL_MS * (1 + random() / 4);
            return 'failed';
          }
        },
      };
      const stream = Readable.from(withKeepAlive(events(pace)), { objectMode: false });
      // Ended, or its caller went away, or it failed.
      stream.once('close', () => leave(key, stop));
      return stream;
    },

    headers: (reply) =>
      reply
        .header('cache-control', 'no-store')
        .header('x-accel-buffering', 'no')
        .header('x-content-type-options', 'nosniff')
        .type('text/event-stream; charset=utf-8'),

    drain(withinMs) {
      for (const stop of open) {
        const timer = setTimeout(() => {
          timers.delete(timer);
          stop.abort();
        }, random() * withinMs);
        timers.add(timer);
      }
    },

    close() {
      for (const timer of timers) clearTimeout(timer);
      for (const stop of open) stop.abort();
    },
  };
}
