/**
 * Looks again at what could have been lost on the way: every session with something outstanding each 2 s, the others
 * each lease (DE7, SE1). Spread over the interval, bounded in concurrency.
 */
import type { Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { Tag } from '../protocol/ids.js';
import type { AttachedSession } from './attached-session.js';
import { TURNS } from './session-table.js';

const SWEEP_MS = 2_000;
const TICK_MS = SWEEP_MS / TURNS;
const CONCURRENCY = 64;

export interface Sweep {
  close(): void;
}

export function createSweep(options: {
  readonly leaseMs: number;
  readonly log: Log;
  random(): number;
  /** The sessions attached here, in `TURNS` shares. */
  turn(index: number): Iterable<{ readonly session: AttachedSession }>;
}): Sweep {
  const { leaseMs, log, random, turn } = options;
  /** When each was looked at last, on the monotonic clock. */
  const checkedMs = new WeakMap<AttachedSession, number>();
  /** To be looked at, in order; at most every session once. */
  const waiting = new Set<AttachedSession>();
  const busy = new Set<AttachedSession>();
  let index = 0;

  const timer = setInterval(() => {
    const nowMs = performance.now();
    const idle = new Set<Tag>();
    for (const { session } of turn(index)) {
      const last = checkedMs.get(session);
      // A new session starts at a random place in the interval.
      if (last === undefined) checkedMs.set(session, nowMs - random() * leaseMs);
      if (session.isOutstanding()) waiting.add(session);
      else if (last !== undefined && nowMs - last >= leaseMs) idle.add(session.place.tag);
    }
    if (idle.size > 0) addTogether(idle, nowMs);
    index += 1;
    checkWaiting();
  }, TICK_MS);
  timer.unref();

  /** Sessions of one conversation share a call, so whoever would be due soon comes with who is due, and keeps its pace. */
  function addTogether(tags: ReadonlySet<Tag>, nowMs: number): void {
    for (const { session } of turn(index)) {
      const last = checkedMs.get(session) ?? nowMs;
      if (tags.has(session.place.tag) && nowMs - last >= leaseMs / 2) waiting.add(session);
    }
  }

  function checkWaiting(): void {
    for (const session of waiting) {
      if (busy.size >= CONCURRENCY) return;
      waiting.delete(session);
      if (session.isOver() || busy.has(session)) continue;
      checkedMs.set(session, performance.now());
      busy.add(session);
      session
        .verify()
        .catch((error) => log.debug({ fault: messageOf(error) }, 'a sweep could not look'))
        .finally(() => {
          busy.delete(session);
          checkWaiting();
        });
    }
  }

  return {
    close() {
      clearInterval(timer);
      waiting.clear();
    },
  };
}
