/**
 * A folder of this worker in the host's temporary folder, where commands of other users can reach it. One that a killed
 * worker left behind goes at the next start on the host: its name says whose it was.
 */
import { chmod, lstat, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** @param mode permissions of the folder; its owner is the worker's user */
export async function makeHostFolder(kind: 'bin' | 'inputs', mode: number): Promise<string> {
  await sweep(kind);
  const folder = await mkdtemp(join(tmpdir(), `homing-${kind}-${process.pid}-`));
  await chmod(folder, mode);
  return folder;
}

/** Folders of our user whose process is gone. What can not be looked at or removed stays: it is only tidiness. */
async function sweep(kind: string): Promise<void> {
  const ours = process.getuid?.();
  const pattern = new RegExp(`^homing-${kind}-(\\d+)-`);
  for (const name of await readdir(tmpdir()).catch(() => [])) {
    const pid = Number(pattern.exec(name)?.[1] ?? 0);
    if (pid === 0 || isAlive(pid)) continue;
    const folder = join(tmpdir(), name);
    const found = await lstat(folder).catch(() => undefined);
    if (found?.isDirectory() && found.uid === ours) await rm(folder, { recursive: true, force: true }).catch(() => {});
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
