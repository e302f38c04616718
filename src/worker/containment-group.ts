/**
 * Containment `group`, for every host: a command is its process group, the descendants of its leader, and whoever carries
 * its id in the environment. When the worker dies a helper that outlives it ends what it knows of; see
 * `containment-lifeline.ts`. What gets away is written in docs/containment.md.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { environmentOf, everyProcess, type ProcessEntry, readProcess } from './process-table.js';
import { type Member, type ProcessTree, sendSignal } from './process-tree.js';

/** How long to wait after SIGKILL: longer only for processes stuck in the kernel. */
const KILLED_WITHIN_MS = 3_000;
const AGAIN_MS = 15;

/**
 * A group id can not be given to another process while the group has a member; once all were seen gone it is not used again.
 *
 * @param leader also the id of its group
 * @param mark `NAME=value` that is in the environment of what the command starts, unless it clears it
 */
export function groupTree(leader: number, mark: string): ProcessTree {
  const bornTicks = readProcess(leader)?.startTicks ?? 0;
  /** Whom a look found to be ours stays ours, also without its parent. By pid and start. */
  const known = new Map<number, number>();
  let over = false;

  async function look(): Promise<ProcessEntry[]> {
    const all = (await everyProcess()).filter(({ startTicks }) => startTicks >= bornTicks);
    const parents = new Map(all.map(({ pid, parent }) => [pid, parent]));
    // A process with the leader's pid that is not the leader: the group ended, and its id is another's now.
    const reused = all.some(({ pid, startTicks }) => pid === leader && startTicks !== bornTicks);
    const descends = (pid: number): boolean => {
      for (let at = parents.get(pid), depth = 0; at !== undefined && at > 1 && depth < 1_000; depth++) {
        if ((at === leader && !reused) || known.has(at)) return true;
        at = parents.get(at);
      }
      return false;
    };
    const ours = all.filter(
      ({ pid, group, startTicks }) =>
        pid !== process.pid &&
        ((group === leader && !reused) ||
          (known.get(pid) === startTicks && startTicks > 0) ||
          descends(pid) ||
          environmentOf(pid).includes(mark)),
    );
    known.clear();
    for (const { pid, startTicks } of ours) known.set(pid, startTicks);
    return ours.filter(({ zombie }) => !zombie);
  }

  async function members(): Promise<ProcessEntry[]> {
    if (over) return [];
    return look();
  }

  /** The group at once, before anyone can leave it; then those who had. */
  async function signal(name: NodeJS.Signals): Promise<void> {
    if (over) return;
    sendSignal(-leader, name);
    for (const { pid, group } of await look()) if (group !== leader) sendSignal(pid, name);
  }

  return {
    signal,
    members,
    async kill() {
      const deadlineMs = performance.now() + KILLED_WITHIN_MS;
      for (;;) {
        await signal('SIGKILL');
        const left = await members();
        if (left.length === 0) {
          over = true;
          return [];
        }
        if (performance.now() >= deadlineMs) return left satisfies readonly Member[];
        await sleep(AGAIN_MS);
      }
    },
    tick() {},
  };
}
