/** Everything that can end a running command, each told to the one race: the first cause decides (CO8). */
import { setTimeout as sleep } from 'node:timers/promises';
import type { EndCause, EndRace, Exit } from '../domain/outcome.js';
import { createInput } from './input.js';
import type { Output } from './output.js';
import type { RunningProcess } from './process.js';
import { causeOfExit, type MemoryKills, watchResources } from './resources.js';
import type { Run } from './run.js';
import type { KillWish, Terminator } from './terminator.js';

/** How often leftovers that are kept are looked for. */
const KEPT_LOOK_MS = 250;

/** Lets every possible ending settle the race. */
export function watchEndings(
  run: Run,
  process: RunningProcess,
  output: Output,
  race: EndRace,
  terminator: Terminator,
  memory: MemoryKills,
) {
  const { claim, control, publisher, options } = run;
  const { runMs, idleMs, graceMs = options.killGraceMs } = claim.spec.timeouts;
  const resources = claim.spec.resources ?? {};
  const timers: NodeJS.Timeout[] = [];
  let closed = false;

  /** Ends the process for a cause, unless another came first; a second kill may still be a stronger one. */
  const endFor = (cause: EndCause, wish: KillWish) => {
    const won = race.settle(cause);
    if (won || race.cause?.type !== 'exit') terminator.wish(wish);
  };
  const byDefault = { signal: 'SIGTERM', graceMs };

  // Kept leftovers are the command: until they are gone nothing has ended.
  const over = claim.spec.leftovers === 'keep' ? process.exited.then(untilNobodyIsLeft) : process.exited;
  void over.then(async (exit) => race.settle((await process.notStarted()) ?? causeOfExit(exit, resources, memory)));

  async function untilNobodyIsLeft(exit: Exit): Promise<Exit> {
    while (!closed && (await process.tree.members()).length > 0) await sleep(KEPT_LOOK_MS, undefined, { ref: false });
    return exit;
  }

  const watching = new AbortController();
  void watchResources(process.tree, resources, watching.signal).then((cause) => {
    if (cause !== undefined) endFor(cause, byDefault);
  });
  run.onOutputLimit(() => endFor({ type: 'output_limit', limitBytes: resources.outputBytes ?? 0 }, byDefault));

  if (runMs !== undefined) {
    timers.push(setTimeout(() => endFor({ type: 'timed_out', limitMs: runMs }, byDefault), runMs));
  }
  if (idleMs !== undefined) {
    const lookMs = Math.max(10, Math.min(1_000, idleMs / 4));
    const look = () => {
      if (performance.now() - output.lastByteAtMs >= idleMs)
        endFor({ type: 'idle_timeout', limitMs: idleMs }, byDefault);
    };
    timers.push(setInterval(look, lookMs));
  }

  const drain = () => endFor({ type: 'kill', request: { ...byDefault, reason: 'worker_drained' } }, byDefault);
  control.drained.addEventListener('abort', drain);
  if (control.drained.aborted) drain();

  let loseClaim: (lost: 'claim_lost') => void = () => {};
  const claimLost = new Promise<'claim_lost'>((resolve) => {
    loseClaim = resolve;
  });
  const lose = () => {
    // At once, whatever else is being waited for: somebody may have told the world that this command is lost.
    void process.tree.kill();
    publisher.close();
    loseClaim('claim_lost');
  };
  const input = createInput(run, process);
  const watch = run.ports.claims.watch(run.commandId, run.claimId, {
    onKill: (request) => endFor({ type: 'kill', request }, request),
    onLost: lose,
    sayAgain: () => run.record.sayAgain(publisher.ownerSessionId),
    onInput: input.update,
    onTick() {
      publisher.tick();
      process.tree.tick();
    },
    onServerChanged: publisher.recheck,
  });
  void publisher.done.then((end) => {
    if (end !== 'ended' && !closed) lose();
  });

  return {
    claimLost,
    close() {
      closed = true;
      watching.abort();
      for (const timer of timers) clearTimeout(timer);
      control.drained.removeEventListener('abort', drain);
      watch.close();
      input.close();
    },
  };
}
