/**
 * Ends the processes of a command: by a signal with a kill grace, then by SIGKILL, verified (CO5). A later, stronger wish
 * during the grace acts at once.
 */
import type { KillRequest } from '../domain/ports.js';
import { type Member, type ProcessTree, signalName, treeGone } from './process-tree.js';

export type KillWish = Pick<KillRequest, 'signal' | 'graceMs'>;

export interface Terminator {
  /** The first wish begins; a later one that differs signals again and may shorten the grace, never lengthen it. */
  wish(wish: KillWish): void;
  /** Resolves when all are gone or SIGKILL did not help; at once when nothing was wished. @returns who is left */
  finished(): Promise<readonly Member[]>;
}

/** How soon a later wish that shortens the grace is noticed. */
const LOOK_AGAIN_MS = 100;

export function createTerminator(tree: ProcessTree): Terminator {
  let deadlineMs = Number.POSITIVE_INFINITY;
  let last: KillWish | undefined;
  let ending: Promise<readonly Member[]> | undefined;

  async function end(): Promise<readonly Member[]> {
    for (;;) {
      const left = await treeGone(tree, Math.min(LOOK_AGAIN_MS, Math.max(0, deadlineMs - performance.now())));
      if (left.length === 0) return left;
      if (performance.now() >= deadlineMs) return tree.kill();
    }
  }

  async function signalThenEnd(name: NodeJS.Signals): Promise<readonly Member[]> {
    await tree.signal(name);
    return end();
  }

  return {
    wish(wish) {
      if (last?.signal === wish.signal && last.graceMs === wish.graceMs) return;
      last = wish;
      deadlineMs = Math.min(deadlineMs, performance.now() + wish.graceMs);
      const name = signalName(wish.signal);
      if (ending === undefined) ending = signalThenEnd(name);
      else void tree.signal(name);
    },
    finished: () => ending ?? Promise.resolve([]),
  };
}
