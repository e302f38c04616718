/** The queues of all pools as an operator's board reads them. Reading only: nothing here adds or removes a job. */
import { Queue } from 'bullmq';
import type { Cluster, Redis } from '../redis/connections.js';
import type { Keys } from '../redis/keys.js';
import { POOL_KEPT_MS } from './job.js';

/** Figures of one pool. */
export interface PoolDepth {
  readonly pool: string;
  /** Jobs that wait for a worker, prioritised ones included; delayed ones are not waiting yet. */
  readonly waiting: number;
  /** Milliseconds since the job at the head was added; 0 when none waits. */
  readonly oldestWaitMs: number;
}

export interface BoardQueues {
  /** The queue of a pool, for BullMQ's own tools. At most `MAX_POOLS` are kept open. */
  queueOf(pool: string): Queue;
  /** Pools that jobs were added to within a week, the latest first, at most as many as are shown. @throws when Redis does not answer */
  pools(): Promise<readonly string[]>;
  /** @throws when Redis does not answer */
  depth(pool: string): Promise<PoolDepth>;
  close(): Promise<void>;
}

const MAX_POOLS = 256;

/** @param options.redis a connection of role `queue-producer`, which the caller closes after `close` */
export function createBoardQueues(options: { readonly redis: Redis | Cluster; readonly keys: Keys }): BoardQueues {
  const { redis, keys } = options;
  const queues = new Map<string, Queue>();

  function queueOf(pool: string): Queue {
    const known = queues.get(pool);
    if (known !== undefined) return known;
    if (queues.size >= MAX_POOLS) throw new Error(`the board shows at most ${MAX_POOLS} pools`);
    const queue = new Queue(pool, { connection: redis, prefix: keys.queuePrefix(pool), skipWaitingForReady: true });
    // Told by the connection itself, once a second at most.
    queue.on('error', () => {});
    queues.set(pool, queue);
    return queue;
  }

  return {
    queueOf,
    async pools() {
      await redis.zremrangebyscore(keys.pools, '-inf', Date.now() - POOL_KEPT_MS);
      return redis.zrevrange(keys.pools, 0, MAX_POOLS - 1);
    },
    async depth(pool) {
      const queue = queueOf(pool);
      const counts = await queue.getJobCounts('waiting', 'prioritized');
      const heads = await Promise.all([queue.getWaiting(0, 0), queue.getPrioritized(0, 0)]);
      const oldest = Math.min(...heads.flat().map((job) => job.timestamp));
      return {
        pool,
        waiting: (counts.waiting ?? 0) + (counts.prioritized ?? 0),
        oldestWaitMs: Number.isFinite(oldest) ? Math.max(0, Date.now() - oldest) : 0,
      };
    },
    async close() {
      await Promise.allSettled([...queues.values()].map((queue) => queue.close()));
      queues.clear();
    },
  };
}
