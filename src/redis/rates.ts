/**
 * The port Rates on Redis, by `rate-limiter-flexible`: a counter with an end for each key and window. While Redis does not
 * answer, or is full, this process counts by itself. Who is above a limit is remembered here until its window ends, so that
 * a flood costs no round trips.
 *
 * Bounds: a key in Redis and a timer here for each principal or address of the last window (a minute at most), about 200 bytes each.
 */
import { createHash } from 'node:crypto';
import type { Cluster, Redis } from 'ioredis';
import { RateLimiterMemory, RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { RATES, type RateLimits, type RateName, type Rates } from '../domain/rates.js';
import type { Keys } from './keys.js';

const NAMES = Object.keys(RATES) as RateName[];

export function createRates(options: {
  readonly redis: Redis | Cluster;
  readonly keys: Pick<Keys, 'rate'>;
  readonly limits: RateLimits;
}): Rates {
  const { redis, keys, limits } = options;
  const limiters = new Map<RateName, RateLimiterRedis>();
  for (const name of NAMES) {
    const points = limits[name] ?? 0;
    if (points === 0) continue;
    const window = { keyPrefix: keys.rate(name), points, duration: RATES[name].windowMs / 1_000 };
    limiters.set(
      name,
      new RateLimiterRedis({
        ...window,
        storeClient: redis,
        rejectIfRedisNotReady: true,
        inMemoryBlockOnConsumed: points + 1,
        insuranceLimiter: new RateLimiterMemory(window),
      }),
    );
  }

  return {
    limits,
    async take(name, key) {
      const limiter = limiters.get(name);
      if (limiter === undefined) return 0;
      try {
        await limiter.consume(createHash('sha256').update(key).digest('base64url').slice(0, 22));
        return 0;
      } catch (over) {
        // Anything else was counted by the one in memory; what fails there as well must not close the door to everybody.
        return over instanceof RateLimiterRes ? Math.max(1, Math.ceil(over.msBeforeNext)) : 0;
      }
    },
  };
}
