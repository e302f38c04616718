/** Tries control groups before they are trusted: a program that wants more memory than its group has must be killed by the kernel. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { messageOf } from '../errors.js';
import { type CgroupsResult, openCgroups } from './cgroups.js';
import { SHELL } from './containment-room.js';

const MEMORY_BYTES = 16 * 1024 * 1024;
/** Keeps the whole of one line without an end. */
const GREEDY = 'head -c 200000000 /dev/zero | tail -n 1 >/dev/null';
const WITHIN_MS = 5_000;

/** As `openCgroups`, and they were seen to hold. The caller closes them. */
export async function tryCgroups(id: string, own?: string): Promise<CgroupsResult> {
  const opened = openCgroups(id, own);
  if (opened.type === 'none') return opened;
  const fault = await faultOf(opened);
  if (fault === undefined) return opened;
  opened.cgroups.close();
  return { type: 'none', why: fault };
}

async function faultOf({ cgroups }: Extract<CgroupsResult, { type: 'open' }>): Promise<string | undefined> {
  try {
    const group = cgroups.group('probe', { memoryBytes: MEMORY_BYTES, processes: 8 });
    if (group === undefined) return undefined;
    try {
      const [file = '', ...args] = [...group.enter, SHELL, '-c', GREEDY];
      const child = spawn(file, args, {
        stdio: 'ignore',
        env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
        cwd: '/',
        timeout: WITHIN_MS,
        killSignal: 'SIGKILL',
      });
      await once(child, 'exit');
      return group.killedForMemory() ? undefined : 'a limit of memory was set and did not hold';
    } finally {
      group.close();
    }
  } catch (error) {
    return messageOf(error);
  }
}
