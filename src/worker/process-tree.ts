/**
 * All processes of one command: signals to them, and proof that they are gone (CO5).
 *
 * What belongs to a command is decided by its containment; see `containment-group.ts` and `containment-room.ts`. The
 * processes that make up a sandbox are never members: they get no signal while a kill grace runs.
 */
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

export interface Member {
  readonly pid: number;
  readonly name: string;
}

export interface ProcessTree {
  /** Sends it to every member. */
  signal(name: NodeJS.Signals): Promise<void>;
  /** Living ones; those that ended and wait to be reaped do not count. */
  members(): Promise<readonly Member[]>;
  /** SIGKILL to all, sent before this returns, then verified. @returns who is still there after a while; mostly nobody */
  kill(): Promise<readonly Member[]>;
  /** To be called now and then while the command runs. */
  tick(): void;
}

const LOOK_MS = { first: 10, last: 100 };

/** Resolves with the members left: none as soon as all are gone, some when `withinMs` has passed. */
export async function treeGone(tree: ProcessTree, withinMs: number): Promise<readonly Member[]> {
  const deadlineMs = performance.now() + withinMs;
  for (let waitMs = LOOK_MS.first; ; waitMs = Math.min(LOOK_MS.last, waitMs * 1.5)) {
    const left = await tree.members();
    const leftMs = deadlineMs - performance.now();
    if (left.length === 0 || leftMs <= 0) return left;
    await sleep(Math.min(waitMs, leftMs));
  }
}

/** The name of a signal with or without SIG; SIGTERM for what this system does not know. */
export function signalName(name: string): NodeJS.Signals {
  const full = name.startsWith('SIG') ? name : `SIG${name}`;
  return full in constants.signals ? (full as NodeJS.Signals) : 'SIGTERM';
}

/** @param id of a process, or minus that of a group @returns whether someone is there, also one we may not signal */
export function sendSignal(id: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(id, signal);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
