/** Waiting for events, never for a time: each wait has a limit, and says what it waited for when it is over. */
import { setTimeout as delay } from 'node:timers/promises';

/** A guard against waiting for ever, and no measure of speed: what has a limit of its own in the rules is measured where it is tried. */
export const DEFAULT_LIMIT_MS = 30_000;

/** What asking may take of the time: a dear question, as one of every process of the machine, is asked more rarely. */
const ASKING_SHARE = 0.2;

/** Asks again and again, until the answer is neither undefined nor false. Errors of `ask` count as "not yet". */
export async function until<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
  limitMs = DEFAULT_LIMIT_MS,
  everyMs = 20,
): Promise<T> {
  const deadline = performance.now() + limitMs;
  let lastError: unknown;
  for (;;) {
    const askedAt = performance.now();
    try {
      const answer = await ask();
      if (answer !== undefined && answer !== false) return answer;
      lastError = undefined;
    } catch (error) {
      lastError = error;
    }
    const nowMs = performance.now();
    if (nowMs > deadline) {
      throw new Error(`waited ${limitMs} ms for ${what}`, { cause: lastError });
    }
    await delay(Math.max(everyMs, (nowMs - askedAt) * (1 / ASKING_SHARE - 1)));
  }
}

/** The promise's value, or an error that names what did not come in time. */
export async function within<T>(what: string, promise: Promise<T>, limitMs = DEFAULT_LIMIT_MS): Promise<T> {
  const timer = new AbortController();
  const limit = delay(limitMs, undefined, { signal: timer.signal }).then(() => {
    throw new Error(`waited ${limitMs} ms for ${what}`);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    timer.abort();
    limit.catch(() => {});
  }
}

/**
 * Proof that nothing comes: looks for the whole span, and throws at once when `ask` finds something.
 * The span is a bound of the contract (such as the sweep interval), not a guess.
 */
export async function never(what: string, ask: () => unknown, spanMs: number): Promise<void> {
  const deadline = performance.now() + spanMs;
  while (performance.now() < deadline) {
    const found = await ask();
    if (found !== undefined && found !== false) throw new Error(`${what}: ${JSON.stringify(found)?.slice(0, 500)}`);
    await delay(20);
  }
}
