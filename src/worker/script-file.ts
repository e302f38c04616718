/** Scripts too long for one argument (Linux: 128 KiB) are read by the shell from an open file that has no name any more. */
import { type FileHandle, mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LIMITS } from '../protocol/limits.js';
import type { CommandSpec } from '../protocol/methods.js';

/** Where a command finds its script: the first descriptor after stdin, stdout and stderr. */
export const SCRIPT_FD = 3;

export interface Program {
  readonly argv: readonly string[];
  /** To be given as descriptor `SCRIPT_FD`; the caller closes it. */
  readonly scriptFile?: FileHandle;
}

/** What is executed for a spec: its argv, or the shell with the script. */
export async function programOf(spec: CommandSpec): Promise<Program> {
  if (spec.argv !== undefined) return { argv: spec.argv };
  const { shell = '/bin/sh', script = '' } = spec;
  if (Buffer.byteLength(script) <= LIMITS.maxArgBytes) return { argv: [shell, '-c', script] };
  return { argv: [shell, `/dev/fd/${SCRIPT_FD}`], scriptFile: await openNameless(script) };
}

async function openNameless(text: string): Promise<FileHandle> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-script-'));
  try {
    const path = join(folder, 'script');
    await writeFile(path, text, { mode: 0o600 });
    return await open(path, 'r');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
