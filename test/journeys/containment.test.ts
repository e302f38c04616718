/** What a dead, paused or returning worker leaves on its host, at both levels of containment. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { chown, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';
import { childrenOf, commandLine, isRunning, MARKER, marked } from '../support/processes.js';
import { program } from '../support/test-worker.js';
import { until } from '../support/wait.js';

const LEASE_MS = 2_000;

const pids = () =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);

/** Nobody of this machine but its first process waits for it. */
const orphaned = (pid: number) => childrenOf(1).includes(pid);

/** Processes that sleep this long, wherever they are. */
const sleeping = (seconds: string) =>
  pids().filter((pid) => isRunning(pid) && commandLine(pid).endsWith(`sleep ${seconds}`));

/** What is tried first is skipped, so that the host seems to offer less. */
const ONLY_GROUP = {
  file: 'worker/containment.js',
  rule: 'const first = await findFirst(recipesFor(tools), works);',
  off: 'const first = undefined;',
};

let figures = 0;
const uniqueSeconds = () => String(700_000 + (process.pid % 10_000) * 10 + ++figures);

describe.each(['pidns', 'group'] as const)('at containment %s', (level) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await startCluster({
      env: { HOMING_LEASE_MS: String(LEASE_MS) },
      ...(level === 'group' ? { without: { fences: [], switches: [ONLY_GROUP] } } : {}),
    });
  });
  afterAll(() => cluster?.[Symbol.asyncDispose]());

  it('[CO3][CO4] a worker that is killed leaves what the docs say, which at pidns is nothing, and one lost command', async () => {
    const tab = await cluster.tab(0);
    const [plain, hidden] = [uniqueSeconds(), uniqueSeconds()];
    const ids = [await tab.run(program('plants.sh', plain)), await tab.run(program('plants.sh', hidden, 'hidden'))];
    for (const id of ids) await tab.shows(id, 'planted');
    const started = tab.entries(ids[0] as string).find(({ method }) => method === 'command.started');
    expect(started?.params.containment).toBe(level);
    expect(sleeping(plain).length).toBeGreaterThanOrEqual(5);
    expect(sleeping(hidden).length).toBeGreaterThanOrEqual(6);

    await cluster.worker(0).kill('SIGKILL');
    await until('the planted processes to be gone', () => sleeping(plain).length === 0, 3_000);
    // docs/containment.md: out of the group and without the environment, or gone.
    const survivors = level === 'pidns' ? 0 : 1;
    await until('no more than may survive', () => sleeping(hidden).length === survivors, 3_000);
    for (const pid of sleeping(hidden)) process.kill(pid, 'SIGKILL');

    for (const id of ids) {
      expect((await tab.ended(id, LEASE_MS + 8_000)).params.outcome).toMatchObject({ reason: 'lost', code: null });
      expectComplete(tab, id);
    }
    await cluster.worker(0).restart();
  }, 60_000);

  it('[CO3] a worker that was paused past its lease and goes on finds its claim gone, kills, and writes nothing', async () => {
    const tab = await cluster.tab(0);
    const seconds = uniqueSeconds();
    const commandId = await tab.run(program('plants.sh', seconds));
    await tab.shows(commandId, 'planted');
    cluster.worker(0).signal('SIGSTOP');
    const ended = await tab.ended(commandId, LEASE_MS + 10_000);
    expect(ended.params.outcome.reason).toBe('lost');
    expect(sleeping(seconds).length).toBeGreaterThanOrEqual(5);
    cluster.worker(0).signal('SIGCONT');
    await until('its processes to be gone', () => sleeping(seconds).length === 0);
    const after = await tab.run({ argv: ['/bin/echo', 'alive'] });
    await tab.ended(after, 20_000);
    expectComplete(tab, commandId);
    expect((await cluster.wholeLog(commandId)).filter(({ method }) => method === 'command.ended')).toHaveLength(1);
  }, 60_000);

  it('[CO4] a worker that stops leaves nothing of its own behind', async () => {
    const worker = cluster.worker(0);
    const own = () => childrenOf(worker.pid);
    await until('its helpers', () => own().length > 0);
    const before = own();
    await worker.kill('SIGTERM');
    await until('its helpers to be gone', () => before.every((pid) => !isRunning(pid)), 5_000);
    await worker.restart();
  }, 30_000);
});

describe('a worker that is killed while it makes its rooms', () => {
  it('[CO4] leaves none of them, at whatever moment', async () => {
    const built = fileURLToPath(new URL('../../dist/worker/', import.meta.url));
    const dataDir = await mkdtemp(join(tmpdir(), 'homing-rooms-'));
    const text = `
      const { openHost } = await import(process.argv[1] + 'host.js');
      const log = { debug() {}, info() {}, warn() {}, error() {}, child: () => log };
      const options = { id: 'x', floor: 'auto', dataDir: process.argv[2], keepMs: 1000, path: process.env.PATH, log };
      console.log('open');
      for (;;) await (await openHost(options)).close();`;
    // Every process of a room has this in its environment or is the child of one that has.
    const rooms = () => marked(`${process.pid}:rooms`);
    for (let i = 0; i < 12; i++) {
      const child = spawn(process.execPath, ['--input-type=module', '-e', text, built, dataDir], {
        stdio: ['ignore', 'pipe', 'inherit'],
        env: { PATH: process.env.PATH, [MARKER]: `${process.pid}:rooms` },
      });
      await once(child.stdout, 'data');
      await new Promise((resolve) => setTimeout(resolve, 25 * i));
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    const idle = () =>
      pids().filter((pid) => isRunning(pid) && commandLine(pid).includes(`read -r _ <&5`) && orphaned(pid));
    await until('the last room to be gone', () => rooms().length === 0 && idle().length === 0, 5_000);
    await rm(dataDir, { recursive: true, force: true });
  }, 60_000);
});

describe.runIf(process.getuid?.() === 0)('a worker without root', () => {
  const dist = fileURLToPath(new URL('../../dist', import.meta.url));
  const text = fileURLToPath(new URL('../programs/host-without-root.mjs', import.meta.url));
  const asNobody = ['--reuid=65534', '--regid=65534', '--clear-groups'];
  const readable = () => spawnSync('setpriv', [...asNobody, 'cat', `${dist}/worker/host.js`]).status === 0;

  it.each([
    ['room keeper', []],
    ['setpriv and unshare', ['perl']],
    ['bwrap', ['perl', 'unshare']],
  ])(
    '[CO4] has rooms and sandboxes by %s where user namespaces are allowed',
    async (means, without) => {
      // A checkout in a folder of root's own can not be run by others.
      if (!readable() || spawnSync('setpriv', [...asNobody, 'unshare', '--user', 'true']).status !== 0) return;
      const dataDir = await mkdtemp(join(tmpdir(), 'homing-nobody-'));
      await chown(dataDir, 65_534, 65_534);
      const { stdout, stderr } = spawnSync(
        'setpriv',
        [...asNobody, process.execPath, '--input-type=module', '-', dist, dataDir, ...without],
        {
          input: await readFile(text),
          env: { PATH: process.env.PATH, HOME: '/tmp' },
          encoding: 'utf8',
          timeout: 30_000,
        },
      );
      await rm(dataDir, { recursive: true, force: true });
      expect(stderr).toBe('');
      expect(JSON.parse(stdout)).toEqual({
        uid: 65_534,
        level: 'pidns',
        means,
        ends: [undefined, 'workspace', 'offline', 'readonly'].map((profile) => ({
          ...(profile === undefined ? {} : { profile }),
          code: null,
          signal: 'SIGKILL',
          left: 0,
        })),
      });
    },
    40_000,
  );
});
