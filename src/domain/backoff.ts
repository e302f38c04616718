/**
 * How long to wait before a repeat. Full jitter: a delay anywhere between nothing and a doubling bound, so that clients
 * that lost the same node do not come back in step ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
 */

export interface Backoff {
  /** Bound of the first delay. */
  readonly baseMs: number;
  /** Bound of every delay. */
  readonly capMs: number;
}

/** The bound of the delay before a repeat. `attempt` counts from 0. */
export function boundMs(attempt: number, { baseMs, capMs }: Backoff): number {
  // 2 ** 1024 is Infinity, and Math.min brings that back to the cap; no attempt is too high.
  return Math.min(capMs, baseMs * 2 ** Math.max(0, attempt));
}

/**
 * The delay before repeat number `attempt` (from 0), in whole milliseconds; draw anew for each.
 * @param random 0 ≤ n < 1
 * @param atLeastMs what the peer asked for (`retryAfterMs`); the jitter comes on top, or all would return at once
 */
export function fullJitterMs(attempt: number, backoff: Backoff, random: number, atLeastMs = 0): number {
  return atLeastMs + Math.floor(random * boundMs(attempt, backoff));
}
