/** Takes the jobs of one pool and has their commands run. Says nothing about commands: the claim decides (CO2). */
import { Worker } from 'bullmq';
import type { JobData, Log, QueueConsumer } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { CommandId } from '../protocol/ids.js';
import type { Cluster, Redis } from '../redis/connections.js';
import type { Keys } from '../redis/keys.js';
import { readJob, workerSettings } from './job.js';

/** `close` of BullMQ waits without limit while Redis is away. */
const CLOSE_TIMEOUT_MS = 2_000;
const LOG_EVERY_MS = 30_000;

/**
 * BullMQ's pause lets a fetch that waits for a job take one more: a draining worker would start a command only to end it.
 * Here the wait is broken off, and what it may still bring is left for others.
 */
class PausableWorker extends Worker<unknown, void> {
  async stopTaking(): Promise<void> {
    await this.pause(true);
    await this.backend.disconnectBlocking(false);
  }

  protected override async moveToActive(token: string, name?: string) {
    if (this.isPaused()) return undefined as never;
    return super.moveToActive(token, name);
  }
}

/** @param options.redis a connection of role `queue-worker`, which the caller closes after `close` */
export function createQueueConsumer(options: {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly pool: string;
  readonly concurrency: number;
  readonly log: Log;
  /** Resolves when the command is over here. A rejection fails the job and nothing else. */
  readonly run: (commandId: CommandId, job: JobData) => Promise<void>;
}): QueueConsumer {
  const { redis, keys, pool, concurrency, log, run } = options;
  let loggedMs = Number.NEGATIVE_INFINITY;
  let closing: Promise<void> | undefined;

  const worker = new PausableWorker(
    pool,
    async (job) => {
      const data = readJob(job.id, job.data);
      if (data === undefined) throw new Error('not a job of Homing');
      await run(data.commandId, data);
    },
    { connection: redis, prefix: keys.queuePrefix(pool), concurrency, ...workerSettings },
  );
  // Outages, and locks that could not be renewed because of them: hints at most (Q3).
  worker.on('error', (error) => {
    if (performance.now() - loggedMs < LOG_EVERY_MS) return;
    loggedMs = performance.now();
    log.warn({ pool, error: messageOf(error) }, 'queue connection failed');
  });
  worker.on('failed', (job, error) => {
    log.warn({ pool, jobId: job?.id, error: messageOf(error) }, 'job failed');
  });

  async function close(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, CLOSE_TIMEOUT_MS);
    });
    // By force: whoever closes has waited for the running commands already.
    await Promise.race([worker.close(true).catch(() => {}), limit]);
    clearTimeout(timer);
  }

  return {
    pause: () => worker.stopTaking().catch((error) => log.debug({ pool, error: messageOf(error) }, 'pause')),
    close() {
      closing ??= close();
      return closing;
    },
  };
}
