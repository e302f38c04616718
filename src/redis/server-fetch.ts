/**
 * Fetches a server from the distribution's own packages into the cache folder: the package of the server, what was built
 * together with it, and the libraries that its program lacks on this machine. The system stays as it is.
 */
import { execFile } from 'node:child_process';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '../errors.js';
import { createDebianPackages, type DebianPackage, type DebianPackages } from './debian-packages.js';
import { folderFault } from './folder-faults.js';
import { isInside, keep, libraryPathOf, makeDraft } from './server-cache.js';
import { type FindOptions, isOn } from './server-sources.js';
import { isNewEnough, LEAST_MAJOR_VERSION, type ServerBinary, versionOf } from './server-version.js';

const SERVERS = ['redis-server', 'valkey-server'];
const LDD_TIMEOUT_MS = 10_000;
/** Each round brings what the last one's libraries lack. */
const MAX_ROUNDS = 10;

/**
 * @returns the server in its place in the cache
 * @throws AppError REDIS_UNAVAILABLE with why it can not be
 */
export async function fetchServer(options: FindOptions): Promise<ServerBinary> {
  const { path, cacheDir, proxies = {}, say } = options;
  for (const program of ['apt-get', 'apt-cache', 'dpkg-deb']) {
    if (!(await isOn(path, program))) throw impossible(`Fetching one needs ${program}, which is not on the PATH.`);
  }
  const draft = await makeDraft(cacheDir);
  try {
    const apt = join(draft, 'apt');
    await mkdir(apt);
    const packages = await createDebianPackages({ folder: apt, path, proxies });
    const build = { packages, folder: join(draft, 'server'), ...options };
    const built = await buildServer(build);
    const server = await keep(cacheDir, build.folder, built.version, built.file, built.libraries);
    say(`The server ${server.version} is ready: ${server.file}`);
    return server;
  } catch (error) {
    throw folderFault(error, 'The cache folder', cacheDir, 'choose another with XDG_CACHE_HOME.');
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

interface Build extends FindOptions {
  readonly packages: DebianPackages;
  readonly folder: string;
}

interface Built {
  readonly version: string;
  readonly file: string;
  readonly libraries: readonly string[];
}

async function buildServer(build: Build): Promise<Built> {
  const { packages, say } = build;
  let server = await chooseServer(packages);
  if (server === undefined) {
    await readLists(build, 'This machine has no lists of packages');
    server = await chooseServer(packages);
    if (server === undefined) throw impossible('The package sources of this machine have no redis-server.');
    return buildFrom(build, server);
  }
  try {
    return await buildFrom(build, server);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    // Old lists name versions that are no longer offered.
    say(error.message);
    await readLists(build, 'The lists of packages of this machine may be old');
    await rm(build.folder, { recursive: true, force: true });
    return buildFrom(build, (await chooseServer(packages)) ?? server);
  }
}

function readLists({ packages, say }: Build, why: string): Promise<void> {
  say(`${why}: reading them from its package sources, for this once (some 10 MB) …`);
  return packages.refresh();
}

/** @returns undefined when there is none at all @throws AppError when all are too old */
async function chooseServer(packages: DebianPackages): Promise<DebianPackage | undefined> {
  const offered = await packages.describe(SERVERS);
  const chosen = offered.find(({ version }) => isNewEnough(upstream(version)));
  if (chosen !== undefined || offered.length === 0) return chosen;
  const found = offered.map(({ name, version }) => `${name} ${upstream(version)}`).join(' and ');
  throw impossible(`This system's own packages have only ${found}; Homing needs ${LEAST_MAJOR_VERSION} or later.`);
}

async function buildFrom(build: Build, server: DebianPackage): Promise<Built> {
  const { packages, folder, path, cacheDir, say } = build;
  const offered = await packages.describe(await packages.closure(server.name));
  const together = offered.filter(({ source }) => source === server.source);
  const title = `${server.name} ${upstream(server.version)}`;
  say(
    `Fetching ${title} (${sizeOf(together)}) from this system's package sources into ${cacheDir}; nothing is installed.`,
  );
  await packages.unpack(together, () => folder);
  const file = join(folder, 'usr', 'bin', server.name);
  if (!(await isInside(folder, file))) throw impossible(`The package ${server.name} does not hold its program.`);
  const others = offered.filter(({ name, source }) => source !== server.source && name.startsWith('lib'));
  const libraries = await fetchLibraries(build, file, others);
  const version = await versionOf(file, libraryPathOf(libraries));
  if (!isNewEnough(version)) throw impossible(`The ${title} that was fetched does not run here (PATH: ${path}).`);
  return { version, file, libraries };
}

/** @returns the folders of the libraries fetched */
async function fetchLibraries(build: Build, file: string, offered: readonly DebianPackage[]): Promise<string[]> {
  const { packages, folder, path, say } = build;
  const libraries: string[] = [];
  const left = new Set(offered);
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const missing = await missingLibraries(file, path, libraryPathOf(libraries));
    if (missing.length === 0) return libraries;
    const next = likelyPackages(missing, [...left]);
    if (next.length === 0)
      throw impossible(`The server lacks ${missing.join(', ')}, and no package of its own has it.`);
    say(`It needs ${next.map(({ name }) => name).join(', ')} too (${sizeOf(next)}).`);
    const folderOf = (name: string) => join(folder, 'libraries', name);
    await packages.unpack(next, folderOf);
    for (const library of next) {
      left.delete(library);
      const target = folderOf(library.name);
      const holding = await foldersHolding(target, missing);
      libraries.push(...holding);
      // Only what is missing may shadow the system's own: a C library of another build would break the program.
      if (holding.length === 0) await rm(target, { recursive: true, force: true });
    }
  }
  throw impossible('The server lacks libraries that its packages do not bring.');
}

/** Names such as `libjemalloc.so.2`, as the loader reports them. */
async function missingLibraries(file: string, path: string, libraryPath: string | undefined): Promise<string[]> {
  // Without ldd nothing is known, and whether the server runs is tried next anyway.
  if (!(await isOn(path, 'ldd'))) return [];
  const env = { PATH: path, LC_ALL: 'C', ...(libraryPath !== undefined && { LD_LIBRARY_PATH: libraryPath }) };
  const { stdout } = await promisify(execFile)('ldd', [file], { env, timeout: LDD_TIMEOUT_MS });
  return [...new Set([...stdout.matchAll(/^\s*(\S+) => not found/gm)].map(([, name = '']) => name))];
}

/**
 * Which packages to try for libraries. By Debian's rule a library's package has its name and number (`libjemalloc.so.2`
 * → `libjemalloc2`, `liblz4.so.1` → `liblz4-1`; Debian Policy 8.1), perhaps with `t64`; where none has, the nearest dependency.
 */
export function likelyPackages<P extends { readonly name: string }>(
  missing: readonly string[],
  offered: readonly P[],
): P[] {
  const named = new Set<P>();
  for (const library of missing) {
    const [base = '', number = ''] = library.toLowerCase().replaceAll('_', '-').split('.so.');
    const name = /\d$/.test(base) ? `${base}-${number}` : `${base}${number}`;
    const found = offered.find((one) => one.name === name || one.name === `${name}t64`);
    if (found !== undefined) named.add(found);
  }
  return named.size > 0 ? [...named] : offered.slice(0, 1);
}

async function foldersHolding(folder: string, names: readonly string[]): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const holding = entries.filter((entry) => !entry.isDirectory() && names.includes(entry.name));
  return [...new Set(holding.map((entry) => entry.parentPath))];
}

/** `5:7.0.15-1~deb12u10` → `7.0.15` */
const upstream = (version: string) => version.replace(/^\d+:/, '').replace(/[-+~].*$/, '');

function sizeOf(packages: readonly DebianPackage[]): string {
  const bytes = packages.reduce((sum, one) => sum + one.bytes, 0);
  return `${(bytes / 1_000_000).toFixed(1)} MB, ${bytes} bytes`;
}

const impossible = (sentence: string) => new AppError('REDIS_UNAVAILABLE', sentence);
