/**
 * The folder of servers that were fetched: `redis-<arch>-<version>/`, each with `server.json` that says what is in it. A
 * server is built in a draft folder beside and renamed when it has run once, so a half-finished one is never found here.
 */
import { mkdir, mkdtemp, readdir, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { z } from 'zod';
import { folderFault } from './folder-faults.js';
import { isNewEnough, type ServerBinary, versionOf } from './server-version.js';

/** Paths are relative to the folder, which is renamed. */
const manifest = z.looseObject({ file: z.string(), libraries: z.array(z.string()) });
const MANIFEST = 'server.json';
const KEPT = `redis-${process.arch}-`;
const DRAFT = 'draft-';
/** A draft this old belongs to a process that died. */
const STALE_DRAFT_MS = 86_400_000;

/** The newest that still runs here. One that does not (another system's libraries) is passed over with a sentence. */
export async function findKept(cacheDir: string, say: (sentence: string) => void): Promise<ServerBinary | undefined> {
  const names = await readdir(cacheDir).catch(() => []);
  const newestFirst = names
    .filter((name) => name.startsWith(KEPT))
    .sort(byVersion)
    .reverse();
  for (const name of newestFirst) {
    const folder = join(cacheDir, name);
    const server = await readKept(folder);
    if (server !== undefined) return server;
    say(`The server in ${folder} does not run here and is passed over.`);
  }
  return undefined;
}

/** @throws AppError REDIS_UNAVAILABLE when the cache folder can not be written */
export async function makeDraft(cacheDir: string): Promise<string> {
  try {
    await mkdir(cacheDir, { recursive: true, mode: 0o700 });
    await removeStaleDrafts(cacheDir);
    return await mkdtemp(join(cacheDir, DRAFT));
  } catch (error) {
    throw folderFault(error, 'The cache folder', cacheDir, 'choose another with XDG_CACHE_HOME.');
  }
}

/**
 * Gives what was built in a folder its place. Whoever comes second uses what the first has put there.
 * @param file the program in `folder`, which runs
 * @param libraries folders in `folder`
 */
export async function keep(
  cacheDir: string,
  folder: string,
  version: string,
  file: string,
  libraries: readonly string[],
): Promise<ServerBinary> {
  const within = (path: string) => relative(folder, path);
  const said = { file: within(file), libraries: libraries.map(within) };
  await writeFile(join(folder, MANIFEST), `${JSON.stringify(said)}\n`);
  const place = join(cacheDir, `${KEPT}${version}`);
  for (let attempt = 1; ; attempt += 1) {
    try {
      await rename(folder, place);
    } catch (error) {
      if (!isTaken(error) || attempt > 3) throw error;
    }
    const server = await readKept(place);
    if (server !== undefined) return server;
    // What has the place does not run: it goes, in one step too.
    const aside = await mkdtemp(join(cacheDir, DRAFT));
    await rename(place, join(aside, 'broken')).catch(() => undefined);
    await rm(aside, { recursive: true, force: true });
  }
}

async function readKept(folder: string): Promise<ServerBinary | undefined> {
  let said: z.output<typeof manifest>;
  try {
    said = manifest.parse(JSON.parse(await readFile(join(folder, MANIFEST), 'utf8')));
  } catch {
    return undefined;
  }
  const file = join(folder, said.file);
  const libraryPath = libraryPathOf(said.libraries.map((library) => join(folder, library)));
  const version = (await isInside(folder, file)) ? await versionOf(file, libraryPath) : undefined;
  return isNewEnough(version) ? { file, version, ...(libraryPath !== undefined && { libraryPath }) } : undefined;
}

export const libraryPathOf = (folders: readonly string[]): string | undefined =>
  folders.length === 0 ? undefined : folders.join(':');

/** Whether a file is there and no link leads out of the folder. */
export async function isInside(folder: string, file: string): Promise<boolean> {
  try {
    return (await realpath(file)).startsWith((await realpath(folder)) + sep);
  } catch {
    return false;
  }
}

async function removeStaleDrafts(cacheDir: string): Promise<void> {
  const drafts = (await readdir(cacheDir)).filter((name) => name.startsWith(DRAFT));
  for (const draft of drafts.map((name) => join(cacheDir, name))) {
    const found = await stat(draft).catch(() => undefined);
    if (found === undefined || Date.now() - found.mtimeMs < STALE_DRAFT_MS) continue;
    await rm(draft, { recursive: true, force: true });
  }
}

const isTaken = (error: unknown) =>
  ['ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '');

const byVersion = (a: string, b: string) => a.localeCompare(b, 'en', { numeric: true });
