/**
 * Looks again at what could have been lost on the way: every session with something outstanding each 2 s, the others
 * each lease (DE7, SE1). Spread over the interval, bounded in concurrency.
 */
import type { Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { AttachedSession } from './attached-session.js';

const SWEEP_MS = 2_000;
const TICK_MS = 100;
const CONCURRENCY = 64;

export interface Sweep {
  close(): void;
}

export function createSweep(options: {
  readonly leaseMs: number;
  readonly log: Log;
  random(): number;
  /** Every session attached here. */
  all(): readonly { readonly session: AttachedSession }[];
}): Sweep {
  const { leaseMs, log, random, all } = options;
  /** When each is due, on the monotonic clock, in the two paces. */
  const lastMs = new WeakMap<AttachedSession, number>();
  const busy = new Set<AttachedSession>();

  const timer = setInterval(() => {
    const nowMs = performance.now();
    for (const { session } of all()) {
      if (busy.size >= CONCURRENCY) return;
      if (busy.has(session)) continue;
      const last = lastMs.get(session);
      // A new session starts at a random place in the interval, and keeps its own pace from there.
      if (last === undefined) lastMs.set(session, nowMs - random() * SWEEP_MS);
      else if (nowMs - last >= (session.isOutstanding() ? SWEEP_MS - TICK_MS : leaseMs)) check(session);
    }
  }, TICK_MS);
  timer.unref();

  function check(session: AttachedSession): void {
    busy.add(session);
    lastMs.set(session, performance.now());
    session
      .verify()
      .catch((error) => log.debug({ fault: messageOf(error) }, 'a sweep could not look'))
      .finally(() => busy.delete(session));
  }

  return { close: () => clearInterval(timer) };
}
