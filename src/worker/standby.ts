/**
 * A shell that stands in a room ahead of its command, with pipes for its output: it has passed everything on the way in
 * (nsenter, the user, a session of its own) before anybody waits, and the worker, which is large, need not be forked then.
 * What it is to become it reads from its stdin, a pipe that nobody else can read, see `process-launch.ts`.
 *
 * Measured: from the wish to the program 9 to 20 ms without, about 2 ms with one.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Exit } from '../domain/outcome.js';
import { SHELL } from './containment-room.js';
import { closePipe, type Pipe, type PipePool } from './pipes.js';
import { REPORT_FD } from './process-launch.js';

export interface Standby {
  readonly child: ChildProcess;
  readonly exited: Promise<Exit>;
  readonly out: Pipe;
  readonly err: Pipe;
  /** Whether it still stands there. */
  readonly ready: boolean;
  /** From here on the pipes are the caller's. */
  take(): void;
  /** What it is to do, once. @throws Error when it does not take it */
  tell(script: string): Promise<void>;
  /** Lets go of what was not taken. It ends with its room. Idempotent. */
  close(): void;
}

const POLL_MS = 1;
const TOLD_WITHIN_MS = 5_000;

/** @param enter of the room, and everything after it that needs the worker's rights */
export async function standIn(enter: readonly string[], pool: PipePool): Promise<Standby> {
  const pipes: Pipe[] = [];
  try {
    const [out, err, control] = [await pool.take(), await pool.take(), await pool.takeInput()];
    pipes.push(out, err, control);
    const [file = '', ...args] = [...enter, SHELL];
    const child = spawn(file, args, {
      cwd: '/',
      env: {},
      stdio: [control.readFd, out.writeFd, err.writeFd, 'ignore', 'pipe'],
      detached: true,
    });
    const exited = new Promise<Exit>((resolve) => {
      child.once('exit', (code, signal) => resolve({ code, signal }));
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      // Stays: a later error, as of a failed kill, must not end the worker.
      child.on('error', reject);
    });
    child.stdio[REPORT_FD]?.on('error', () => {}); // Its end is told by `exit`.
    closeSync(control.readFd);
    return standingShell(child, exited, out, err, control.writeFd);
  } catch (error) {
    pipes.forEach(closePipe);
    throw error;
  }
}

function standingShell(child: ChildProcess, exited: Promise<Exit>, out: Pipe, err: Pipe, controlFd: number): Standby {
  let state: 'standing' | 'taken' | 'over' = 'standing';
  let told = false;
  const endControl = () => {
    if (!told) closeSync(controlFd);
    told = true;
  };
  return {
    child,
    exited,
    out,
    err,
    get ready() {
      return state === 'standing' && child.exitCode === null && child.signalCode === null;
    },
    take() {
      state = 'taken';
    },
    async tell(script) {
      try {
        await writeAll(controlFd, Buffer.from(script));
      } finally {
        endControl();
      }
    },
    close() {
      if (state !== 'standing') return;
      state = 'over';
      endControl();
      closePipe(out);
      closePipe(err);
    },
  };
}

/** A pipe takes 64 KiB at once, less on a host that has very many of them. */
async function writeAll(fd: number, bytes: Uint8Array): Promise<void> {
  const deadlineMs = performance.now() + TOLD_WITHIN_MS;
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN' || performance.now() > deadlineMs) throw error;
      await sleep(POLL_MS);
    }
  }
}
