/** Alerts fire when what they are about really happens: a real Prometheus with the rules of `deploy/` looks at real processes. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { startPrometheus } from '../support/prometheus.js';
import { startRedis, type TestRedis } from '../support/redis.js';

const METRICS = 'alerts-metrics-token';
const LEASE_MS = 2_000;
const LONG_WAIT = /(homing_queue_oldest_wait_seconds\) >) 60/;
const WAIT_S = 5;
let redis: TestRedis;
let cluster: Cluster;
let prometheus: Awaited<ReturnType<typeof startPrometheus>>;

beforeAll(async () => {
  redis = await startRedis();
  cluster = await startCluster({
    ...{ nodes: 2, workers: 1, redis },
    env: {
      ...{ HOMING_METRICS_TOKEN: METRICS, HOMING_LEASE_MS: String(LEASE_MS) },
      // So that some kilobytes are more than is kept.
      ...{ HOMING_LOG_FIRST_BYTES: '1024', HOMING_LOG_LAST_BYTES: '1024' },
    },
    workerEnv: () => ({ HOMING_WORKER_OPS_PORT: '0' }),
  });
  prometheus = await startPrometheus({
    jobs: {
      'homing-gateway': cluster.nodes.map(({ opsUrl }) => opsUrl),
      'homing-worker': cluster.workers.map(({ opsUrl }) => opsUrl),
    },
    token: METRICS,
    // How long a condition must hold, and how long is too long a wait, is tried by promtool, and not waited for here.
    rules: (text) => text.replaceAll(/for: \d+[ms]/g, 'for: 1s').replace(LONG_WAIT, `$1 ${WAIT_S}`),
  });
});
afterAll(async () => {
  await prometheus?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
});

const firing = async (name: string) =>
  (await prometheus.alerts()).filter(({ state, labels }) => state === 'firing' && labels.alertname === name);
const fires = (name: string) => expect.poll(async () => (await firing(name)).length).toBeGreaterThan(0);
const hostOf = (url: string) => new URL(url).host;

describe('an alert', () => {
  it('HomingNoWorkerForPool: commands wait in a pool that no worker serves, as every node sees it', async () => {
    expect(await firing('HomingNoWorkerForPool')).toEqual([]);
    const tab = await cluster.tab(0, { token: cluster.token({ pools: ['gpu'] }), conversation: 'alerts' });
    await tab.run({ argv: ['true'], pool: 'gpu' });
    await fires('HomingNoWorkerForPool');
    const [alert] = await firing('HomingNoWorkerForPool');
    expect(alert?.labels).toMatchObject({ pool: 'gpu', severity: 'page' });
    expect(alert?.annotations.summary).toBe('1 commands wait in pool gpu, and no worker serves it');
  });

  it('HomingOldestWait: the first of them waits longer than it should', async () => {
    await fires('HomingOldestWait');
    const [alert] = await firing('HomingOldestWait');
    expect(alert?.labels).toMatchObject({ pool: 'gpu', severity: 'ticket' });
    expect(Number(/has waited for ([\d.]+)s$/.exec(alert?.annotations.summary ?? '')?.[1])).toBeGreaterThan(WAIT_S);
  });

  it('[DE3] HomingGapRate: a tab comes back to logs of which the middle was not kept', async () => {
    expect(await firing('HomingGapRate')).toEqual([]);
    const tab = await cluster.tab(0, { conversation: 'gaps' });
    const ids: string[] = [];
    for (let n = 0; n < 8; n += 1) ids.push(await tab.run({ argv: ['seq', '5000'] }));
    for (const id of ids) await tab.ended(id);
    await tab.drop();
    tab.forget();
    await tab.resume(cluster.node(1).url);
    for (const id of ids) await tab.ended(id);
    const gaps = tab.recording.filter(({ method, params }) => method === 'command.gap' && params.reason === 'trimmed');
    expect(gaps.length).toBeGreaterThan(5);
    await fires('HomingGapRate');
    expect((await firing('HomingGapRate'))[0]?.labels).toMatchObject({ reason: 'trimmed', severity: 'ticket' });
  });

  it('[SE3] HomingReconnectStorm: as many come back within seconds as if a balancer had dropped them all, and again', async () => {
    expect(await firing('HomingReconnectStorm')).toEqual([]);
    const tabs = await Promise.all(
      Array.from({ length: 20 }, (_, n) => cluster.tab(n % 2, { conversation: `storm-${n}` })),
    );
    for (let round = 1; round <= 3; round += 1) {
      await Promise.all(tabs.map((tab) => tab.drop()));
      await Promise.all(tabs.map((tab, n) => tab.resume(cluster.node((n + round) % 2).url)));
    }
    await fires('HomingReconnectStorm');
    expect((await firing('HomingReconnectStorm'))[0]?.labels).toMatchObject({ severity: 'page' });
    await Promise.all(tabs.map((tab) => tab.close()));
  });

  it('[CO3] HomingCommandsLost and HomingClaimsLost: a worker stands still for longer than its lease', async () => {
    const tab = await cluster.tab(0, { conversation: 'frozen' });
    const id = await tab.run({ argv: ['sleep', '60'] });
    await tab.waitFor('the start', ({ method }) => method === 'command.started');
    const [worker] = cluster.workers;
    worker?.signal('SIGSTOP');
    await tab.ended(id);
    worker?.signal('SIGCONT');
    await fires('HomingCommandsLost');
    await fires('HomingClaimsLost');
    expect((await firing('HomingClaimsLost'))[0]?.labels.instance).toBe(hostOf(worker?.opsUrl ?? ''));
  });

  it('[O2] HomingEvictionPolicy, HomingRedisMemory and HomingRedisFull: Redis is set wrong, and nearly full', async () => {
    const asking = new Redis(redis.url);
    try {
      const used = Number(/used_memory:(\d+)/.exec(await asking.info('memory'))?.[1]);
      await asking.config('SET', 'maxmemory-policy', 'volatile-lru');
      await asking.config('SET', 'maxmemory', String(Math.round(used * 1.1)));
      await Promise.all(['HomingEvictionPolicy', 'HomingRedisMemory', 'HomingRedisFull'].map(fires));
      await asking.config('SET', 'maxmemory', '0');
      await asking.config('SET', 'maxmemory-policy', 'noeviction');
    } finally {
      asking.disconnect();
    }
  });

  it('[R1] HomingProbeFailing and HomingProcessDown: Redis hangs, and a node is gone', async () => {
    await cluster.node(1).kill();
    await fires('HomingProcessDown');
    expect((await firing('HomingProcessDown'))[0]?.labels.instance).toBe(hostOf(cluster.node(1).opsUrl));
    redis.suspend();
    try {
      await fires('HomingProbeFailing');
    } finally {
      redis.resume();
    }
  });
});
