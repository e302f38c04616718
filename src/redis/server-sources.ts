/** Where a server may come from, as a user's environment names it, and how to search it. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';

export interface ServerSources {
  /** Where programs are found: the PATH. */
  readonly path: string;
  /** What was fetched is kept in it, one folder for each version. Made if absent. */
  readonly cacheDir: string;
  /** Variables such as `http_proxy` for the programs that download; their environment is empty otherwise. */
  readonly proxies?: Readonly<Record<string, string>>;
}

export interface FindOptions extends ServerSources {
  /** False: nothing is fetched; what was fetched before is still used. */
  readonly download: boolean;
  /** Gets one sentence for each thing that is passed over, takes time or may surprise. */
  say(sentence: string): void;
}

const PROXIES = ['http_proxy', 'https_proxy', 'ftp_proxy', 'all_proxy', 'no_proxy'];

/** PATH, the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`) and proxies of an environment. */
export function serverSourcesOf(env: Readonly<Record<string, string | undefined>>): Required<ServerSources> {
  const xdg = env.XDG_CACHE_HOME ?? '';
  // A relative one is to be ignored (XDG Base Directory Specification).
  const caches = isAbsolute(xdg) ? xdg : join(env.HOME || homedir(), '.cache');
  const proxies: Record<string, string> = {};
  for (const name of PROXIES.flatMap((lower) => [lower, lower.toUpperCase()])) {
    const value = env[name];
    if (value !== undefined) proxies[name] = value;
  }
  return { path: env.PATH ?? '', cacheDir: join(caches, 'homing'), proxies };
}

/** Programs of these names on a PATH, in its order. Relative folders are left out: they mean another one each time. */
export async function* programsOn(searchPath: string, names: readonly string[]): AsyncGenerator<string> {
  for (const folder of new Set(searchPath.split(delimiter).filter(isAbsolute))) {
    for (const name of names) {
      const file = join(folder, name);
      if (await isExecutable(file)) yield file;
    }
  }
}

export async function isOn(searchPath: string, name: string): Promise<boolean> {
  for await (const _ of programsOn(searchPath, [name])) return true;
  return false;
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return true;
  } catch {
    // Absent or not for us: either way the next folder is asked.
    return false;
  }
}
