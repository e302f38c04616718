/** The embedded Redis as real processes: where it listens, who gets in, and that it never outlives its parent. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Redis } from 'ioredis';
import { build } from 'vite';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { startEmbeddedRedis } from '../../src/redis/embedded-server.js';
import { serverSourcesOf } from '../../src/redis/server-binary.js';
import { isRunning } from '../support/processes.js';
import { mountSmallDisk } from '../support/small-disk.js';
import { until, within } from '../support/wait.js';

const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const path = process.env.PATH ?? '';
const isRoot = process.getuid?.() === 0;
const NOBODY = { uid: 65_534, gid: 65_534 };

let base: string;
let program: string;
let dataDir: string;
let cacheDir: string;
let count = 0;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'homing-e-'));
  await chmod(base, 0o755);
  // As one file, so that the parent is one plain process that can be killed.
  await build({
    configFile: false,
    logLevel: 'silent',
    ssr: { noExternal: true },
    build: {
      ssr: fileURLToPath(new URL('../programs/embedded-redis.ts', import.meta.url)),
      outDir: join(base, 'program'),
      rolldownOptions: { output: { entryFileNames: 'embedded-redis.mjs' } },
    },
  });
  // What was fetched before is used where the PATH has none.
  cacheDir = serverSourcesOf(process.env).cacheDir;
  program = join(base, 'program', 'embedded-redis.mjs');
}, 60_000);
beforeEach(() => {
  count += 1;
  dataDir = join(base, `data-${count}`);
});
afterAll(() => rm(base, { recursive: true, force: true }));

const start = (folder = dataDir) => startEmbeddedRedis({ dataDir: folder, path, cacheDir, log: silent });

async function connect(url: string): Promise<Redis> {
  const redis = createRedis(parseRedisUrl(url), 'commands', silent) as Redis;
  await waitForRedis(redis, 5_000);
  return redis;
}

const pidOf = async (redis: Redis) => Number(/process_id:(\d+)/.exec(await redis.info('server'))?.[1]);

async function startProgram(folder: string): Promise<{ child: ChildProcess; said: string }> {
  const child = spawn(process.execPath, [program, folder, path, cacheDir], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [said] = await within('a line', once(createInterface({ input: child.stdout! }), 'line'));
  return { child, said };
}

test('listens on a socket in a private folder only, keeps what it was given, and ends with close', async () => {
  const embedded = await start();
  const redis = await connect(embedded.url);
  const pid = await pidOf(redis);
  expect(await redis.config('GET', 'port')).toEqual(['port', '0']);
  expect(await redis.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'noeviction']);
  expect(await redis.config('GET', 'appendonly')).toEqual(['appendonly', 'yes']);
  expect((await stat(join(dataDir, 'run'))).mode & 0o777).toBe(0o700);
  expect((await stat(join(dataDir, 'redis'))).mode & 0o777).toBe(0o700);
  await redis.set('kept', 'yes');
  redis.disconnect();
  await embedded.close();
  await embedded.close();
  expect(isRunning(pid)).toBe(false);
  expect(await readdir(join(dataDir, 'run'))).toEqual([]);

  const again = await start();
  const reader = await connect(again.url);
  expect(await reader.get('kept')).toBe('yes');
  reader.disconnect();
  await again.close();
});

test('[CO10] its password is random, needed, and neither in argv nor in an environment', async () => {
  const embedded = await start();
  const target = parseRedisUrl(embedded.url);
  if (target.type !== 'socket' || target.password === undefined) throw new Error('no password');
  const { password } = target;
  expect(password.length).toBeGreaterThanOrEqual(32);
  const stranger = createRedis({ type: 'socket', path: target.path, db: 0 }, 'commands', silent) as Redis;
  await expect(waitForRedis(stranger, 1_000)).rejects.toThrow(/NOAUTH|Authentication/);
  stranger.disconnect();
  const redis = await connect(embedded.url);
  const pid = await pidOf(redis);
  redis.disconnect();
  for (const file of ['cmdline', 'environ']) {
    expect(await readFile(`/proc/${pid}/${file}`, 'latin1')).not.toContain(password);
    expect(await readFile(`/proc/self/${file}`, 'latin1')).not.toContain(password);
  }
  await embedded.close();
});

test('when its parent is killed with SIGKILL it writes everything and is gone; the next start has it all', async () => {
  const { child, said } = await startProgram(dataDir);
  const redis = await connect(said);
  const pid = await pidOf(redis);
  // Faster than everysec writes: only a clean shutdown keeps the last of them for sure.
  await Promise.all(Array.from({ length: 1_000 }, (_, n) => redis.set(`k${n}`, n)));
  redis.disconnect();
  child.kill('SIGKILL');
  // At once, while the old one may still be ending: waits for it.
  const again = await start();
  expect(isRunning(pid)).toBe(false);
  const reader = await connect(again.url);
  expect(await reader.dbsize()).toBe(1_000);
  reader.disconnect();
  await again.close();
});

test('when its parent ends in the usual way nothing stays either', async () => {
  const { child, said } = await startProgram(dataDir);
  const redis = await connect(said);
  const pid = await pidOf(redis);
  redis.disconnect();
  const gone = once(child, 'exit');
  child.stdin?.end();
  expect((await within('the exit', gone))[0]).toBe(0);
  expect(isRunning(pid)).toBe(false);
});

test('a second start on the same folder is refused with a sentence, from this process and from another', async () => {
  const embedded = await start();
  await expect(start()).rejects.toThrow(/data folder .* is used by another Homing; stop that one/);
  const { child, said } = await startProgram(dataDir);
  expect(said).toMatch(/is used by another Homing/);
  if (child.exitCode === null) await once(child, 'exit');
  const redis = await connect(embedded.url);
  expect(await redis.ping()).toBe('PONG');
  redis.disconnect();
  await embedded.close();
});

test('of many that start at once on a folder with a stale lock, no two get it', async () => {
  const { child } = await startProgram(dataDir);
  child.kill('SIGKILL');
  await once(child, 'exit');
  const results = await Promise.allSettled([start(), start(), start(), start()]);
  const started = results.filter((result) => result.status === 'fulfilled');
  expect(started.length).toBeLessThanOrEqual(1);
  for (const { value } of started) await value.close();
  await (await start()).close();
});

test('a folder whose name is too long for a socket works, and is locked as well', async () => {
  const long = join(dataDir, 'x'.repeat(120), 'with "quotes" and spaces');
  const embedded = await start(long);
  const target = parseRedisUrl(embedded.url);
  if (target.type !== 'socket') throw new Error('no socket');
  expect(Buffer.byteLength(target.path)).toBeLessThanOrEqual(100);
  const redis = await connect(embedded.url);
  await redis.set('a', 'b');
  redis.disconnect();
  await expect(start(long)).rejects.toThrow(/is used by another Homing/);
  await embedded.close();
  expect(await readdir(join(long, 'redis'))).not.toEqual([]);
  await rm(join(target.path, '..'), { recursive: true, force: true });
});

test('started again by itself when it dies alone, with the same URL and data', async () => {
  const embedded = await start();
  const redis = await connect(embedded.url);
  const pid = await pidOf(redis);
  await redis.set('a', 'b');
  process.kill(pid, 'SIGKILL');
  const next = await until('another process', async () => {
    const found = await pidOf(redis);
    return found !== pid && found;
  });
  expect(isRunning(next)).toBe(true);
  // INFO is answered before a client is ready for the rest.
  await waitForRedis(redis, 5_000);
  expect(await redis.get('a')).toBe('b');
  redis.disconnect();
  await embedded.close();
  expect(isRunning(next)).toBe(false);
});

test('without a server, or with one too old, the error says how to get one', async () => {
  const bin = join(base, `bin-${count}`);
  await mkdir(bin);
  const missing = startEmbeddedRedis({
    dataDir,
    path: bin,
    cacheDir: join(base, 'none'),
    download: false,
    log: silent,
  });
  await expect(missing).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
  for (const line of [/^ {2}apt: /m, /^ {2}brew: /m, /^ {2}docker: /m]) await expect(missing).rejects.toThrow(line);
  await writeFile(join(bin, 'redis-server'), '#!/bin/sh\necho "Redis server v=6.2.14 sha=0:0 malloc=libc bits=64"\n');
  await chmod(join(bin, 'redis-server'), 0o755);
  await expect(
    startEmbeddedRedis({ dataDir, path: bin, cacheDir: join(base, 'none'), download: false, log: silent }),
  ).rejects.toThrow(/6\.2\.14/);
});

test('a server that does not start is told with its own last words, and leaves the folder free', async () => {
  const bin = join(base, `bin-${count}`);
  await mkdir(bin);
  const file = join(bin, 'redis-server');
  await writeFile(
    file,
    '#!/bin/sh\n[ "$1" = --version ] && { echo "Redis server v=7.2.0"; exit; }\necho "no such luck"\nexit 3\n',
  );
  await chmod(file, 0o755);
  const failed = startEmbeddedRedis({ dataDir, path: bin, cacheDir: join(base, 'none'), download: false, log: silent });
  await expect(failed).rejects.toThrow('The embedded Redis did not start: no such luck');
  await (await start()).close();
});

/** What is left of a start and a stop: a base file, a file of changes, and the manifest that names them. */
async function madeBefore(): Promise<string> {
  await (await start()).close();
  return join(dataDir, 'redis', 'appendonlydir');
}

test('data of a newer Redis is refused with a sentence that names the folder and the version here', async () => {
  const files = await madeBefore();
  const [base = ''] = (await readdir(files)).filter((name) => name.endsWith('.base.rdb'));
  const original = await readFile(join(files, base));
  await writeFile(join(files, base), Buffer.concat([Buffer.from('REDIS0099'), original.subarray(9)]));
  const failed = start();
  await expect(failed).rejects.toThrow(
    /data in .*\/redis was written by a newer Redis than this \d+\.\d+\.\d+; start with/,
  );
  await expect(failed).rejects.not.toThrow(/\d{2}:\d{2}:\d{2}\.\d{3}/);
  // Nothing was written over: it starts again with what can read it.
  await writeFile(join(files, base), original);
  await (await start()).close();
});

test('data with a command that this Redis does not know is of a newer one too', async () => {
  const files = await madeBefore();
  const [changes = ''] = (await readdir(files)).filter((name) => name.endsWith('.incr.aof'));
  await writeFile(join(files, changes), '*1\r\n$6\r\nNEWCMD\r\n');
  await expect(start()).rejects.toThrow('was written by a newer Redis than this');
});

test('damaged data: the sentence says with what to mend it', async () => {
  const files = await madeBefore();
  await writeFile(join(files, 'appendonly.aof.manifest'), 'no manifest\n');
  await expect(start()).rejects.toThrow(
    /data in .*\/redis is damaged; keep a copy, then mend it with redis-check-aof --fix/,
  );
});

test.skipIf(!isRoot)(
  'without the right to write: a sentence, for the folder and for data that another user made',
  async () => {
    await mkdir(dataDir, { mode: 0o755 });
    expect(await sentenceAsNobody(dataDir)).toBe(
      `The data folder ${dataDir} can not be used: this user may not write there; choose another with --data-dir.`,
    );
    // As after one start with sudo, with the folders given back but not what is in them.
    await madeBefore();
    for (const folder of ['', 'redis', 'run']) await chown(join(dataDir, folder), NOBODY.uid, NOBODY.gid);
    expect(await sentenceAsNobody(dataDir)).toMatch(
      /data in .*\/redis can not be written by this user, perhaps because another/,
    );
  },
);

test.skipIf(!isRoot)('on a full disk and on one that is read-only the start fails with a sentence', async (context) => {
  await using disk = await mountSmallDisk(dataDir, 64 * 1024);
  if (disk === undefined) return context.skip();
  await mkdir(join(dataDir, 'redis'));
  await mkdir(join(dataDir, 'run'));
  await writeFile(join(dataDir, 'filler'), Buffer.alloc(128 * 1024)).catch(() => undefined);
  await expect(start()).rejects.toThrow(/The disk of the data folder .*\/redis is full; make room/);
  await rm(join(dataDir, 'filler'));
  await (await start()).close();
  await disk.readOnly();
  await expect(start()).rejects.toThrow(/^The data folder .* can not be used: it is on a disk that is read-only/);
});

test.skipIf(!isRoot)(
  'a disk that fills up while it runs is told, and so is that there is room again',
  async (context) => {
    await using disk = await mountSmallDisk(dataDir, 512 * 1024);
    if (disk === undefined) return context.skip();
    const told: string[] = [];
    const tell = (_: unknown, sentence: string) => void told.push(sentence);
    const log = { ...silent, info: tell, error: tell };
    const embedded = await startEmbeddedRedis({ dataDir, path, cacheDir, log });
    try {
      const redis = await connect(embedded.url);
      await writeFile(join(dataDir, 'filler'), Buffer.alloc(400 * 1024));
      const fill = () =>
        redis.set('filler', 'x'.repeat(64 * 1024)).then(
          () => false,
          (error: Error) => error.message,
        );
      expect(await until('a refusal', fill)).toContain('No space left on device');
      await until('a sentence', () => told.some((line) => /disk of the data folder .* is full; make room/.test(line)));
      await rm(join(dataDir, 'filler'));
      await until('the news', () => told.includes('The embedded Redis can write again'));
      expect(await redis.set('a', 'b')).toBe('OK');
      redis.disconnect();
    } finally {
      await embedded.close();
    }
  },
);

async function sentenceAsNobody(folder: string): Promise<string> {
  const child = spawn(process.execPath, [program, folder, path, cacheDir], {
    stdio: ['pipe', 'pipe', 'inherit'],
    cwd: '/',
    ...NOBODY,
  });
  const [said] = await within('a line', once(createInterface({ input: child.stdout! }), 'line'));
  child.stdin?.end();
  if (child.exitCode === null) await once(child, 'exit');
  return said;
}
