/**
 * The distribution's packages, read and downloaded by apt itself (so their signatures are checked), without root and
 * without a trace on the system: every file that apt writes is in a folder of ours, and its hooks are switched off.
 */
import { execFile } from 'node:child_process';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '../errors.js';

export interface DebianPackage {
  readonly name: string;
  /** The name of what it was built from; packages of one source belong together. */
  readonly source: string;
  /** As Debian writes it: `5:7.0.15-1~deb12u10`. */
  readonly version: string;
  /** Of the download. */
  readonly bytes: number;
}

export interface DebianPackages {
  /** What can be downloaded of these names, in their order. Unknown names are left out. */
  describe(names: readonly string[]): Promise<DebianPackage[]>;
  /** Names of all that a package depends on, nearest first, itself included. */
  closure(name: string): Promise<string[]>;
  /** Reads the package lists anew, into our own folder, and uses those from now on. */
  refresh(): Promise<void>;
  /** Unpacks each into its folder, which is made. @throws AppError REDIS_UNAVAILABLE with apt's last words */
  unpack(packages: readonly DebianPackage[], folderOf: (name: string) => string): Promise<void>;
}

const ASK_TIMEOUT_MS = 60_000;
const DOWNLOAD_TIMEOUT_MS = 10 * 60_000;
const MAX_OUTPUT_BYTES = 32 * 1024 * 1024;

/**
 * Read after the system's own settings, so it can take back the commands they attach to an update. Container images switch
 * off the binary caches, and then each question costs a second.
 */
const SETTINGS = `#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
`;

const DEPENDS_ONLY = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'].map(
  (relation) => `--no-${relation}`,
);

export interface DebianPackagesOptions {
  /** For all that apt writes. The caller removes it. */
  readonly folder: string;
  readonly path: string;
  readonly proxies: Readonly<Record<string, string>>;
}

export async function createDebianPackages(options: DebianPackagesOptions): Promise<DebianPackages> {
  const { folder, path, proxies } = options;
  const settings = join(folder, 'apt.conf');
  const cache = join(folder, 'cache');
  await mkdir(cache);
  await writeFile(settings, SETTINGS);
  const common = ['-q', '-c', settings, '-o', `Dir::Cache=${cache}`, '-o', `Dir::Log=${cache}`];
  let lists: readonly string[] = [];
  let downloads = 0;

  const run = async (program: string, args: readonly string[], timeoutMs: number, cwd = folder): Promise<string> => {
    const env = { PATH: path, LC_ALL: 'C', DEBIAN_FRONTEND: 'noninteractive', ...proxies };
    const limits = { cwd, env, timeout: timeoutMs, maxBuffer: MAX_OUTPUT_BYTES };
    try {
      return (await promisify(execFile)(program, [...args], limits)).stdout;
    } catch (error) {
      throw failed(program, error, timeoutMs);
    }
  };
  const cacheQuery = (...args: string[]) => run('apt-cache', [...common, ...lists, ...args], ASK_TIMEOUT_MS);

  return {
    async describe(names) {
      // Asked for a name it does not know it fails, after it has shown the others.
      const known = new Set((await cacheQuery('pkgnames')).split('\n'));
      const asked = names.filter((name) => known.has(name));
      if (asked.length === 0) return [];
      return parseRecords(await cacheQuery('show', '--no-all-versions', ...asked));
    },

    async closure(name) {
      const text = await cacheQuery('depends', '--recurse', ...DEPENDS_ONLY, name);
      return text.split('\n').filter((line) => /^[a-z0-9]/.test(line) && !line.includes(':'));
    },

    async refresh() {
      const own = join(folder, 'lists');
      await mkdir(join(own, 'partial'), { recursive: true });
      lists = ['-o', `Dir::State::lists=${own}`];
      await run('apt-get', [...common, ...lists, 'update'], DOWNLOAD_TIMEOUT_MS);
    },

    async unpack(packages, folderOf) {
      downloads += 1;
      const into = join(folder, `download-${downloads}`);
      await mkdir(into);
      const exact = packages.map(({ name, version }) => `${name}=${version}`);
      await run('apt-get', [...common, ...lists, 'download', ...exact], DOWNLOAD_TIMEOUT_MS, into);
      for (const file of await readdir(into)) {
        const target = folderOf(file.replace(/_.*/, ''));
        await mkdir(target, { recursive: true });
        await run('dpkg-deb', ['-x', join(into, file), target], ASK_TIMEOUT_MS);
      }
    },
  };
}

/** The records of `apt-cache show`. What is only installed, with no source to download it from, has no Filename. */
export function parseRecords(text: string): DebianPackage[] {
  const packages: DebianPackage[] = [];
  for (const record of text.split(/\n\s*\n/)) {
    const field = (name: string) => new RegExp(`^${name}: *(.+)$`, 'm').exec(record)?.[1];
    const [name, version, bytes] = [field('Package'), field('Version'), Number(field('Size'))];
    if (name === undefined || version === undefined || field('Filename') === undefined) continue;
    packages.push({ name, version, bytes: bytes || 0, source: field('Source')?.replace(/ .*/, '') ?? name });
  }
  return packages;
}

function failed(program: string, error: unknown, timeoutMs: number): AppError {
  const { stderr, killed, message } = error as Error & { stderr?: string; killed?: boolean };
  const said = (stderr ?? '').trim();
  let why = said.split('\n').findLast((line) => /^(E|dpkg-deb: error):/.test(line)) ?? said.split('\n').at(-1);
  if (/no space left on device|enough free space/i.test(said)) why = 'the disk of the cache folder is full';
  else if (killed === true) why = `it took more than ${timeoutMs / 1_000} s`;
  const sentence = `Fetching one failed in ${program}: ${why?.replace(/\.$/, '') || message}.`;
  return new AppError('REDIS_UNAVAILABLE', sentence, { cause: error });
}
