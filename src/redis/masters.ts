/**
 * What every master is asked alone, keys or not: its memory, its clock, who it is. ioredis forwards no such call when a
 * member dies: it waits for its whole time-out, while all the others answer. So one that does not answer soon fails the
 * question, and whoever asks again meets the new masters.
 */
import { Cluster, type Redis } from 'ioredis';
import { AppError } from '../errors.js';
import { answerOf } from './redis-errors.js';

/** Far above a round trip, far below the 5 s of a command: those who ask do so each second. */
const ANSWER_WITHIN_MS = 1_000;
const GOING = new Set(['close', 'end', 'reconnecting']);

/** All masters of a Cluster as far as they are known, or the one server. */
export const mastersOf = (redis: Redis | Cluster): readonly Redis[] =>
  redis instanceof Cluster ? redis.nodes('master') : [redis];

/** The answers in the order of {@link mastersOf}. @throws AppError REDIS_UNAVAILABLE after a second at most */
export async function askMasters<T>(redis: Redis | Cluster, ask: (master: Redis) => Promise<T>): Promise<T[]> {
  return Promise.all(mastersOf(redis).map((master) => askMaster(master, ask)));
}

/** The answer of one of them, on the same terms. */
export async function askMaster<T>(master: Redis, ask: (master: Redis) => Promise<T>): Promise<T> {
  if (GOING.has(master.status)) throw unavailable();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(unavailable()), ANSWER_WITHIN_MS);
    timer.unref();
  });
  try {
    return await Promise.race([answerOf(ask(master)), late]);
  } finally {
    clearTimeout(timer);
  }
}

const unavailable = () => new AppError('REDIS_UNAVAILABLE', 'a master of Redis does not answer');
