/** What /proc says about processes: whose child, which marker, how much memory. Linux only, as the journeys are. */
import { readdirSync, readFileSync } from 'node:fs';

/** Every process of ours carries this variable; what a command leaves behind is found by it. */
export const MARKER = 'HOMING_TEST_RUN';

/** The marker of what this test process starts; the name tells its parts apart. */
export const markerFor = (name: string): string => `${process.pid}:${name}`;

const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
};

const everyPid = (): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);

export const commandLine = (pid: number): string => read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim();

/** State letter and parent; undefined when the process is gone. */
function stat(pid: number): { state: string; parent: number } | undefined {
  const text = read(`/proc/${pid}/stat`);
  // The name in brackets may hold spaces and brackets itself.
  const [state, parent] = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return state === undefined || state === '' ? undefined : { state, parent: Number(parent) };
}

/** Whether a process runs; a zombie does not. */
export const isRunning = (pid: number): boolean => {
  const found = stat(pid);
  return found !== undefined && found.state !== 'Z';
};

/** Running processes with exactly this command line, wherever they are. */
export const withCommandLine = (line: string): number[] =>
  everyPid().filter((pid) => commandLine(pid) === line && isRunning(pid));

export const childrenOf = (pid: number): number[] =>
  everyPid().filter((candidate) => stat(candidate)?.parent === pid && isRunning(candidate));

/** Processes whose environment at their start carried a marker that begins so. */
export const marked = (marker: string): number[] =>
  everyPid().filter(
    (pid) => pid !== process.pid && isRunning(pid) && read(`/proc/${pid}/environ`).includes(`${MARKER}=${marker}`),
  );

/** Resident memory in bytes, 0 when the process is gone. */
export const residentBytes = (pid: number): number =>
  Number(/VmRSS:\s+(\d+) kB/.exec(read(`/proc/${pid}/status`))?.[1] ?? 0) * 1024;

/** The most a process ever had in memory, in bytes. */
export const peakResidentBytes = (pid: number): number =>
  Number(/VmHWM:\s+(\d+) kB/.exec(read(`/proc/${pid}/status`))?.[1] ?? 0) * 1024;
