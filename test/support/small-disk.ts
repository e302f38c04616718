/** A disk of a few kilobytes, or one that can not be written, as the system itself makes them; only root may. */
import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

export interface SmallDisk extends AsyncDisposable {
  readonly folder: string;
  readOnly(): Promise<void>;
}

/** @returns undefined where mounting is not allowed */
export async function mountSmallDisk(folder: string, bytes: number): Promise<SmallDisk | undefined> {
  await mkdir(folder, { recursive: true });
  try {
    await run('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'none', folder]);
  } catch {
    return undefined;
  }
  return {
    folder,
    readOnly: async () => void (await run('mount', ['-o', 'remount,ro', folder])),
    async [Symbol.asyncDispose]() {
      await run('umount', ['-l', folder]);
    },
  };
}
