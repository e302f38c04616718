/** Tells a client that its token is about to end, and ends the connection when it has (4005). */
import { CLOSE } from '../protocol/close-codes.js';
import type { Delivery } from './attached-session.js';

const WARN_MS = 60_000;
/** Timers hold 31 bits of milliseconds; a longer wait is taken in turns. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export function createTokenClock(options: { now(): number; readonly delivery: Pick<Delivery, 'notify' | 'end'> }): {
  set(expiresAtMs: number): void;
  close(): void;
} {
  const { now, delivery } = options;
  let timer: NodeJS.Timeout | undefined;

  function wait(expiresAtMs: number, warned: boolean): void {
    const leftMs = expiresAtMs - now();
    if (leftMs <= 0) {
      delivery.end(CLOSE.TOKEN_EXPIRED, 'the token has expired');
      return;
    }
    const warnNow = !warned && leftMs <= WARN_MS;
    if (warnNow) delivery.notify('session.expiring', { expiresInMs: leftMs });
    const toGo = warned || warnNow ? leftMs : leftMs - WARN_MS;
    timer = setTimeout(() => wait(expiresAtMs, warned || warnNow), Math.min(toGo, LONGEST_TIMER_MS));
    timer.unref();
  }

  return {
    set(expiresAtMs) {
      clearTimeout(timer);
      // The answer that carries the new session comes first.
      if (expiresAtMs !== Number.POSITIVE_INFINITY) timer = setTimeout(() => wait(expiresAtMs, false), 1);
    },
    close: () => clearTimeout(timer),
  };
}
