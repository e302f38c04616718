/** Claims and the replicas that confirm them, on real replicas (FAULTS W1). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ClaimLane, type ClaimLaneOptions, createClaimLane } from '../../src/redis/claim-lane.js';
import { createRedis, parseRedisUrl } from '../../src/redis/connections.js';
import { scriptText } from '../../src/redis/scripts.js';
import { startRedis } from '../support/redis.js';
import { startRedisCluster, type TestRedisCluster } from '../support/redis-cluster.js';
import {
  createStores,
  newClaimId,
  newWorkerId,
  openTab,
  placeOf,
  type Stores,
  silentLog,
  submit,
} from '../support/stores.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/wait.js';

let count = 0;

function laneAt(url: string, options: Partial<ClaimLaneOptions> = {}) {
  const redis = createRedis(parseRedisUrl(url), 'claims', silentLog);
  let short = 0;
  const lane = createClaimLane({
    connect: () => redis,
    lua: scriptText('claim'),
    replicas: 'auto',
    shortfall: 'spawn',
    log: silentLog,
    meter: {
      count(name) {
        if (name === 'homing_claims_short_total') short += 1;
      },
      gauge() {},
      observe() {},
    },
    ...options,
  });
  return {
    run: lane.run,
    short: () => short,
    async [Symbol.asyncDispose]() {
      lane.close();
      redis.disconnect();
    },
  };
}

async function queued(stores: Stores, conversation = `claims-${++count}`) {
  const tab = await openTab(stores, placeOf('ann', conversation));
  const { commandId } = await submit(stores, { tab });
  return { commandId, key: stores.keys.command(commandId), args: [newClaimId(), newWorkerId(), 'group', ''] };
}
const answerOf = async (lane: Pick<ClaimLane, 'run'>, key: string, args: readonly string[]) =>
  ((await lane.run(key, args)) as string[])[0];

describe('on a Cluster', () => {
  let redis: TestRedisCluster;
  let stores: Stores;
  beforeAll(async () => {
    redis = await startRedisCluster();
    stores = await createStores(redis.url);
  });
  afterAll(async () => {
    await stores[Symbol.asyncDispose]();
    await redis[Symbol.asyncDispose]();
  });

  it('[W1] a claim that was answered is on the replica, at each master', async () => {
    await using lane = laneAt(redis.url);
    for (let n = 0; n < 12; n += 1) {
      const { key, args } = await queued(stores);
      expect(await answerOf(lane, key, args)).toBe('claimed');
      const replica = await redis.replicaOf(await redis.masterOf(key));
      await replica.direct.readonly();
      expect(await replica.direct.hget(key, 'claim')).toBe(args[0]);
    }
    expect(lane.short()).toBe(0);
  });

  it('[W1] with a replica that does not answer it is counted and started, or refused until one confirms', async () => {
    const { key, args } = await queued(stores);
    const master = await redis.masterOf(key);
    const replica = await redis.replicaOf(master);
    await using spawning = laneAt(redis.url);
    await using refusing = laneAt(redis.url, { shortfall: 'refuse' });
    replica.suspend();
    try {
      expect(await answerOf(spawning, key, args)).toBe('claimed');
      expect(spawning.short()).toBe(1);
      await expect(refusing.run(key, args)).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    } finally {
      replica.resume();
    }
    // The same claim again, over the same and over a fresh socket: confirmed, and still this attempt's.
    await until('the claim to be confirmed', async () => (await answerOf(refusing, key, args)) === 'claimed');
    await using fresh = laneAt(redis.url, { shortfall: 'refuse' });
    expect(await answerOf(fresh, key, args)).toBe('claimed');
    expect(await answerOf(fresh, key, [newClaimId(), ...args.slice(1)])).toBe('refused');
    await redis.whole();
  });
});

describe('on one server', () => {
  it('[W1] without replicas nobody is waited for, unless one is demanded', async () => {
    await using redis = await startRedis();
    await using stores = await createStores(redis.url);
    await using lane = laneAt(redis.url);
    await using strict = laneAt(redis.url, { replicas: 1, shortfall: 'refuse' });
    const { key, args } = await queued(stores);
    const beganMs = performance.now();
    expect(await answerOf(lane, key, args)).toBe('claimed');
    expect(performance.now() - beganMs).toBeLessThan(400);
    await expect(strict.run(key, args)).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
  });

  it('[W1][CO2] a claim whose answer is lost is not sent again by itself, and is its own when asked for again', async () => {
    await using redis = await startRedis();
    await using stores = await createStores(redis.url);
    await using proxy = await startTcpProxy({ port: redis.port });
    await using lane = laneAt(`redis://127.0.0.1:${proxy.port}`);
    const { key, args } = await queued(stores);
    const calls = async () =>
      Number(/cmdstat_eval:calls=(\d+)/.exec(await stores.redis.info('commandstats'))?.[1] ?? 0);
    const before = await calls();
    const lost = proxy.swallowNextReply((bytes) => bytes.includes(args[0] as string));
    await expect(lane.run(key, args)).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    await lost;
    expect(await calls()).toBe(before + 1);
    expect(await answerOf(lane, key, args)).toBe('claimed');
    expect(await calls()).toBe(before + 2);
  });
});
