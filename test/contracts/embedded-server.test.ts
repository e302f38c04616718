/** The embedded Redis as real processes: where it listens, who gets in, and that it never outlives its parent. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Redis } from 'ioredis';
import { build } from 'vite';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { startEmbeddedRedis } from '../../src/redis/embedded-server.js';
import { isRunning } from '../support/processes.js';
import { until, within } from '../support/wait.js';

const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const path = process.env.PATH ?? '';

let base: string;
let program: string;
let dataDir: string;
let cacheDir: string;
let count = 0;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'homing-e-'));
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
  cacheDir = join(base, 'cache');
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
  const child = spawn(process.execPath, [program, folder, path], { stdio: ['pipe', 'pipe', 'inherit'] });
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
  expect(await redis.get('a')).toBe('b');
  redis.disconnect();
  await embedded.close();
  expect(isRunning(next)).toBe(false);
});

test('without a server on the PATH, or with one too old, the error says how to get one', async () => {
  const bin = join(base, `bin-${count}`);
  await mkdir(bin);
  const missing = startEmbeddedRedis({ dataDir, path: bin, cacheDir, download: false, log: silent });
  await expect(missing).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
  for (const line of [/^ {2}apt: /m, /^ {2}brew: /m, /^ {2}docker: /m]) await expect(missing).rejects.toThrow(line);
  await writeFile(join(bin, 'redis-server'), '#!/bin/sh\necho "Redis server v=6.2.14 sha=0:0 malloc=libc bits=64"\n');
  await chmod(join(bin, 'redis-server'), 0o755);
  await expect(startEmbeddedRedis({ dataDir, path: bin, cacheDir, download: false, log: silent })).rejects.toThrow(
    /6\.2\.14/,
  );
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
  const failed = startEmbeddedRedis({ dataDir, path: bin, cacheDir, download: false, log: silent });
  await expect(failed).rejects.toThrow('The embedded Redis did not start: no such luck');
  await (await start()).close();
});
