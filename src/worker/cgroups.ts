/**
 * Control groups (version 2) for commands that ask for a limit of memory or processes, where this worker may make them: there
 * the kernel holds memory for the whole command, at once, and tells whom it killed for it.
 *
 * - Needed: a group of the worker's own to divide (systemd: `Delegate=yes`; a container: a writable /sys/fs/cgroup), with the
 *   controllers `memory` and `pids`, and nobody else in it. What was believed is tried at the start (`cgroups-probe.ts`).
 * - A group that has processes can not be divided, so the worker moves into a leaf of its own first.
 * - `pids` counts threads as well, so it is only a stop for what multiplies faster than it is looked at (`resources.ts`).
 */
import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '../errors.js';
import { findOwnCgroup } from './cgroup-mount.js';
import { SHELL } from './containment-room.js';
import { REPORT_FD } from './process-launch.js';

export interface CommandGroup {
  /** To be put before everything else that is started for the command: enters the group. */
  readonly enter: readonly string[];
  /** Whether the kernel has killed the command for its memory. */
  killedForMemory(): boolean;
  /** When the command is over. What is still in it keeps the group until the next worker starts here. Idempotent. */
  close(): void;
}

export interface Cgroups {
  /** A group of its own for a command; undefined when none of its limits is held by one. @throws Error of the host */
  group(name: string, limits: GroupLimits): CommandGroup | undefined;
  /** Leaves everything as it was found. After the commands. Idempotent. */
  close(): void;
}

export interface GroupLimits {
  readonly memoryBytes?: number | undefined;
  readonly processes?: number | undefined;
}

export type CgroupsResult =
  | { readonly type: 'open'; readonly cgroups: Cgroups }
  /** In words that go on after "control groups are not used: ". */
  | { readonly type: 'none'; readonly why: string };

const CONTROLLERS = ['memory', 'pids'] as const;
const NAME = /^homing-/;
/** Threads that a process may have, and room for helpers, before the kernel stops the whole. */
const tasksFor = (processes: number) => 64 + 64 * processes;
const REMOVE_AGAIN_MS = [10, 50, 200, 1_000, 5_000];
/** `0` is whoever writes. It is said on the descriptor that the launching shell uses. */
const ENTER = `echo 0 >"$0" 2>/dev/null || { echo "limits 1" >&${REPORT_FD}; exit 1; }; exec "$@"`;

/** @param id unique for this incarnation of the worker @param own the group to divide; found when absent */
export function openCgroups(id: string, own: string | undefined = findOwnCgroup()): CgroupsResult {
  const none = (why: string): CgroupsResult => ({ type: 'none', why });
  if (own === undefined) return none('this process is in no group of version 2');
  const offered = read(join(own, 'cgroup.controllers')).split(/\s+/);
  const missing = CONTROLLERS.filter((name) => !offered.includes(name));
  if (missing.length > 0) return none(`version 2 does not control ${missing.join(' and ')} here`);
  sweep(own);
  const base = join(own, `homing-${id}`);
  const leaf = join(base, 'worker');
  let step = `no group can be made in ${own}`;
  let enabled = false;
  try {
    mkdirSync(base);
    mkdirSync(leaf);
    step = 'this process can not move into a group of its own';
    writeFileSync(join(leaf, 'cgroup.procs'), '0');
    step = 'other processes are in the same group, or it is not ours to divide';
    enabled = enable(own);
    enable(base);
  } catch (error) {
    leave(own, base, enabled);
    return none(`${step} (${messageOf(error)})`);
  }
  let closed = false;
  return {
    type: 'open',
    cgroups: {
      group: (name, limits) => makeGroup(join(base, name), limits),
      close() {
        if (!closed) leave(own, base, enabled);
        closed = true;
      },
    },
  };
}

function makeGroup(path: string, { memoryBytes, processes }: GroupLimits): CommandGroup | undefined {
  if (memoryBytes === undefined && processes === undefined) return undefined;
  const set = (file: string, value: string | number) => writeFileSync(join(path, file), String(value));
  mkdirSync(path);
  try {
    if (processes !== undefined) set('pids.max', tasksFor(processes));
    if (memoryBytes !== undefined) {
      set('memory.max', Math.ceil(memoryBytes));
      // All of it or nothing: a command that lost one of its processes would go on as if nothing had been.
      set('memory.oom.group', 1);
      try {
        set('memory.swap.max', 0);
      } catch {
        // A kernel without swap has nothing to limit.
      }
    }
  } catch (error) {
    remove(path);
    throw error;
  }
  let closed = false;
  return {
    enter: [SHELL, '-c', ENTER, join(path, 'cgroup.procs')],
    killedForMemory: () => Number(/^oom_kill (\d+)$/m.exec(read(join(path, 'memory.events')))?.[1] ?? 0) > 0,
    close() {
      if (!closed) removeSoon(path);
      closed = true;
    },
  };
}

/** @returns whether that changed something */
function enable(path: string): boolean {
  const file = join(path, 'cgroup.subtree_control');
  const before = read(file).split(/\s+/);
  const more = CONTROLLERS.filter((name) => !before.includes(name));
  if (more.length > 0) writeFileSync(file, more.map((name) => `+${name}`).join(' '));
  return more.length > 0;
}

/** Back to where this process came from: in the order in which the kernel allows it. */
function leave(own: string, base: string, enabled: boolean): void {
  for (const name of groupsIn(base)) if (name !== 'worker') remove(join(base, name));
  attempt(() => writeFileSync(join(base, 'cgroup.subtree_control'), CONTROLLERS.map((name) => `-${name}`).join(' ')));
  if (enabled) {
    attempt(() => writeFileSync(join(own, 'cgroup.subtree_control'), CONTROLLERS.map((name) => `-${name}`).join(' ')));
  }
  attempt(() => writeFileSync(join(own, 'cgroup.procs'), '0'));
  removeSoon(join(base, 'worker'), base);
}

/** Groups of workers that died. A worker that lives is in its own, so that it is not empty. */
function sweep(own: string): void {
  for (const name of groupsIn(own).filter((one) => NAME.test(one))) {
    const base = join(own, name);
    if (!/^populated 0$/m.test(read(join(base, 'cgroup.events')))) continue;
    removeAll([...groupsIn(base).map((inner) => join(base, inner)), base]);
  }
}

function groupsIn(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
  } catch {
    return [];
  }
}

/** In this order; their processes are told to end, and may need a moment. */
function removeSoon(...paths: readonly string[]): void {
  const again = (delaysMs: readonly number[]) => {
    const [delayMs, ...later] = delaysMs;
    if (removeAll(paths) || delayMs === undefined) return;
    setTimeout(() => again(later), delayMs).unref();
  };
  again(REMOVE_AGAIN_MS);
}

/** @returns whether the last of them is gone */
const removeAll = (paths: readonly string[]): boolean => paths.map(remove).at(-1) ?? true;

const remove = (path: string): boolean => attempt(() => rmdirSync(path));

/** For what is tidiness, or fails because it was never done. */
function attempt(change: () => void): boolean {
  try {
    change();
    return true;
  } catch {
    return false;
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
