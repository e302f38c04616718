/**
 * Commands that ended here a moment ago, with their spools: if Redis goes back to data in which they still run, they are
 * ended again, with the same entries (FAULTS L3). Bounded in number, and in time that counts only while Redis answers: a failover may
 * take longer than they are kept, and only who can be asked can say that nothing was lost.
 */
import { fullJitterMs } from '../domain/backoff.js';
import type { CommandRestored } from '../domain/ports.js';
import type { CommandId } from '../protocol/ids.js';

export interface EndedRun {
  readonly commandId: CommandId;
  /** Whether Redis has it as not ended. Rejects when Redis does not answer. */
  isUnfinished(): Promise<boolean>;
  sayAgain(): Promise<CommandRestored>;
  /** Compares the log with what is kept and repairs it. */
  recheck(): void;
  close(): void;
}

export interface KeptRuns {
  /** Closes it when its time is over and Redis says that it has ended. */
  keep(run: EndedRun): void;
  has(commandId: CommandId): boolean;
  /** Another Redis answers: what it says about each is compared. Rejects when Redis does not answer. */
  recheck(): Promise<void>;
  close(): void;
}

/** Each holds at most 4 MiB, most of them a few entries. */
const MAX_KEPT = 256;
const ASK_AGAIN = { baseMs: 1_000, capMs: 5_000 };

export function createKeptRuns(keepMs: number, random: () => number): KeptRuns {
  const kept = new Map<CommandId, { readonly run: EndedRun; timer?: NodeJS.Timeout }>();

  function drop(commandId: CommandId): void {
    const one = kept.get(commandId);
    if (one === undefined) return;
    kept.delete(commandId);
    clearTimeout(one.timer);
    one.run.close();
  }

  /** @returns whether Redis has an end of it */
  async function compare(run: EndedRun): Promise<boolean> {
    const { type } = await run.sayAgain();
    // Still running there, by this claim: the end was lost. `ended`: it was not. `lost`: somebody else has ended it.
    if (type === 'held' || type === 'restored') run.recheck();
    else if (type === 'lost') drop(run.commandId);
    return type === 'ended' || type === 'lost';
  }

  /**
   * Asks before it says anything: what was removed meanwhile, as by its retention or a quota, must not be given back. After Redis
   * was away a record may be missing because it was lost.
   */
  async function isOver(run: EndedRun, wasAway: boolean): Promise<boolean> {
    if (!wasAway && !(await run.isUnfinished())) return true;
    return compare(run);
  }

  function dropAfter(waitMs: number, commandId: CommandId, attempt: number): void {
    const one = kept.get(commandId);
    if (one === undefined) return;
    one.timer = setTimeout(async () => {
      const over = await isOver(one.run, attempt > 0).catch(() => false);
      // Another run of it may have taken its place meanwhile.
      if (kept.get(commandId) !== one) return;
      if (over) drop(commandId);
      else dropAfter(ASK_AGAIN.baseMs + fullJitterMs(attempt, ASK_AGAIN, random()), commandId, attempt + 1);
    }, waitMs);
    one.timer.unref();
  }

  return {
    keep(run) {
      drop(run.commandId);
      kept.set(run.commandId, { run });
      dropAfter(keepMs, run.commandId, 0);
      const [oldest] = kept.keys();
      if (kept.size > MAX_KEPT && oldest !== undefined) drop(oldest);
    },
    has: (commandId) => kept.has(commandId),
    async recheck() {
      for (const { run } of [...kept.values()]) await compare(run);
    },
    close() {
      for (const commandId of [...kept.keys()]) drop(commandId);
    },
  };
}
