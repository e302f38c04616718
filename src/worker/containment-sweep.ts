/**
 * Finds what dead workers of this host left behind, by the mark that every command of a worker carries. A worker that starts
 * ends it.
 *
 * A mark names the worker's process by pid, start time and pid namespace, so that neither a pid that was given out again nor
 * a worker in another container is taken for a dead one.
 */
import { environmentOf, everyProcess, pidNamespace, readProcess } from './process-table.js';
import { sendSignal } from './process-tree.js';

const MARK = 'HOMING_WORKER_MARK';

export interface Mark {
  readonly name: string;
  readonly value: string;
}

/** What this process puts into the environment of its commands. `id`: unique for this incarnation. */
export function ownMark(id: string): Mark {
  const startTicks = readProcess(process.pid)?.startTicks ?? 0;
  return { name: MARK, value: [id, process.pid, startTicks, pidNamespace()].join(',') };
}

/** @returns how many processes were killed */
export const sweepLeftovers = (): Promise<number> => countLeftovers((pid) => sendSignal(pid, 'SIGKILL'));

/** @param counts called for each while it is known to be one; whether it counts */
export async function countLeftovers(counts: (pid: number) => boolean = () => true): Promise<number> {
  const here = pidNamespace();
  if (here === '') return 0; // No /proc: nothing is known of others.
  let count = 0;
  for (const { pid } of await everyProcess()) {
    const mark = environmentOf(pid).find((variable) => variable.startsWith(`${MARK}=`));
    if (mark !== undefined && isOfDeadWorker(mark.slice(MARK.length + 1), here) && counts(pid)) count += 1;
  }
  return count;
}

function isOfDeadWorker(value: string, here: string): boolean {
  const [, pid, startTicks, namespace] = value.split(',');
  if (namespace !== here || !/^\d+$/.test(pid ?? '')) return false;
  return readProcess(Number(pid))?.startTicks !== Number(startTicks);
}
