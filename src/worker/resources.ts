/**
 * Resource limits of a command.
 *
 * Two things work together, for every user and on every host: limits of the kernel on each process (`ulimit`), which stop
 * it at once, and a look at the whole tree several times a second, which adds up its processes, memory and time, and ends the
 * command with the right reason. Where the worker may make control groups (v2), the kernel holds memory of the whole tree as well;
 * see `cgroups.ts`.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EndCause, Exit } from '../domain/outcome.js';
import type { CommandSpec } from '../protocol/methods.js';
import type { CommandGroup } from './cgroups.js';
import { readProcess, residentBytes } from './process-table.js';
import type { ProcessTree } from './process-tree.js';

export type Resources = NonNullable<CommandSpec['resources']>;

/** How often the whole tree is looked at. */
const LOOK_EVERY_MS = 100;
/** Linux counts in hundredths of a second for every architecture that Node runs on. */
const TICKS_PER_SECOND = 100;
/** Above the limit on the whole tree: only to stop what grows faster than it is looked at. */
const dataBackstopBytes = (memoryBytes: number) => 2 * memoryBytes + 64 * 1024 * 1024;

/** Commands of the shell, to be given before the program starts. */
export function ulimitsFor({ cpuSeconds, memoryBytes, openFiles, fileBytes }: Resources): string[] {
  const limits: string[] = [];
  if (cpuSeconds !== undefined) {
    // SIGXCPU at the first, which tells the reason; SIGKILL at the second for who ignores it.
    const seconds = Math.ceil(cpuSeconds);
    limits.push(`ulimit -S -t ${seconds}`, `ulimit -H -t ${seconds + 2}`);
  }
  if (memoryBytes !== undefined) limits.push(`ulimit -d ${Math.ceil(dataBackstopBytes(memoryBytes) / 1024)}`);
  if (openFiles !== undefined) limits.push(`ulimit -n ${openFiles}`);
  // In blocks of 512 bytes, as POSIX has it.
  if (fileBytes !== undefined) limits.push(`ulimit -f ${Math.ceil(fileBytes / 512)}`);
  return limits;
}

export interface MemoryKills {
  /** For want of whose memory the kernel has killed since: that of the command's own group, or of the host (anyone's). */
  killed(): 'own' | 'host' | undefined;
}

/** Beside the command's group, where it has one: this worker's where it tells, else the host. */
export function watchMemory(group: Pick<CommandGroup, 'killedForMemory'> | undefined): MemoryKills {
  const before = oomKills();
  return {
    killed() {
      if (group?.killedForMemory()) return 'own';
      return oomKills() > before ? 'host' : undefined;
    },
  };
}

function oomKills(): number {
  const group = /^0::(\/.*)$/m.exec(readOr('/proc/self/cgroup'))?.[1];
  const own = group === undefined ? '' : readOr(`/sys/fs/cgroup${group}/memory.events`);
  return Number(/^oom_kill (\d+)$/m.exec(own === '' ? readOr('/proc/vmstat') : own)?.[1] ?? 0);
}

function readOr(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Tells the ends that a limit of the kernel caused from those by itself. */
export function causeOfExit({ signal }: Exit, resources: Resources, memory: MemoryKills): EndCause {
  if (signal === 'SIGXCPU' && resources.cpuSeconds !== undefined) return cpuCause(resources.cpuSeconds);
  if (signal === 'SIGXFSZ' && resources.fileBytes !== undefined) {
    return { type: 'resource_limit', error: `a file grew to the limit of ${resources.fileBytes} bytes` };
  }
  const killed = signal === 'SIGKILL' ? memory.killed() : undefined;
  if (killed !== undefined) {
    const why =
      killed === 'own' ? `at the limit of ${resources.memoryBytes} bytes of memory` : 'since memory had run out';
    return { type: 'out_of_memory', error: `the kernel killed it, ${why}` };
  }
  return { type: 'exit' };
}

/** Looks at the tree until it is over a limit or `signal` is aborted. @returns the cause, if there was one */
export async function watchResources(
  tree: ProcessTree,
  { cpuSeconds, memoryBytes, processes }: Resources,
  signal: AbortSignal,
): Promise<EndCause | undefined> {
  if (cpuSeconds === undefined && memoryBytes === undefined && processes === undefined) return undefined;
  /** Time of processes that have ended counts too, as far as it was seen. */
  const ticks = new Map<string, number>();
  while (!signal.aborted) {
    const members = await tree.members();
    if (processes !== undefined && members.length > processes) {
      return { type: 'resource_limit', error: `it had ${members.length} processes; the limit is ${processes}` };
    }
    if (memoryBytes !== undefined) {
      const bytes = members.reduce((sum, { pid }) => sum + residentBytes(pid), 0);
      if (bytes > memoryBytes) {
        return { type: 'out_of_memory', error: `it used ${bytes} bytes of memory; the limit is ${memoryBytes}` };
      }
    }
    if (cpuSeconds !== undefined) {
      for (const { pid } of members) {
        const entry = readProcess(pid);
        if (entry !== undefined) ticks.set(`${pid} ${entry.startTicks}`, entry.cpuTicks);
      }
      const seconds = [...ticks.values()].reduce((sum, one) => sum + one, 0) / TICKS_PER_SECOND;
      if (seconds > cpuSeconds) return cpuCause(cpuSeconds);
    }
    await sleep(LOOK_EVERY_MS, undefined, { signal }).catch(() => {});
  }
  return undefined;
}

const cpuCause = (cpuSeconds: number): EndCause => ({
  type: 'resource_limit',
  error: `the limit of ${cpuSeconds} s of processor time was reached`,
});
