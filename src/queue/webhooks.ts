/**
 * The queue of completion webhooks. At least once: a job is tried again with growing, jittered pauses for about an hour,
 * and what is known for sure never to work is not. Operators see the last of both kinds.
 */
import { Queue, UnrecoverableError, Worker } from 'bullmq';
import type { Log, WebhookQueue } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import { type CommandId, parseCommandId } from '../protocol/ids.js';
import type { Cluster, Redis } from '../redis/connections.js';
import type { Keys } from '../redis/keys.js';
import { KEEP_FINISHED } from './job.js';

/** No pool can have this name: a dot is not allowed there. */
export const WEBHOOK_QUEUE = 'homing.webhooks';
const ATTEMPTS = 12;
/** 1 s, 2 s, 4 s … about 34 min before the last. */
const BACKOFF = { type: 'exponential', delay: 1_000, jitter: 0.5 } as const;
const CALL_TIMEOUT_MS = 5_000;
const CLOSE_TIMEOUT_MS = 2_000;
const LOG_EVERY_MS = 30_000;

/** How one attempt went. `refused`: no further one can go better. */
export type Delivered = { readonly type: 'done' } | { readonly type: 'failed' | 'refused'; readonly why: string };

function quietly(log: Log): (error: unknown) => void {
  let loggedMs = Number.NEGATIVE_INFINITY;
  return (error) => {
    if (performance.now() - loggedMs < LOG_EVERY_MS) return;
    loggedMs = performance.now();
    log.warn({ error: messageOf(error) }, 'webhook queue connection failed');
  };
}

/** @param options.redis a connection of role `queue-producer`, which the caller closes after `close` */
export function createWebhookQueue(options: {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly log: Log;
}): WebhookQueue {
  const { redis, keys, log } = options;
  let queue: Queue | undefined;

  function open(): Queue {
    const made = new Queue(WEBHOOK_QUEUE, {
      connection: redis,
      prefix: keys.queuePrefix(WEBHOOK_QUEUE),
      skipWaitingForReady: true,
      streams: { events: { maxLen: 1_000 } },
    });
    made.on('error', quietly(log));
    return made;
  }

  return {
    async add(commandId) {
      if (redis.status !== 'ready') throw new AppError('REDIS_UNAVAILABLE', `the connection is ${redis.status}`);
      queue ??= open();
      let timer: NodeJS.Timeout | undefined;
      const limit = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error(`no answer within ${CALL_TIMEOUT_MS} ms`)), CALL_TIMEOUT_MS);
      });
      try {
        // One job for each command, however often it is asked for.
        const job = { jobId: `hook-${commandId}`, attempts: ATTEMPTS, backoff: BACKOFF };
        const keep = { removeOnComplete: KEEP_FINISHED, removeOnFail: KEEP_FINISHED };
        await Promise.race([queue.add('webhook', { v: 1, commandId }, { ...job, ...keep }), limit]);
      } catch (error) {
        // A queue whose first contact failed stays failed.
        queue?.close().catch(() => {});
        queue = undefined;
        throw new AppError('REDIS_UNAVAILABLE', `the queue does not answer: ${messageOf(error)}`, { cause: error });
      } finally {
        clearTimeout(timer);
      }
    },
    async close() {
      queue?.close().catch(() => {});
      queue = undefined;
    },
  };
}

/** @param options.redis a connection of role `queue-worker`, which the caller closes after `close` */
export function createWebhookConsumer(options: {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly log: Log;
  readonly concurrency: number;
  readonly deliver: (commandId: CommandId) => Promise<Delivered>;
}): { close(): Promise<void> } {
  const { redis, keys, log, concurrency, deliver } = options;
  const worker = new Worker<unknown, void>(
    WEBHOOK_QUEUE,
    async ({ data }) => {
      const commandId = parseCommandId((data as { commandId?: unknown } | null)?.commandId);
      if (commandId === undefined) throw new UnrecoverableError('not a job of Homing');
      const delivered = await deliver(commandId);
      if (delivered.type === 'refused') throw new UnrecoverableError(delivered.why);
      if (delivered.type === 'failed') throw new Error(delivered.why);
    },
    {
      connection: redis,
      prefix: keys.queuePrefix(WEBHOOK_QUEUE),
      concurrency,
      // Sending twice is allowed, so a job whose process died is taken up again.
      maxStalledCount: ATTEMPTS,
      lockDuration: 30_000,
      removeOnComplete: KEEP_FINISHED,
      removeOnFail: KEEP_FINISHED,
    },
  );
  worker.on('error', quietly(log));
  let closing: Promise<void> | undefined;

  async function close(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, CLOSE_TIMEOUT_MS);
    });
    // By force: an attempt that is cut off is made again by another node.
    await Promise.race([worker.close(true).catch(() => {}), limit]);
    clearTimeout(timer);
  }

  return {
    close() {
      closing ??= close();
      return closing;
    },
  };
}
