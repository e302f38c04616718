/** Makes a queued command ours, or learns that it is not (CO2). */
import { setTimeout as sleep } from 'node:timers/promises';
import { fullJitterMs } from '../domain/backoff.js';
import type { ClaimResult, Log } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import type { ClaimId, CommandId } from '../protocol/ids.js';
import type { RunControl, RunOptions, RunPorts } from './run.js';

const CLAIM_BACKOFF = { baseMs: 100, capMs: 1_000 };

/** Asks with the same claim id until there is an answer; undefined when the worker ends before. */
export async function claimCommand(
  { store, presence, containment, chance }: RunPorts,
  { workerId, leaseMs }: RunOptions,
  control: RunControl,
  commandId: CommandId,
  claimId: ClaimId,
  tokenHash: string,
  log: Log,
): Promise<ClaimResult | undefined> {
  for (let attempt = 0; ; attempt++) {
    if (control.abandoned.aborted || control.drained.aborted) return undefined;
    const askedAtMs = performance.now();
    try {
      // Intent before record: whoever judges this worker dead must find the command (S2).
      // Both leave on one socket in this order, so nothing is won by waiting for the first answer.
      const [, claim] = await Promise.all([
        presence.noteWorkerCommand(workerId, commandId),
        store.claim(commandId, claimId, workerId, containment.level, tokenHash),
      ]);
      // An answer that took long may be out of date: this worker may have been judged dead meanwhile.
      if (claim.type === 'refused' || performance.now() - askedAtMs < leaseMs / 2) return claim;
    } catch (error) {
      if (!(error instanceof AppError && error.retryable)) throw error;
      if (attempt === 0) log.warn({ error: messageOf(error) }, 'claim has no answer yet, asking again');
    }
    await sleep(fullJitterMs(attempt, CLAIM_BACKOFF, chance.random()));
  }
}
