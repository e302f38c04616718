/**
 * The breaker of each origin, counted over all workers: Redis is asked for each notice that would be told. While Redis does
 * not answer, or not soon, this worker counts its own, so that a notice never waits for it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { NoticeCounts, NoticeOrigin } from '../domain/ports.js';
import { type Breaker, type BreakerAnswer, createBreaker } from '../domain/watch.js';

/** Origins without a recent notice are forgotten when there are more. */
const MAX_BREAKERS = 1_000;
const ANSWER_WITHIN_MS = 500;
/** The command is over, and its end waits. */
const HURRIED_WITHIN_MS = 250;

/** Resolves soon, and never rejects. @param hurry aborted when somebody waits for the answer */
export type AskBreaker = (hurry: AbortSignal) => Promise<BreakerAnswer>;

export interface Breakers {
  /** For one command; ids of its notices begin with `id`. */
  of(origin: NoticeOrigin, id: string): AskBreaker;
}

/** @param counts absent: this worker counts alone */
export function createBreakers(counts?: NoticeCounts): Breakers {
  const breakers = new Map<string, Breaker>();

  function breakerOf({ tag, name }: NoticeOrigin): Breaker {
    const key = `${tag}/${name}`;
    const known = breakers.get(key);
    if (known !== undefined) return known;
    if (breakers.size >= MAX_BREAKERS) {
      const nowMs = performance.now();
      for (const [name, breaker] of breakers) if (breaker.isIdle(nowMs)) breakers.delete(name);
    }
    const made = createBreaker();
    breakers.set(key, made);
    return made;
  }

  return {
    of(origin, id) {
      let asked = 0;
      return async (hurry) => {
        const breaker = breakerOf(origin);
        // It is open for all until then: nothing to ask.
        if (breaker.isOpen(performance.now())) return 'open';
        asked += 1;
        const answer = counts && (await inTime(counts.ask(origin, `${id}:${asked}`), hurry));
        if (answer === undefined) return breaker.ask(performance.now());
        breaker.heard(answer.type, answer.openForMs, performance.now());
        return answer.type;
      };
    },
  };
}

/** undefined when it fails or takes too long. */
async function inTime<T>(answer: Promise<T>, hurry: AbortSignal): Promise<T | undefined> {
  const over = new AbortController();
  const hurried = new Promise<undefined>((resolve) => {
    const soon = () => void sleep(HURRIED_WITHIN_MS, undefined, { signal: over.signal }).then(resolve, resolve);
    if (hurry.aborted) soon();
    else hurry.addEventListener('abort', soon, { once: true, signal: over.signal });
  });
  const late = sleep(ANSWER_WITHIN_MS, undefined, { signal: over.signal }).catch(() => undefined);
  try {
    return await Promise.race([answer, late, hurried]);
  } catch {
    return undefined; // Redis is away: whoever asked counts for itself.
  } finally {
    over.abort();
  }
}
