/** A rate with a burst of one second. A take may go into debt, so a piece larger than the burst still passes. */

export interface TokenBucket {
  /** 0 when something may be taken now, else how long to wait. */
  waitMs(nowMs: number): number;
  take(amount: number, nowMs: number): void;
}

export function createTokenBucket(perSecond: number, nowMs: number): TokenBucket {
  let tokens = perSecond;
  let filledMs = nowMs;
  const fill = (now: number) => {
    tokens = Math.min(perSecond, tokens + (Math.max(0, now - filledMs) * perSecond) / 1000);
    filledMs = now;
  };
  return {
    waitMs(now) {
      fill(now);
      return tokens > 0 ? 0 : Math.ceil((-tokens * 1000) / perSecond) + 1;
    },
    take(amount, now) {
      fill(now);
      tokens -= amount;
    },
  };
}
