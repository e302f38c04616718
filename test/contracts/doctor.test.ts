/** `homing doctor` as people and scripts use it. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MAIN, runHoming } from '../support/cluster.js';
import { type Household, startHousehold } from '../support/household.js';
import { stablePort } from '../support/ports.js';

describe('homing doctor beside a running homing up', () => {
  let home: Household;

  beforeAll(async () => {
    home = await startHousehold();
  });
  afterAll(() => home?.[Symbol.asyncDispose]());

  it('finds its Redis and its ports, in plain text for a pipe, and says that all is well', async () => {
    const { url, opsUrl, redisUrl } = home.runFile();
    const env = { ...home.env, HOMING_PORT: new URL(url).port, HOMING_OPS_PORT: new URL(opsUrl).port };
    const { code, stdout, stderr } = await runHoming(['doctor'], { env });
    expect(stdout).not.toMatch(/^ {2}FAIL/m);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^Redis at unix:\/\/.+\.sock$/m);
    for (const check of ['version', 'eviction', 'persistence', 'output buffers', 'replicas', 'pub/sub', 'memory']) {
      expect(stdout).toMatch(new RegExp(`^  ok    ${check} +\\S`, 'm'));
    }
    expect(stdout).toMatch(/^ {2}ok {4}port +127\.0\.0\.1:\d+ is Homing's \(process \d+\)$/m);
    expect(stdout).toMatch(/^ {2}ok {4}ops port +127\.0\.0\.1:\d+ is Homing's/m);
    expect(stdout).toMatch(/^ {2}(ok|warn) {2,}containment +(pidns|group)/m);
    expect(stdout).toMatch(/^ {2}ok {4}control groups +(the kernel holds|not used: \S)/m);
    expect(stdout).not.toContain('\u001b');
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
    // [CO10] Neither the password of its Redis nor a token.
    expect(stdout).not.toContain(/:([^@]+)@/.exec(redisUrl)?.[1]);
  });
});

describe('homing doctor on its own', () => {
  let dataDir = '';
  const env = () => ({ HOMING_DATA_DIR: dataDir, HOMING_PORT: '0', HOMING_OPS_PORT: '0' });

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'homing-doctor-'));
  });
  afterAll(() => rm(dataDir, { recursive: true, force: true }));

  it('tells which Redis would be started, or that there is none, without fetching one', async () => {
    const found = await runHoming(['doctor'], { env: env() });
    expect(found.code).toBe(0);
    expect(found.stdout).toMatch(/^ {2}ok {4}server +"homing up" starts \/\S+/m);
    const bare = await runHoming(['doctor'], { env: { ...env(), PATH: '/nowhere', XDG_CACHE_HOME: dataDir } });
    expect(bare.code).toBe(0);
    expect(bare.stdout).toMatch(/^ {2}warn {2}server +no redis-server or valkey-server here\n +→ .*apt-get/m);
  });

  it('fails with how to mend it when Redis does not answer, and hides the password', async () => {
    const given = { ...env(), HOMING_REDIS_URL: 'redis://user:hidden@127.0.0.1:1' };
    const { code, stdout, stderr } = await runHoming(['doctor'], { env: given });
    expect({ code, stderr }).toEqual({ code: 1, stderr: '' });
    expect(stdout).toMatch(/^Redis at redis:\/\/127\.0\.0\.1:1\n {2}FAIL {2}connection +.*ECONNREFUSED/m);
    expect(stdout).toMatch(/^ +→ Start it, or change HOMING_REDIS_URL/m);
    expect(stdout).toMatch(/^1 failure/m);
    expect(stdout).not.toContain('hidden');
  });

  it('[CO4] tells what a dead worker left behind, and leaves it alone', async () => {
    const temporary = await mkdtemp(join(tmpdir(), 'homing-doctor-tmp-'));
    const folder = join(temporary, 'homing-inputs-99999-abc');
    await mkdir(folder);
    try {
      // In a pid namespace of its own: workers that start meanwhile on this host would end it, as they should.
      const script = `export HOMING_WORKER_MARK="wrk,99999,1,$(readlink /proc/self/ns/pid)"
        sleep 60 > /dev/null 2>&1 & left=$!; unset HOMING_WORKER_MARK
        "$0" "$1" doctor --json; kill -0 $left && echo alive >&2`;
      const user = process.getuid?.() === 0 ? [] : ['--user', '--map-root-user'];
      const { stdout, stderr } = spawnSync(
        'unshare',
        [...user, '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c', script, process.execPath, MAIN],
        { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env(), TMPDIR: temporary } },
      );
      const findings = JSON.parse(stdout).sections.at(-1).findings;
      expect(findings).toContainEqual(expect.objectContaining({ check: 'leftovers', level: 'warn' }));
      expect(stderr).toBe('alive\n');
      expect(await readdir(temporary)).toEqual([basename(folder)]);
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
  });

  it('tells a port that another program has', async () => {
    const other = createServer().listen(await stablePort(), '127.0.0.1');
    await once(other, 'listening');
    try {
      const { port } = other.address() as { port: number };
      const { code, stdout } = await runHoming(['doctor', '--json'], { env: { ...env(), HOMING_PORT: String(port) } });
      const findings = JSON.parse(stdout).sections.at(-1).findings;
      expect(findings).toContainEqual({
        check: 'port',
        level: 'fail',
        found: `127.0.0.1:${port} is taken by another program`,
        mend: expect.stringContaining('HOMING_PORT'),
      });
      expect(code).toBe(1);
    } finally {
      other.close();
    }
  });

  it('lists what is missing to listen beyond this machine; wrong settings end it with 2', async () => {
    const open = await runHoming(['doctor'], { env: { ...env(), HOMING_HOST: '0.0.0.0' } });
    expect(open.code).toBe(1);
    expect(open.stdout).toMatch(/^ {2}FAIL {2}settings +HOMING_JWT_SECRET: (this or HOMING_JWKS_URL )?is needed/m);
    const wrong = await runHoming(['doctor'], { env: { ...env(), HOMING_REDIS_URL: 'http://x' } });
    expect(wrong.code).toBe(2);
  });
});
