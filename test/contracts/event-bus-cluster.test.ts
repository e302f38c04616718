/** The event bus on a Cluster and a Sentinel: every channel is heard at the master of its slot, whoever that is now. */
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Cluster, Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import type { EventBus } from '../../src/domain/ports.js';
import { makeNodeId, makeSessionId, type SessionId, tagFromDigest } from '../../src/protocol/ids.js';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { createEventBus } from '../../src/redis/event-bus.js';
import { createKeys, type Keys } from '../../src/redis/keys.js';
import { askMasters } from '../../src/redis/masters.js';
import { uniquePrefix } from '../support/redis.js';
import { slotOf, startRedisCluster, type TestRedisCluster } from '../support/redis-cluster.js';
import { startRedisSentinel } from '../support/redis-sentinel.js';
import { chance, silentLog } from '../support/stores.js';
import { until, within } from '../support/wait.js';

const newSession = () => makeSessionId(tagFromDigest(randomBytes(32)), randomBytes(16));

interface Bench extends AsyncDisposable {
  readonly bus: EventBus;
  readonly commands: Redis | Cluster;
  readonly keys: Keys;
  restored(): number;
  /** Publishes to every session until each has heard one of these, as a sweep or a later entry would. */
  allHear(heard: ReadonlyMap<SessionId, string[]>): Promise<void>;
}

async function openBench(url: string): Promise<Bench> {
  const target = parseRedisUrl(url);
  const commands = createRedis(target, 'commands', silentLog);
  const subscriber = createRedis(target, 'subscriber', silentLog);
  await waitForRedis(commands, 5_000);
  await waitForRedis(subscriber, 5_000);
  const keys = createKeys(uniquePrefix());
  const meter = { count() {}, gauge() {}, observe() {} };
  const selfId = makeNodeId(randomBytes(16));
  const bus = createEventBus({ commands, subscriber, keys, selfId, log: silentLog, meter, chance });
  let restored = 0;
  bus.onRestored(() => {
    restored += 1;
  });
  let round = 0;
  return {
    bus,
    commands,
    keys,
    restored: () => restored,
    async allHear(heard) {
      round += 1;
      const word = `round ${round}`;
      const deaf = new Set(heard.keys());
      await until(
        `every session to hear ${word}`,
        async () => {
          await Promise.all(
            [...deaf].map((id) => commands.spublish(keys.sessionChannel(id), word).catch(() => undefined)),
          );
          for (const id of deaf) if (heard.get(id)?.includes(word)) deaf.delete(id);
          return deaf.size === 0;
        },
        15_000,
        100,
      );
    },
    async [Symbol.asyncDispose]() {
      await bus.close();
      commands.disconnect();
      subscriber.disconnect();
    },
  };
}

async function listen(bench: Bench, count: number): Promise<Map<SessionId, string[]>> {
  const heard = new Map(Array.from({ length: count }, () => [newSession(), [] as string[]]));
  await within(
    'the subscriptions',
    Promise.all([...heard].map(([id, list]) => bench.bus.subscribeSession(id, (message) => list.push(message)))),
  );
  return heard;
}

/** How long the longest question to all masters took, answered or not, until that was asked for. */
function askAllTheTime(redis: Redis | Cluster) {
  let longestMs = 0;
  let over = false;
  const asking = (async () => {
    while (!over) {
      const startedMs = performance.now();
      await askMasters(redis, (master) => master.time()).catch(() => undefined);
      longestMs = Math.max(longestMs, performance.now() - startedMs);
      await delay(5);
    }
  })();
  return {
    async longestMs() {
      over = true;
      await asking;
      return longestMs;
    },
  };
}

/** Something happens to the slot of one of twenty sessions: everyone is told, and hears again. */
async function hearThrough(change: (redis: TestRedisCluster, slot: number) => Promise<unknown>): Promise<void> {
  await using redis = await startRedisCluster();
  await using bench = await openBench(redis.url);
  const heard = await listen(bench, 20);
  const [session] = heard.keys();
  if (session === undefined) throw new Error('no session');
  const before = bench.restored();
  const changedMs = performance.now();
  await change(redis, slotOf(bench.keys.sessionChannel(session)));
  await until('everyone to be told', () => bench.restored() > before);
  console.info(`told after ${Math.round(performance.now() - changedMs)} ms`);
  await bench.allHear(heard);
}

describe('on a Cluster', () => {
  it('[R1] every channel is heard in order, and each master proves itself', async () => {
    await using redis = await startRedisCluster();
    await using bench = await openBench(redis.url);
    const heard = await listen(bench, 300);
    const words = Array.from({ length: 20 }, (_, n) => `message ${n}`);
    for (const word of words) {
      await Promise.all([...heard.keys()].map((id) => bench.commands.spublish(bench.keys.sessionChannel(id), word)));
    }
    await until('all of it', () => [...heard.values()].every((list) => list.length === words.length));
    for (const list of heard.values()) expect(list).toEqual(words);
    await until('a proof of every master', () => bench.bus.probeAgeMs() < 2_000);
    // One listener each, where its slot is: no channel is asked for twice, no pattern exists.
    for (const master of await redis.masters()) {
      const channels = (await master.direct.pubsub('SHARDCHANNELS')) as string[];
      const mine = channels.filter((name) => name.includes(':s:ses_'));
      expect(mine.length).toBeGreaterThan(50);
      const counts = (await master.direct.pubsub('SHARDNUMSUB', ...mine)) as (string | number)[];
      expect(counts.filter((_, n) => n % 2 === 1).every((count) => count === 1)).toBe(true);
      expect(await master.direct.pubsub('NUMPAT')).toBe(0);
    }
  });

  it('[R1][DE7] after its master was killed a channel is heard at the promoted replica, and everyone is told', async () => {
    await using redis = await startRedisCluster();
    await using bench = await openBench(redis.url);
    const heard = await listen(bench, 100);
    const [master] = await redis.masters();
    if (master === undefined) throw new Error('no master');
    const killedMs = performance.now();
    const silent = until('that master to stop proving itself', () => bench.bus.probeAgeMs() > 2_500);
    const asked = askAllTheTime(bench.commands);
    await redis.failover(master);
    await silent;
    // What is asked of every master alone fails soon for a dead one, or nobody notices for so long that another answers.
    expect(await asked.longestMs()).toBeLessThan(3_000);
    const wholeMs = performance.now();
    await bench.allHear(heard);
    const heardMs = performance.now();
    expect(heardMs - wholeMs).toBeLessThan(5_000);
    await until('everyone to be told', () => bench.restored() > 0);
    await until('proofs of all masters', () => bench.bus.probeAgeMs() < 2_000);
    console.info(`failover ${Math.round(wholeMs - killedMs)} ms, heard ${Math.round(heardMs - wholeMs)} ms after it`);
  });

  it('[M1] when its slot moves to another master a channel moves with it, and everyone is told', async () => {
    await hearThrough((redis, slot) => redis.moveSlot(slot));
  });

  it('[M1] a channel that its master has ended, although its slot stays, is subscribed again, and everyone is told', async () => {
    await hearThrough((redis, slot) => redis.sayOwnerAgain(slot));
  });

  it('[R1] a full restart of the Cluster is survived, with every channel', async () => {
    await using redis = await startRedisCluster();
    await using bench = await openBench(redis.url);
    const heard = await listen(bench, 50);
    await redis.restart();
    const wholeMs = performance.now();
    await bench.allHear(heard);
    console.info(`heard ${Math.round(performance.now() - wholeMs)} ms after the restart`);
  });
});

describe('on a Sentinel', () => {
  it('[R1] channels are heard at the new master', async () => {
    await using redis = await startRedisSentinel();
    await using bench = await openBench(redis.url);
    const heard = await listen(bench, 100);
    await redis.failover();
    const readyMs = performance.now();
    await bench.allHear(heard);
    console.info(`heard ${Math.round(performance.now() - readyMs)} ms after the failover`);
    await until('everyone to be told', () => bench.restored() > 0);
  });
});
