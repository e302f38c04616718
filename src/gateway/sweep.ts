/**
 * Looks again at what could have been lost on the way: every session with something outstanding each 2 s, the others
 * each lease (DE7, SE1). Spread over the interval, bounded in concurrency.
 */
import type { Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { Tag } from '../protocol/ids.js';
import type { AttachedSession } from './attached-session.js';

const SWEEP_MS = 2_000;
const TICK_MS = 100;
const CONCURRENCY = 64;

/** On the monotonic clock. */
interface Pace {
  readonly checkedMs: number;
  /** When it is looked at whether there is something to check. */
  lookMs: number;
}

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
  const paces = new WeakMap<AttachedSession, Pace>();
  const busy = new Set<AttachedSession>();

  const timer = setInterval(() => {
    const nowMs = performance.now();
    const idle = new Set<Tag>();
    for (const { session } of all()) {
      const pace = paces.get(session);
      if (pace === undefined) {
        // A new session starts at a random place in both intervals.
        paces.set(session, { checkedMs: nowMs - random() * leaseMs, lookMs: nowMs + random() * SWEEP_MS });
        continue;
      }
      if (nowMs < pace.lookMs || busy.has(session)) continue;
      if (busy.size >= CONCURRENCY) return;
      if (session.isOutstanding()) check(session, nowMs);
      else if (nowMs - pace.checkedMs >= leaseMs) idle.add(session.place.tag);
      else pace.lookMs = nowMs + SWEEP_MS;
    }
    if (idle.size > 0) checkTogether(idle, nowMs);
  }, TICK_MS);
  timer.unref();

  /** Sessions of one conversation share a call, so whoever would be due soon comes with who is due, and keeps its pace. */
  function checkTogether(tags: ReadonlySet<Tag>, nowMs: number): void {
    for (const { session } of all()) {
      if (!tags.has(session.place.tag) || busy.has(session)) continue;
      if (busy.size >= CONCURRENCY) return;
      const checkedMs = paces.get(session)?.checkedMs ?? nowMs;
      if (nowMs - checkedMs >= leaseMs / 2) check(session, nowMs);
    }
  }

  function check(session: AttachedSession, nowMs: number): void {
    busy.add(session);
    paces.set(session, { checkedMs: nowMs, lookMs: nowMs + SWEEP_MS - TICK_MS });
    session
      .verify()
      .catch((error) => log.debug({ fault: messageOf(error) }, 'a sweep could not look'))
      .finally(() => busy.delete(session));
  }

  return { close: () => clearInterval(timer) };
}
