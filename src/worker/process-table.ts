/**
 * What the host says about processes. On Linux from /proc; elsewhere (macOS) from `ps`, without start times and
 * environments.
 */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { promisify } from 'node:util';

export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  /** Ended, and waits to be reaped by its parent. */
  readonly zombie: boolean;
  /** Stopped by a signal or a debugger. */
  readonly stopped: boolean;
  /** With the pid it names a process for ever. In clock ticks since boot; 0 where the host does not say. */
  readonly startTicks: number;
  /** User and system time in clock ticks, without children. */
  readonly cpuTicks: number;
  readonly name: string;
}

/** Looking at a full host takes some milliseconds; others get their turn after this many processes. */
const SLICE = 128;
const PS_TIMEOUT_MS = 5_000;
const HAS_PROC = process.platform === 'linux';

/** undefined when it is gone, or the host has no /proc. */
export function readProcess(pid: number): ProcessEntry | undefined {
  const stat = read(`/proc/${pid}/stat`);
  // The name in brackets may hold anything, so the fields are counted from the last bracket.
  const close = stat.lastIndexOf(')');
  if (close < 0) return undefined;
  const [state = '', parent, group, ...rest] = stat.slice(close + 2).split(' ');
  return {
    pid,
    parent: Number(parent),
    group: Number(group),
    zombie: state === 'Z' || state === 'X',
    stopped: state === 'T' || state === 't',
    cpuTicks: Number(rest[8]) + Number(rest[9]),
    startTicks: Number(rest[16]),
    name: stat.slice(stat.indexOf('(') + 1, close),
  };
}

export async function everyProcess(): Promise<ProcessEntry[]> {
  if (!HAS_PROC) return fromPs();
  const found: ProcessEntry[] = [];
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  for (const [i, pid] of pids.entries()) {
    if (i % SLICE === SLICE - 1) await nextTurn();
    const entry = readProcess(Number(pid));
    if (entry !== undefined) found.push(entry);
  }
  return found;
}

/** Children of all its threads, those that wait to be reaped included. Empty when it is gone or the host does not say. */
export function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      read(`/proc/${pid}/task/${thread}/children`)
        .split(' ')
        .filter((child) => child !== '')
        .map(Number),
    );
  } catch {
    return [];
  }
}

/** `NAME=value` of each variable it was started with; empty when it may not be read. */
export const environmentOf = (pid: number): string[] => read(`/proc/${pid}/environ`).split('\0');

export const argumentsOf = (pid: number): string[] => read(`/proc/${pid}/cmdline`).split('\0').slice(0, -1);

/** Bytes in memory; shared pages count for each process that has them. */
export const residentBytes = (pid: number): number =>
  Number(/^VmRSS:\s+(\d+) kB/m.exec(read(`/proc/${pid}/status`))?.[1] ?? 0) * 1024;

/** Pids mean something only within it; '' where there is none. */
export function pidNamespace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return '';
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return ''; // Ended while we looked, or not ours to see.
  }
}

async function fromPs(): Promise<ProcessEntry[]> {
  const { stdout } = await promisify(execFile)('ps', ['-A', '-o', 'pid=,ppid=,pgid=,stat=,comm='], {
    timeout: PS_TIMEOUT_MS,
    maxBuffer: 16 * 1024 * 1024,
  });
  return stdout.split('\n').flatMap((line) => {
    const [, pid, parent, group, state = '', name = ''] = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s*(.*)$/.exec(line) ?? [];
    if (pid === undefined) return [];
    const zombie = state.startsWith('Z');
    const stopped = state.startsWith('T');
    const [nPid, nParent, nGroup] = [Number(pid), Number(parent), Number(group)];
    return [{ pid: nPid, parent: nParent, group: nGroup, zombie, stopped, startTicks: 0, cpuTicks: 0, name }];
  });
}
