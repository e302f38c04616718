/**
 * The process group of a command: signals to all of it, and proof that it is gone (CO5).
 *
 * A group id can not be given to another process while the group has a member; once `gone` was seen it must not be
 * signalled again. Members that made a session of their own are outside; stronger containment is another part's work.
 */
import { readdir, readFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

/** How long to wait for a group after SIGKILL: longer only for processes stuck in the kernel. */
const KILLED_WITHIN_MS = 3_000;
const LOOK_EVERY_MS = 15;

export interface ProcessGroup {
  readonly id: number;
  /** @returns whether there was anyone to signal */
  signal(name: NodeJS.Signals): boolean;
  /** Living members; those that ended and wait to be reaped by their parent do not count. */
  members(): Promise<number>;
  /** Resolves with the members left: 0 as soon as all are gone, more when `withinMs` has passed. */
  gone(withinMs: number): Promise<number>;
  /** SIGKILL to all, verified. @returns how many are still there */
  kill(): Promise<number>;
}

export function processGroup(id: number): ProcessGroup {
  const group: ProcessGroup = {
    id,
    signal: (name) => sendSignal(id, name),
    async members() {
      if (!sendSignal(id, 0)) return 0;
      // What answers may be dead and only not reaped.
      return countLiving(id);
    },
    async gone(withinMs) {
      const deadlineMs = performance.now() + withinMs;
      for (;;) {
        const left = await group.members();
        if (left === 0 || performance.now() >= deadlineMs) return left;
        await sleep(LOOK_EVERY_MS);
      }
    },
    kill() {
      return sendSignal(id, 'SIGKILL') ? group.gone(KILLED_WITHIN_MS) : Promise.resolve(0);
    },
  };
  return group;
}

/** The name of a signal with or without SIG; SIGTERM for what this system does not know. */
export function signalName(name: string): NodeJS.Signals {
  const full = name.startsWith('SIG') ? name : `SIG${name}`;
  return full in constants.signals ? (full as NodeJS.Signals) : 'SIGTERM';
}

function sendSignal(groupId: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-groupId, signal);
  } catch (error) {
    // EPERM: someone is there, but runs as another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function countLiving(groupId: number): Promise<number> {
  let names: string[];
  try {
    names = await readdir('/proc');
  } catch {
    return 1; // No /proc (not Linux): only that someone answered is known.
  }
  const pids = names.filter((name) => /^\d+$/.test(name));
  const living = await Promise.all(pids.map((pid) => isLivingMember(pid, groupId)));
  return living.filter(Boolean).length;
}

async function isLivingMember(pid: string, groupId: number): Promise<boolean> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'latin1');
    // The name in brackets may hold anything, so the fields are counted from the last bracket: state ppid pgrp.
    const [state, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(group) === groupId && state !== 'Z' && state !== 'X';
  } catch {
    return false; // Ended while we looked.
  }
}
