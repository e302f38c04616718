/**
 * A stdin by name, for a command in a room.
 *
 * Who waits for the command outside of the room holds open what it inherits. Were the stdin inherited, a program that
 * closed it would still seem to read. So the command opens it by its name, which is gone when it has.
 */
import { execFile } from 'node:child_process';
import { chown, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openInputPipe, type Pipe } from './pipes.js';

export interface NamedInput extends Pipe {
  readonly path: string;
  /** Removes the name; the pipe stays. */
  forget(): Promise<void>;
}

const MKFIFO_TIMEOUT_MS = 10_000;

/** @param parent a folder that is seen in the room @param owner who shall open it */
export async function makeNamedInput(
  parent: string,
  owner: { readonly uid: number; readonly gid: number } | undefined,
): Promise<NamedInput> {
  const folder = await mkdtemp(join(parent, 'input-'));
  const forget = () => rm(folder, { recursive: true, force: true });
  try {
    const path = join(folder, 'stdin');
    await promisify(execFile)('mkfifo', ['-m', '600', path], { timeout: MKFIFO_TIMEOUT_MS });
    if (owner !== undefined) for (const one of [folder, path]) await chown(one, owner.uid, owner.gid);
    return { ...openInputPipe(path), path, forget };
  } catch (error) {
    await forget();
    throw error;
  }
}
