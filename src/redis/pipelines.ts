/**
 * Many plain reads in one round trip, on a single server and on a Cluster alike. A key that holds something else than a hash is
 * like one that is not there: what somebody else put into one place must not hold up all others.
 */
import type { Cluster, Redis } from 'ioredis';
import { answerOf } from './connections.js';
import { unlessAnotherType } from './redis-errors.js';

/**
 * The hashes of many keys, in order; an absent key gives an empty object. ioredis sends them without waiting for one
 * another, so on one server they share a round trip, and on a Cluster each goes to its own node.
 * @throws AppError REDIS_UNAVAILABLE
 */
export async function readHashes(
  redis: Redis | Cluster,
  keys: readonly string[],
): Promise<readonly Readonly<Record<string, string>>[]> {
  return answerOf(Promise.all(keys.map((key) => redis.hgetall(key).catch(unlessAnotherType({})))));
}

/** Some fields of many hashes, in order; null where there is none. */
export async function readFields(
  redis: Redis | Cluster,
  keys: readonly string[],
  fields: readonly string[],
): Promise<readonly (readonly (string | null)[])[]> {
  const none = fields.map(() => null);
  return answerOf(Promise.all(keys.map((key) => redis.hmget(key, ...fields).catch(unlessAnotherType(none)))));
}
