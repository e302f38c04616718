/** The program `homing` as commands find it: a folder for their PATH that lives as long as the worker. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeHostFolder } from './host-folder.js';

export interface Shim {
  readonly folder: string;
  close(): Promise<void>;
}

/** @param program what to execute, and its first arguments */
export async function createShim(program: readonly string[]): Promise<Shim> {
  const folder = await makeHostFolder('bin', 0o755); // Commands may run as another user.
  const quoted = program.map((part) => `'${part.replaceAll("'", "'\\''")}'`).join(' ');
  await writeFile(join(folder, 'homing'), `#!/bin/sh\nexec ${quoted} "$@"\n`, { mode: 0o755 });
  return { folder, close: () => rm(folder, { recursive: true, force: true }) };
}
