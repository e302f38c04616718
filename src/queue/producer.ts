/**
 * Adds the jobs of commands, for any pool, and tells where they are. Queues are made on demand; a bounded number is kept.
 * Fails at once while Redis is away: nothing waits in memory (Q2: a command that is stored will run all the same).
 */
import { Queue } from 'bullmq';
import type { JobState, Log, QueueProducer } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import type { Cluster, Redis } from '../redis/connections.js';
import type { Keys } from '../redis/keys.js';
import { jobName, jobOptions, POOL_KEPT_MS } from './job.js';

const MAX_QUEUES = 64;
const CALL_TIMEOUT_MS = 5_000;
const LOG_EVERY_MS = 30_000;
/** How often a pool in use is noted, for operators who look at pools that no worker serves. */
const NOTE_EVERY_MS = 3_600_000;

const STATES: Readonly<Record<string, JobState>> = {
  waiting: 'waiting',
  prioritized: 'waiting',
  delayed: 'waiting',
  'waiting-children': 'waiting',
  active: 'active',
  completed: 'finished',
  failed: 'finished',
};

/** @param options.redis a connection of role `queue-producer`, which the caller closes after `close` */
export function createQueueProducer(options: {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly log: Log;
}): QueueProducer {
  const { redis, keys, log } = options;
  const notedAtMs = new Map<string, number>();
  /** In order of last use. */
  const queues = new Map<string, Queue>();
  let loggedMs = Number.NEGATIVE_INFINITY;

  function queueOf(pool: string): Queue {
    const known = queues.get(pool);
    const queue = known ?? openQueue(pool);
    queues.delete(pool);
    queues.set(pool, queue);
    const [oldest] = queues.keys();
    if (queues.size > MAX_QUEUES && oldest !== undefined) drop(oldest);
    return queue;
  }

  function openQueue(pool: string): Queue {
    const queue = new Queue(pool, {
      connection: redis,
      prefix: keys.queuePrefix(pool),
      skipWaitingForReady: true,
      // Operators' tools read the stream of events; nothing of ours does.
      streams: { events: { maxLen: 1_000 } },
    });
    queue.on('error', (error) => {
      if (performance.now() - loggedMs < LOG_EVERY_MS) return;
      loggedMs = performance.now();
      log.warn({ pool, error: messageOf(error) }, 'queue connection failed');
    });
    return queue;
  }

  function drop(pool: string): void {
    const queue = queues.get(pool);
    queues.delete(pool);
    notedAtMs.delete(pool);
    queue?.close().catch(() => {});
  }

  /** A note that is lost is made again; nothing but figures rests on it. */
  function note(pool: string): void {
    const now = Date.now();
    if (now - (notedAtMs.get(pool) ?? 0) < NOTE_EVERY_MS) return;
    notedAtMs.set(pool, now);
    redis
      .pipeline()
      .zadd(keys.pools, now, pool)
      .pexpire(keys.pools, POOL_KEPT_MS)
      .exec()
      .catch(() => notedAtMs.delete(pool));
  }

  /** One call with a bounded wait. A queue that failed is made anew: its first contact with Redis may be what failed. */
  async function call<T>(pool: string, ask: (queue: Queue) => Promise<T>): Promise<T> {
    if (redis.status !== 'ready') throw unavailable(new Error(`the connection is ${redis.status}`));
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${CALL_TIMEOUT_MS} ms`)), CALL_TIMEOUT_MS);
    });
    try {
      return await Promise.race([ask(queueOf(pool)), limit]);
    } catch (error) {
      drop(pool);
      throw unavailable(error);
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    async add(pool, job, { priority, delayMs }) {
      note(pool);
      await call(pool, (queue) => queue.add(jobName(job), job, jobOptions(job, priority, delayMs)));
    },
    async state(pool, commandId) {
      const state = await call(pool, (queue) => queue.getJobState(commandId));
      return STATES[state] ?? 'missing';
    },
    async position(pool, commandId) {
      // Every job of ours has a priority, so this is the order in which they are taken.
      const rank = await call(pool, (queue) => redis.zrank(queue.toKey('prioritized'), commandId));
      return rank === null ? undefined : rank + 1;
    },
    async remove(pool, commandId) {
      await call(pool, (queue) => queue.remove(commandId));
    },
    async close() {
      for (const pool of [...queues.keys()]) drop(pool);
    },
  };
}

const unavailable = (cause: unknown) =>
  new AppError('REDIS_UNAVAILABLE', `the queue does not answer: ${messageOf(cause)}`, { cause });
