/** Finding a server and fetching one: real apt, dpkg and ldd on a package source of the test's own, with no network. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'vite';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { parseRecords } from '../../src/redis/debian-packages.js';
import { startEmbeddedRedis } from '../../src/redis/embedded-server.js';
import { findOrFetchServer, type ServerBinary, serverSourcesOf } from '../../src/redis/server-binary.js';
import { likelyPackages } from '../../src/redis/server-fetch.js';
import { hasApt, makeRepository, plant, type Repository } from '../support/debian-repository.js';
import { childrenOf } from '../support/processes.js';
import { testServer } from '../support/server.js';
import { mountSmallDisk } from '../support/small-disk.js';
import { until } from '../support/wait.js';

const VERSION = '5:7.0.15-1~test1';
const KEPT = new RegExp(`^redis-${process.arch}-\\d+\\.\\d+\\.\\d+$`);
const isRoot = process.getuid?.() === 0;
const NOBODY = { uid: 65_534, gid: 65_534 };
const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };

let base: string;
let server: ServerBinary;
let cacheDir: string;
let said: string[];
let count = 0;

const say = (sentence: string) => void said.push(sentence);
const find = (path: string, download = true) => findOrFetchServer({ path, cacheDir, download, say });
const folders = () => readdir(cacheDir).catch(() => []);

/** A folder with one server program that says this version. */
async function pretend(version: string, name = 'redis-server'): Promise<string> {
  const bin = join(base, `pretended-${count}`);
  await mkdir(bin, { recursive: true });
  await writeFile(join(bin, name), `#!/bin/sh\necho "Redis server v=${version} sha=0:0 malloc=libc bits=64"\n`);
  await chmod(join(bin, name), 0o755);
  return bin;
}

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'homing-f-'));
  await chmod(base, 0o755);
  server = await testServer();
});
beforeEach(() => {
  count += 1;
  cacheDir = join(base, `caches-${count}`, 'homing');
  said = [];
});
afterAll(() => rm(base, { recursive: true, force: true }));

describe('what is there already', () => {
  test('one on the PATH that is new enough is used as it is, and no folder is made', async () => {
    const bin = await pretend('7.2.4', 'valkey-server');
    expect(await find(bin)).toEqual({ file: join(bin, 'valkey-server'), version: '7.2.4' });
    expect(said).toEqual([]);
    await expect(stat(cacheDir)).rejects.toThrow('ENOENT');
  });

  test('one fetched before is used with no PATH at all, the newest first, also where fetching is forbidden', async () => {
    await plant(cacheDir, server, '7.0.9');
    await plant(cacheDir, server, '7.0.10');
    const found = await find('', false);
    expect(found).toMatchObject({
      file: join(cacheDir, `redis-${process.arch}-7.0.10`, 'usr/bin/redis-server'),
      version: server.version,
    });
    expect(said).toEqual([]);
  });

  test('Redis 6 on the PATH is passed over with a sentence, and the next source is used', async () => {
    const bin = await pretend('6.0.16');
    const folder = await plant(cacheDir, server, '7.0.15');
    expect((await find(bin)).file).toBe(join(folder, 'usr/bin/redis-server'));
    expect(said).toEqual([`${bin}/redis-server is version 6.0.16 and is passed over: Homing needs 7 or later.`]);
  });

  test('with nothing but Redis 6 the sentence names it, and how to get another', async () => {
    const failed = find(await pretend('6.0.16'));
    await expect(failed).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    await expect(failed).rejects.toThrow(/redis-server is version 6\.0\.16\. Fetching one needs apt-get, which is not/);
    for (const line of [/^ {2}apt: /m, /^ {2}brew: /m, /^ {2}docker: /m]) await expect(failed).rejects.toThrow(line);
  });

  test('what does not run here, or leads out of its folder, is passed over with a sentence', async () => {
    const broken = await plant(cacheDir, server, '7.0.15');
    await writeFile(join(broken, 'usr/bin/redis-server'), 'no program');
    const outside = await plant(cacheDir, server, '7.0.16');
    await rm(join(outside, 'usr/bin/redis-server'));
    await symlink(server.file, join(outside, 'usr/bin/redis-server'));
    await expect(find('', false)).rejects.toThrow('Fetching one is switched off (--no-download)');
    expect(said).toEqual(
      [outside, broken].map((folder) => `The server in ${folder} does not run here and is passed over.`),
    );
  });
});

describe.skipIf(!(await hasApt()))('fetched from package sources', () => {
  let repository: Repository;

  beforeEach(async () => {
    const folder = join(base, `repository-${count}`);
    await mkdir(folder);
    repository = await makeRepository(folder, server);
    await repository.offer(VERSION);
  });

  test('with no Redis and no package lists: reads lists, fetches the server and the libraries it lacks, says how large', async () => {
    const found = await find(repository.path);
    expect(found.version).toBe(server.version);
    expect(said[0]).toMatch(/has no lists of packages: reading them/);
    expect(said[1]).toMatch(
      /^Fetching redis-server 7\.0\.15 \(\d+\.\d MB, \d+ bytes\) from .* into .*; nothing is installed\.$/,
    );
    expect(said[2]).toMatch(/^It needs lib\S+ too \(\d+\.\d MB, \d+ bytes\)\.$/);
    expect(said.at(-1)).toBe(`The server ${server.version} is ready: ${found.file}`);
    // Only what is missing comes before the system's own, so a package without it leaves nothing behind.
    const libraries = found.libraryPath?.split(':') ?? [];
    const names = await Promise.all(libraries.map((folder) => readdir(folder)));
    expect(names.flat().sort()).toEqual(repository.libraries.map(({ soname }) => soname).sort());
    expect(await folders()).toEqual([expect.stringMatching(KEPT)]);
    expect(await readdir(join(found.file, '../../..', 'libraries'))).not.toContain('libz-unrelated');
    // Hooks that the system attaches to an update are its own business.
    await expect(stat(join(base, `repository-${count}`, 'hook-ran'))).rejects.toThrow('ENOENT');

    said = [];
    expect(await find(repository.path, false)).toEqual(found);
    expect(said).toEqual([]);
  });

  test('what was fetched starts, with its libraries for it alone and not for the shell beside it', async () => {
    const { path } = repository;
    const embedded = await startEmbeddedRedis({ dataDir: join(base, `d${count}`), path, cacheDir, say, log: silent });
    try {
      const redis = createRedis(parseRedisUrl(embedded.url), 'commands', silent);
      await waitForRedis(redis, 5_000);
      const pid = Number(/process_id:(\d+)/.exec(await redis.info('server'))?.[1]);
      redis.disconnect();
      // Redis writes its title over its environment: what it loaded is looked at.
      const loaded = await readFile(`/proc/${pid}/maps`, 'utf8');
      for (const { soname } of repository.libraries) expect(loaded).toMatch(new RegExp(`${cacheDir}/.*/${soname}`));
      const shell = childrenOf(process.pid).find((child) => childrenOf(child).includes(pid));
      expect(await readFile(`/proc/${shell}/environ`, 'latin1')).toBe(`PATH=${path}\0`);
    } finally {
      await embedded.close();
    }
  });

  test('several at once do not collide: all get the same one, and nothing else stays', async () => {
    await repository.readLists();
    const found = await Promise.all([find(repository.path), find(repository.path), find(repository.path)]);
    expect(new Set(found.map(({ file }) => file)).size).toBe(1);
    expect(await folders()).toEqual([expect.stringMatching(KEPT)]);
  });

  test('lists that name a version no longer offered are read anew', async () => {
    await repository.offer('5:7.0.14-1');
    await repository.readLists();
    await repository.offer(VERSION);
    expect((await find(repository.path)).version).toBe(server.version);
    expect(said).toContainEqual(expect.stringMatching(/lists of packages of this machine may be old: reading them/));
  });

  test('a download that is broken off, by an error or by the death of the process, is never used', async () => {
    await repository.readLists();
    const { path } = repository;
    const real = await readFile(join(path, 'apt-get'), 'utf8');
    const failing = real.replace('#!/bin/sh', '');
    await repository.program(
      'apt-get',
      `case "$*" in *download*) echo "E: The line was cut" >&2; exit 100;; esac\n${failing}`,
    );
    await expect(find(path)).rejects.toThrow('Fetching one failed in apt-get: E: The line was cut');
    expect(await folders()).toEqual([]);

    await repository.program('apt-get', `case "$*" in *download*) sleep 60;; esac\n${failing}`);
    const child = await startProgram({ XDG_CACHE_HOME: join(cacheDir, '..'), PATH: path });
    await until('a draft', async () => (await folders()).length === 1);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await expect(find(path, false)).rejects.toThrow('no redis-server');
    await repository.program('apt-get', failing);
    await find(path);
    const [draft = '', kept] = await folders();
    expect([draft, kept]).toEqual([expect.stringMatching(/^draft-/), expect.stringMatching(KEPT)]);

    // The next one that fetches clears away what is a day old.
    const dayAgo = Date.now() / 1_000 - 86_401;
    await utimes(join(cacheDir, draft), dayAgo, dayAgo);
    await rm(join(cacheDir, kept ?? ''), { recursive: true });
    await find(path);
    expect(await folders()).toEqual([kept]);
  });

  test('one in the cache that no longer runs is replaced', async () => {
    const broken = await plant(cacheDir, server, server.version);
    await writeFile(join(broken, 'usr/bin/redis-server'), 'no program');
    expect((await find(repository.path)).file).toBe(join(broken, 'usr/bin/redis-server'));
    expect(said[0]).toBe(`The server in ${broken} does not run here and is passed over.`);
    expect(await folders()).toEqual([expect.stringMatching(KEPT)]);
  });

  test('--no-download forbids it: nothing is asked and nothing written', async () => {
    await expect(find(repository.path, false)).rejects.toThrow('Fetching one is switched off (--no-download)');
    await expect(stat(cacheDir)).rejects.toThrow('ENOENT');
    expect(said).toEqual([]);
  });

  test('a distribution whose own Redis is too old: a sentence, and nothing is fetched', async () => {
    await repository.offer('5:6.0.16-1');
    await expect(find(repository.path)).rejects.toThrow(
      /packages have only redis-server 6\.0\.16; Homing needs 7 or later/,
    );
    expect(said.join()).not.toContain('Fetching');
    expect(await folders()).toEqual([]);
  });

  test('a distribution without one: a sentence', async () => {
    await rm(join(base, `repository-${count}`, 'pool', 'Packages'));
    await writeFile(join(base, `repository-${count}`, 'pool', 'Packages'), '');
    await expect(find(repository.path)).rejects.toThrow('The package sources of this machine have no redis-server.');
  });

  test.skipIf(!isRoot)('without root: the same, in a folder of that user', async () => {
    const caches = join(cacheDir, '..');
    await mkdir(caches);
    await chown(caches, NOBODY.uid, NOBODY.gid);
    const answer = await runProgram({ XDG_CACHE_HOME: caches, PATH: repository.path }, NOBODY);
    expect(answer).toContain(`The server ${server.version} is ready: ${cacheDir}/redis-`);
    expect((await stat(join(cacheDir, (await folders())[0] ?? ''))).uid).toBe(NOBODY.uid);
  });

  test.skipIf(!isRoot)('a cache folder that may not be written: a sentence', async () => {
    await mkdir(join(cacheDir, '..'));
    const answer = await runProgram({ XDG_CACHE_HOME: join(cacheDir, '..'), PATH: repository.path }, NOBODY);
    expect(answer).toContain(
      `The cache folder ${cacheDir} can not be used: this user may not write there; choose another`,
    );
    expect(answer).not.toContain('    at ');
  });

  test.skipIf(!isRoot)('a full disk: a sentence, and nothing half-finished', async (context) => {
    await using disk = await mountSmallDisk(join(cacheDir, '..'), 600_000);
    if (disk === undefined) return context.skip();
    await expect(find(repository.path)).rejects.toThrow(/full/);
    expect(await folders()).toEqual([]);
  });

  let program: Promise<string> | undefined;

  async function startProgram(env: NodeJS.ProcessEnv, user = {}) {
    program ??= buildProgram();
    return spawn(process.execPath, [await program], { env, stdio: ['ignore', 'pipe', 'inherit'], ...user });
  }

  async function runProgram(env: NodeJS.ProcessEnv, user = {}): Promise<string> {
    program ??= buildProgram();
    const done = promisify(execFile)(process.execPath, [await program], { env, cwd: '/', ...user });
    const { stdout } = await done.catch((error: { stdout: string }) => error);
    return stdout;
  }

  async function buildProgram(): Promise<string> {
    await build({
      configFile: false,
      logLevel: 'silent',
      ssr: { noExternal: true },
      build: {
        ssr: fileURLToPath(new URL('../programs/find-server.ts', import.meta.url)),
        outDir: join(base, 'program'),
        rolldownOptions: { output: { entryFileNames: 'find-server.mjs' } },
      },
    });
    return join(base, 'program', 'find-server.mjs');
  }
});

describe('reading what others say', () => {
  test('a library leads to its package by its name and number, else to the nearest dependency', () => {
    const offered = ['libc6', 'libssl3t64', 'liblz4-1', 'libgcc-s1', 'libstdc++6'].map((name) => ({ name }));
    const likely = (...missing: string[]) => likelyPackages(missing, offered).map(({ name }) => name);
    expect(likely('libssl.so.3', 'liblz4.so.1')).toEqual(['libssl3t64', 'liblz4-1']);
    expect(likely('libgcc_s.so.1', 'libstdc++.so.6', 'libnever.so.0')).toEqual(['libgcc-s1', 'libstdc++6']);
    expect(likely('libnever.so.0')).toEqual(['libc6']);
    expect(likelyPackages(['libnever.so.0'], [])).toEqual([]);
  });

  test('of the records of packages only what can be downloaded counts', () => {
    const installed = 'Package: redis-server\nStatus: install ok installed\nVersion: 5:6.0\n';
    const offered =
      'Package: redis-tools\nSource: redis (5:7.0)\nVersion: 5:7.0.15-1\nFilename: pool/r.deb\nSize: 991988\n';
    const own = 'Package: liblzf1\nVersion: 3.6-3\nFilename: pool/l.deb\nSize: 10192\n';
    expect(parseRecords([installed, offered, own].join('\n'))).toEqual([
      { name: 'redis-tools', source: 'redis', version: '5:7.0.15-1', bytes: 991_988 },
      { name: 'liblzf1', source: 'liblzf1', version: '3.6-3', bytes: 10_192 },
    ]);
    expect(parseRecords('')).toEqual([]);
  });

  test("the cache is the user's cache folder; a relative XDG_CACHE_HOME does not count", () => {
    expect(serverSourcesOf({ HOME: '/home/ada', PATH: '/bin' })).toEqual({
      path: '/bin',
      cacheDir: '/home/ada/.cache/homing',
      proxies: {},
    });
    expect(serverSourcesOf({ HOME: '/home/ada', XDG_CACHE_HOME: '/var/c' }).cacheDir).toBe('/var/c/homing');
    expect(serverSourcesOf({ HOME: '/home/ada', XDG_CACHE_HOME: 'c' }).cacheDir).toBe('/home/ada/.cache/homing');
    expect(serverSourcesOf({ https_proxy: 'p:1', NO_PROXY: 'q', SECRET: 's' }).proxies).toEqual({
      https_proxy: 'p:1',
      NO_PROXY: 'q',
    });
  });
});
