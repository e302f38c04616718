/**
 * How a command looks in BullMQ, and the settings that keep the queue from running anything twice.
 *
 * What BullMQ thinks of a job changes nothing for its command (FAULTS Q3): only claim, append and the reconciler do. So a
 * job is never tried again, a stalled one fails, and every one that is over is kept for operators only, bounded.
 */
import type { JobsOptions, WorkerOptions } from 'bullmq';
import type { JobData } from '../domain/ports.js';
import { parseCommandId } from '../protocol/ids.js';

/** A pool that got no job for so long is not shown any more. */
export const POOL_KEPT_MS = 7 * 24 * 3_600_000;

/** What operators may look back at: bounded by number and age (age is applied when another job ends). */
export const KEEP_FINISHED = { count: 1_000, age: 24 * 3_600 };

/** `<program> · <conversation>`: what an operator reads in a list of jobs. */
export const jobName = (job: JobData): string => `${job.program} · ${job.conversation}`;

export const jobOptions = (job: JobData, priority: number, delayMs: number): JobsOptions => ({
  // Our id as theirs: an add whose reply was lost, or that is repeated, makes no second job.
  jobId: job.commandId,
  attempts: 1,
  priority,
  delay: delayMs,
  removeOnComplete: KEEP_FINISHED,
  removeOnFail: KEEP_FINISHED,
});

/** On every worker of a queue, since each of them judges stalled jobs. Measured: a dead worker's job fails after 15 s. */
export const workerSettings = {
  maxStalledCount: 0,
  maxStartedAttempts: 1,
  lockDuration: 10_000,
  stalledInterval: 5_000,
  removeOnComplete: KEEP_FINISHED,
  removeOnFail: KEEP_FINISHED,
} as const satisfies Partial<WorkerOptions>;

/** The job's data if it is one of ours; undefined for what somebody else put into the queue. */
export function readJob(id: string | undefined, data: unknown): JobData | undefined {
  const commandId = parseCommandId(id);
  if (commandId === undefined || typeof data !== 'object' || data === null) return undefined;
  return { ...(data as JobData), commandId };
}
