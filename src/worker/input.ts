/** What comes from outside to a running command: its stdin and the size of its terminal. */
import type { ClaimCheck } from '../domain/ports.js';
import type { RunningProcess } from './process.js';
import type { Run } from './run.js';
import { createStdinFeeder } from './stdin.js';

export interface Input {
  /** What is stored now; called again and again, mostly with nothing new. */
  update(check: Pick<ClaimCheck, 'input' | 'size'>): void;
  close(): void;
}

export function createInput({ ports, commandId, claimId, claim }: Run, { input, pty }: RunningProcess): Input {
  const { store, log, chance } = ports;
  const random = () => chance.random();
  const feeder =
    input === undefined ? undefined : createStdinFeeder({ store, log, random }, { commandId, claimId, sink: input });
  let { cols, rows } = claim.spec.pty ?? { cols: 0, rows: 0 };
  return {
    update({ input: stored, size }) {
      if (stored !== undefined) feeder?.wake(stored);
      if (size === undefined || (size.cols === cols && size.rows === rows)) return;
      ({ cols, rows } = size);
      pty?.resize(size);
    },
    close: () => feeder?.close(),
  };
}
