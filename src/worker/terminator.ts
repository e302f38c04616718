/**
 * Ends the processes of a command: by a signal with a kill grace, then by SIGKILL, verified (CO5). A later, stronger wish
 * during the grace acts at once.
 */
import type { KillRequest } from '../domain/ports.js';
import { type ProcessGroup, signalName } from './group.js';

export type KillWish = Pick<KillRequest, 'signal' | 'graceMs'>;

export interface Terminator {
  /** The first wish begins; a later one that differs signals again and may shorten the grace, never lengthen it. */
  wish(wish: KillWish): void;
  /** Resolves when the group is gone or SIGKILL did not help. @returns members left */
  finished(): Promise<number>;
}

export function createTerminator(group: ProcessGroup): Terminator {
  let deadlineMs = Number.POSITIVE_INFINITY;
  let last: KillWish | undefined;
  let ending: Promise<number> | undefined;

  async function end(): Promise<number> {
    for (;;) {
      const left = await group.gone(Math.min(100, Math.max(0, deadlineMs - performance.now())));
      if (left === 0) return 0;
      if (performance.now() >= deadlineMs) return group.kill();
    }
  }

  return {
    wish(wish) {
      if (last?.signal === wish.signal && last.graceMs === wish.graceMs) return;
      last = wish;
      deadlineMs = Math.min(deadlineMs, performance.now() + wish.graceMs);
      group.signal(signalName(wish.signal));
      ending ??= end();
    },
    finished: () => ending ?? Promise.resolve(0),
  };
}
