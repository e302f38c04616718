/**
 * A shell that stands in a room ahead of its command, with pipes for its output: it has passed everything on the way in before
 * anybody waits, and the worker, which is large, need not be forked. What it is to become it reads from its stdin, a pipe, see
 * `process-launch.ts`.
 *
 * The pipes were made in the room (`room-keeper.pl`); they are opened here by the descriptors of the shell in /proc.
 */
import { closeSync, constants, openSync } from 'node:fs';
import { Socket } from 'node:net';
import { constants as system } from 'node:os';
import type { Readable } from 'node:stream';
import type { Exit } from '../domain/outcome.js';
import { REPORT_FD } from './process-launch.js';
import { sendSignal } from './process-tree.js';
import { SCRIPT_FD } from './script-file.js';

export interface Standby {
  readonly pid: number;
  /** Of what it became. A room that is gone counts as SIGKILL. Never rejects. */
  readonly exited: Promise<Exit>;
  /** What it says on its way to the program. */
  readonly report: Readable;
  /** Where its stdout and stderr are read; reading does not block. */
  readonly out: number;
  readonly err: number;
  /** Whether it still stands there. */
  readonly ready: boolean;
  /**
   * Where what the program reads from its stdin is written, should it be told to have one; to be called before that, once.
   * Writing does not block. @throws when its descriptor may not be opened
   */
  openInput(): number;
  /** From here on `out`, `err` and the input are the caller's. */
  take(): void;
  /** What it is to do, once. */
  tell(script: string): void;
  kill(): void;
  /** Lets go of one that was not taken, which ends it. Idempotent. */
  close(): void;
}

const READ = constants.O_RDONLY | constants.O_NONBLOCK;
const WRITE = constants.O_WRONLY | constants.O_NONBLOCK;
const MAX_REPORT = 1_000;

/** @param pid of a shell that stands in a room @throws when its descriptors may not be opened */
export function openStandby(pid: number): Standby {
  const opened: number[] = [];
  const open = (fd: number, flags: number): number => {
    const mine = openSync(`/proc/${pid}/fd/${fd}`, flags);
    opened.push(mine);
    return mine;
  };
  try {
    const script = open(0, WRITE);
    return standing(pid, { script, out: open(1, READ), err: open(2, READ), report: open(REPORT_FD, READ) });
  } catch (error) {
    opened.forEach(closeSync);
    throw error;
  }
}

function standing(pid: number, fds: { script: number; out: number; err: number; report: number }): Standby {
  const { out, err } = fds;
  const control = new Socket({ fd: fds.script, readable: false, writable: true });
  const report = new Socket({ fd: fds.report, readable: true, writable: false });
  // Their ends are told by `exited`.
  control.on('error', () => {});
  report.on('error', () => {});
  let state: 'standing' | 'taken' | 'over' = 'standing';
  let ended = false;
  let said = '';
  let input: number | undefined;
  const exited = new Promise<Exit>((resolve) => {
    const end = (exit: Exit) => {
      ended = true;
      resolve(exit);
      control.destroy();
      report.destroy();
    };
    report.on('data', (bytes: Buffer) => {
      if (said.length < MAX_REPORT) said += bytes.toString('latin1');
      const [, status] = /^exit (\d+)\n/m.exec(said) ?? [];
      if (status !== undefined) end(exitOf(Number(status)));
    });
    report.once('close', () => end({ code: null, signal: 'SIGKILL' }));
  });
  // It does not keep a worker from ending: rooms are closed then.
  control.unref();
  return {
    pid,
    exited,
    report,
    out,
    err,
    get ready() {
      return state === 'standing' && !ended;
    },
    openInput() {
      input = openSync(`/proc/${pid}/fd/${SCRIPT_FD}`, WRITE);
      return input;
    },
    take() {
      state = 'taken';
    },
    tell: (script) => void control.end(script),
    kill: () => void (ended || sendSignal(pid, 'SIGKILL')),
    close() {
      if (state !== 'standing') return;
      state = 'over';
      if (!ended) sendSignal(pid, 'SIGKILL');
      control.destroy();
      report.destroy();
      closeSync(out);
      closeSync(err);
      if (input !== undefined) closeSync(input);
    },
  };
}

/** @param status as wait(2) has it */
function exitOf(status: number): Exit {
  const number = status & 0x7f;
  if (number === 0) return { code: status >> 8, signal: null };
  const [name = `SIG${number}`] = Object.entries(system.signals).find(([, other]) => other === number) ?? [];
  return { code: null, signal: name };
}
