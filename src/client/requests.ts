/**
 * Requests that outlive a connection: what was not answered is asked again on the next one. That is safe because every
 * request of the protocol may be repeated (run carries an idempotency key, write an offset).
 */
import { type Backoff, fullJitterMs } from '../domain/backoff.js';
import { AppError } from '../errors.js';
import type { Connection } from './connection.js';
import type { RequestOptions } from './types.js';

const RETRY: Backoff = { baseMs: 200, capMs: 5_000 };
const MAX_PENDING = 1_000;

interface Pending {
  readonly method: string;
  readonly params: object;
  readonly onResult: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  attempt: number;
  timers: ReturnType<typeof setTimeout>[];
  /** Stops listening to the caller's signal. */
  release(): void;
}

export interface Requests {
  /**
   * Resolves with what `onResult` makes of the answer, in the tick of its arrival.
   * @throws AppError the server's refusal; REDIS_UNAVAILABLE without an answer in time, LIMIT_EXCEEDED with too many open;
   * the reason of `signal`
   */
  send<T>(method: string, params: object, onResult: (value: unknown) => T, options?: RequestOptions): Promise<T>;
  /** The session is live on this connection: everything unanswered is asked on it. */
  attach(connection: Connection): void;
  detach(): void;
  /** Rejects what is open and everything later. */
  close(error: Error): void;
}

export function createRequests(options: { readonly timeoutMs: number }): Requests {
  const pending = new Set<Pending>();
  let connection: Connection | undefined;
  let closedBy: Error | undefined;

  function settle(item: Pending): void {
    pending.delete(item);
    for (const timer of item.timers) clearTimeout(timer);
    item.release();
  }

  function ask(item: Pending): void {
    if (connection === undefined || !pending.has(item)) return;
    connection.request(item.method, item.params, (answer) => {
      if (!pending.has(item)) return;
      switch (answer.type) {
        case 'result':
          settle(item);
          return item.onResult(answer.value);
        case 'lost':
          return; // Asked again when the next connection is attached.
        case 'error': {
          const { error } = answer;
          if (!(error instanceof AppError) || !error.retryable) {
            settle(item);
            return item.reject(error);
          }
          const delayMs = fullJitterMs(item.attempt++, RETRY, Math.random(), error.retryAfterMs);
          const asked = connection;
          item.timers.push(setTimeout(() => asked === connection && ask(item), delayMs));
        }
      }
    });
  }

  return {
    send<T>(
      method: string,
      params: object,
      onResult: (value: unknown) => T,
      { signal, timeoutMs = options.timeoutMs }: RequestOptions = {},
    ): Promise<T> {
      if (signal?.aborted) return Promise.reject(signal.reason);
      if (closedBy !== undefined) return Promise.reject(closedBy);
      if (pending.size >= MAX_PENDING) {
        const message = `at most ${MAX_PENDING} requests may be unanswered at a time`;
        return Promise.reject(new AppError('LIMIT_EXCEEDED', message));
      }
      return new Promise<T>((resolve, reject) => {
        const take = (value: unknown) => {
          try {
            resolve(onResult(value));
          } catch (error) {
            reject(error);
          }
        };
        const abort = () => giveUp(signal?.reason);
        const release = () => signal?.removeEventListener('abort', abort);
        const item: Pending = { method, params, onResult: take, reject, attempt: 0, timers: [], release };
        const giveUp = (reason: Error) => {
          settle(item);
          reject(reason);
        };
        const late = () => {
          const message = `${method} was not answered within ${timeoutMs} ms; it may have been carried out`;
          giveUp(new AppError('REDIS_UNAVAILABLE', message));
        };
        item.timers.push(setTimeout(late, timeoutMs));
        signal?.addEventListener('abort', abort);
        pending.add(item);
        ask(item);
      });
    },
    attach(next) {
      connection = next;
      for (const item of [...pending]) ask(item);
    },
    detach() {
      connection = undefined;
    },
    close(error) {
      closedBy ??= error;
      connection = undefined;
      for (const item of [...pending]) {
        settle(item);
        item.reject(error);
      }
    },
  };
}
