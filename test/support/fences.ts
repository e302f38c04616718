/** Rules switched off, for tests only: a copy of files in which the lines marked `-- fence: <name>` are taken out. */
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const SCRIPTS = new URL('../../src/redis/scripts/', import.meta.url);
const MARK = /-- fence: (.+)$/;

/** Every fence there is, as `script: name`. */
export async function allFences(): Promise<string[]> {
  const found: string[] = [];
  for (const file of await readdir(SCRIPTS)) {
    const text = await readFile(new URL(file, SCRIPTS), 'utf8');
    for (const line of text.split('\n')) {
      const name = MARK.exec(line)?.[1];
      if (name !== undefined) found.push(`${file.replace('.lua', '')}: ${name.trim()}`);
    }
  }
  return found;
}

/** Takes the lines of these fences out of the scripts in a folder. @throws when one of them is not there */
export async function takeOut(folder: string, fences: readonly string[]): Promise<void> {
  for (const fence of fences) {
    const [script = '', name = ''] = fence.split(': ');
    const path = join(folder, `${script}.lua`);
    const lines = (await readFile(path, 'utf8')).split('\n');
    const kept = lines.filter((line) => MARK.exec(line)?.[1]?.trim() !== name);
    if (kept.length !== lines.length - 1) throw new Error(`${script}.lua must have exactly one fence "${name}"`);
    await writeFile(path, kept.join('\n'));
  }
}

/** One rule outside of the scripts: a piece of a built file, and what stands there when the rule is off. */
export interface Switch {
  readonly file: string;
  readonly rule: string;
  readonly off: string;
}

/** Switches rules off in a copy of the build, in their module and in the bundle of the programs. @throws when not found exactly once in each */
export async function switchOff(folder: string, switches: readonly Switch[]): Promise<void> {
  const programs = (await readdir(join(folder, 'cli'))).filter((name) => /^bundled-.*\.js$/.test(name));
  for (const { file, rule, off } of switches) {
    for (const [what, files] of [
      [file, [file]],
      ['the bundle', programs.map((name) => join('cli', name))],
    ] as const) {
      let found = 0;
      for (const path of files.map((name) => join(folder, name))) {
        const parts = (await readFile(path, 'utf8')).split(rule);
        if (parts.length === 1) continue;
        found += parts.length - 1;
        await writeFile(path, parts.join(off));
      }
      if (found !== 1) throw new Error(`${what} must have "${rule}" exactly once, and not ${found} times`);
    }
  }
}

/** A folder of scripts without these fences; goes with its scope. */
export async function scriptsWithout(...fences: string[]): Promise<AsyncDisposable & { readonly folder: URL }> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-scripts-'));
  await cp(fileURLToPath(SCRIPTS), folder, { recursive: true });
  await takeOut(folder, fences);
  return {
    folder: pathToFileURL(`${folder}/`),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}
