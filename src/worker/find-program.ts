/** Finds a program as `execvp` does, for commands that something else starts on our behalf. */
import { access, constants, stat } from 'node:fs/promises';
import { delimiter, isAbsolute, join } from 'node:path';

/**
 * @returns its path
 * @throws Error with the code ENOENT or EACCES, as `spawn` has it
 */
export async function findProgram(
  name: string,
  { cwd, env }: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
): Promise<string> {
  if (name.includes('/')) {
    const path = isAbsolute(name) ? name : join(cwd, name);
    await checkExecutable(path);
    return path;
  }
  let denied: unknown;
  for (const folder of (env.PATH ?? '/usr/local/bin:/usr/bin:/bin').split(delimiter)) {
    const path = join(folder === '' ? cwd : folder, name);
    try {
      await checkExecutable(path);
      return path;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EACCES') denied = error;
    }
  }
  throw denied ?? Object.assign(new Error(`${name} was not found`), { code: 'ENOENT' });
}

async function checkExecutable(path: string): Promise<void> {
  // A folder may be entered, which is the same bit.
  if (!(await stat(path)).isFile()) throw Object.assign(new Error(`${path} is not a file`), { code: 'EACCES' });
  await access(path, constants.X_OK);
}
