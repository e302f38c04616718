/**
 * Commands that ended here a moment ago, with their spools: if Redis goes back to data in which they still run, they are
 * ended again, with the same entries (FAULTS L3). Bounded in number and time.
 */
import type { CommandRestored } from '../domain/ports.js';
import type { CommandId } from '../protocol/ids.js';

export interface EndedRun {
  readonly commandId: CommandId;
  sayAgain(): Promise<CommandRestored>;
  /** Compares the log with what is kept and repairs it. */
  recheck(): void;
  close(): void;
}

export interface KeptRuns {
  /** Closes it when its time is over. */
  keep(run: EndedRun): void;
  has(commandId: CommandId): boolean;
  /** Another Redis answers: what it says about each is compared. Rejects when Redis does not answer. */
  recheck(): Promise<void>;
  close(): void;
}

/** Each holds at most 4 MiB, most of them a few entries. */
const MAX_KEPT = 256;

export function createKeptRuns(keepMs: number): KeptRuns {
  const kept = new Map<CommandId, { readonly run: EndedRun; readonly timer: NodeJS.Timeout }>();

  function drop(commandId: CommandId): void {
    const one = kept.get(commandId);
    if (one === undefined) return;
    kept.delete(commandId);
    clearTimeout(one.timer);
    one.run.close();
  }

  async function compare(run: EndedRun): Promise<void> {
    const { type } = await run.sayAgain();
    // Still running there, by this claim: the end was lost. `ended`: it was not. `lost`: somebody else has ended it.
    if (type === 'held' || type === 'restored') run.recheck();
    else if (type === 'lost') drop(run.commandId);
  }

  return {
    keep(run) {
      drop(run.commandId);
      const timer = setTimeout(() => drop(run.commandId), keepMs);
      timer.unref();
      kept.set(run.commandId, { run, timer });
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
