/** The event bus on a real Redis, behind a proxy that cuts and hangs. */
import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import type { Chance, EventBus } from '../../src/domain/ports.js';
import { makeCommandId, makeNodeId, makeSessionId, makeWorkerId, tagFromDigest } from '../../src/protocol/ids.js';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { createEventBus } from '../../src/redis/event-bus.js';
import { createKeys, type Keys } from '../../src/redis/keys.js';
import { startRedis, type TestRedis, uniquePrefix } from '../support/redis.js';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { until, within } from '../support/wait.js';

const chance: Chance = { bytes: (size) => randomBytes(size), random: Math.random };
const tag = tagFromDigest(randomBytes(32));
const newSession = () => makeSessionId(tag, randomBytes(16));

/** A bus of one test's own, with all that can be done to it. */
interface Bench extends AsyncDisposable {
  readonly server: TestRedis;
  /** Past the proxy: what Redis really has. */
  readonly direct: Redis;
  /** Between the subscriber and Redis. */
  readonly proxy: TcpProxy;
  readonly subscriber: Redis;
  readonly keys: Keys;
  readonly bus: EventBus;
  readonly said: string[];
  restored(): number;
  count(metric: string): number;
  receiversOf(channel: string): Promise<number>;
}

async function openBench(): Promise<Bench> {
  const counts = new Map<string, number>();
  const meter = {
    count: (name: string) => void counts.set(name, (counts.get(name) ?? 0) + 1),
    gauge() {},
    observe() {},
  };
  const said: string[] = [];
  const note = (_fields: object, message: string) => void said.push(message);
  const log = { debug() {}, info() {}, warn: note, error: note, child: () => log };
  const server = await startRedis();
  const proxy = await startTcpProxy(server);
  const direct = createRedis(parseRedisUrl(server.url), 'commands', log) as Redis;
  const commands = createRedis(parseRedisUrl(server.url), 'commands', log) as Redis;
  const subscriber = createRedis(parseRedisUrl(proxy.url), 'subscriber', log) as Redis;
  for (const redis of [direct, commands, subscriber]) await waitForRedis(redis, 5_000);
  const keys = createKeys(uniquePrefix());
  const selfId = makeNodeId(randomBytes(16));
  const bus = createEventBus({ commands, subscriber, keys, selfId, log, meter, chance });
  let restored = 0;
  bus.onRestored(() => {
    restored += 1;
  });
  return {
    server,
    direct,
    proxy,
    subscriber,
    keys,
    bus,
    said,
    restored: () => restored,
    count: (metric) => counts.get(metric) ?? 0,
    receiversOf: async (channel) => Number((await direct.pubsub('SHARDNUMSUB', channel))[1]),
    async [Symbol.asyncDispose]() {
      await bus.close();
      for (const redis of [direct, commands, subscriber]) redis.disconnect();
      await proxy[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

test('delivers the messages of a channel in order to its own listeners and to no others', async () => {
  await using bench = await openBench();
  const { direct, keys, bus } = bench;
  const [a, b] = [newSession(), newSession()];
  const seenA: string[] = [];
  const seenB: string[] = [];
  await bus.subscribeSession(a, (message) => seenA.push(message));
  await bus.subscribeSession(b, (message) => seenB.push(message));
  const sent = Array.from({ length: 500 }, (_, n) => `message ${n} é`);
  await Promise.all(sent.map((message) => direct.spublish(keys.sessionChannel(a), message)));
  await direct.spublish(keys.sessionChannel(b), 'last');
  await until('the last message', () => seenB.length === 1);
  expect(seenA).toEqual(sent);
  expect(seenB).toEqual(['last']);
  expect(await direct.pubsub('NUMPAT')).toBe(0);
});

test('carries control nudges and asks on channels of their own', async () => {
  await using bench = await openBench();
  const { direct, keys, bus } = bench;
  const commandId = makeCommandId(tag, randomBytes(16));
  const workerId = makeWorkerId(randomBytes(16));
  const seen: string[] = [];
  await bus.subscribeControl(commandId, (nudge) => seen.push(nudge));
  await bus.subscribeAsk(workerId, (message) => seen.push(message));
  await direct.spublish(keys.controlChannel(commandId), 'kill');
  await bus.ask(workerId, '{"type":"drain"}');
  await until('both', () => seen.length === 2);
  expect(seen).toEqual(['kill', '{"type":"drain"}']);
});

describe('subscriptions are counted', () => {
  test("[SE1] an old connection's close does not end a newer one's subscription", async () => {
    await using bench = await openBench();
    const { direct, keys, bus, receiversOf } = bench;
    const id = newSession();
    const seen: string[] = [];
    const old = await bus.subscribeSession(id, () => seen.push('old'));
    const newer = await bus.subscribeSession(id, () => seen.push('newer'));
    await old.close();
    await old.close();
    await direct.spublish(keys.sessionChannel(id), 'x');
    await until('the newer listener', () => seen.length > 0);
    expect(seen).toEqual(['newer']);
    expect(await receiversOf(keys.sessionChannel(id))).toBe(1);
    await newer.close();
    expect(await receiversOf(keys.sessionChannel(id))).toBe(0);
  });

  test('closing and subscribing again in one breath, many times, ends subscribed', async () => {
    await using bench = await openBench();
    const { direct, keys, bus, receiversOf } = bench;
    const id = newSession();
    let heard = 0;
    let current = await bus.subscribeSession(id, () => {});
    for (let n = 0; n < 50; n += 1) {
      const closing = current.close();
      const opening = bus.subscribeSession(id, () => {
        heard += 1;
      });
      if (n % 2 === 0) await closing;
      current = await opening;
    }
    await direct.spublish(keys.sessionChannel(id), 'x');
    await until('the last listener', () => heard === 1);
    const abandoned = bus.subscribeSession(newSession(), () => {});
    await (await abandoned).close();
    expect(await receiversOf(keys.sessionChannel(id))).toBe(1);
  });

  test('after its close a listener is never called again, and a failing one harms no other', async () => {
    await using bench = await openBench();
    const { direct, keys, bus, said, count } = bench;
    const id = newSession();
    const seen: string[] = [];
    const failing = await bus.subscribeSession(id, () => {
      throw new Error('broken listener');
    });
    await bus.subscribeSession(id, (message) => seen.push(message));
    await direct.spublish(keys.sessionChannel(id), 'one');
    await until('one', () => seen.length === 1);
    expect(said).toContain('A listener of the event bus failed');
    expect(count('homing_bus_handler_errors_total')).toBe(1);
    void failing.close();
    await direct.spublish(keys.sessionChannel(id), 'two');
    await until('two', () => seen.length === 2);
    expect(count('homing_bus_handler_errors_total')).toBe(1);
  });
});

describe.concurrent('[R1] after a loss', () => {
  test('every channel is subscribed again before anyone is told, thousands as well', async () => {
    await using bench = await openBench();
    const { direct, proxy, keys, bus, restored } = bench;
    const ids = Array.from({ length: 2_000 }, newSession);
    let heard = 0;
    await Promise.all(
      ids.map((id) =>
        bus.subscribeSession(id, () => {
          heard += 1;
        }),
      ),
    );
    let receiversWhenTold: Promise<unknown[]> | undefined;
    bus.onRestored(() => {
      receiversWhenTold ??= Promise.all(ids.map((id) => direct.spublish(keys.sessionChannel(id), 'x')));
    });
    proxy.cut();
    await until('restored', () => restored() === 1);
    expect(new Set(await receiversWhenTold)).toEqual(new Set([1]));
    await until('every message', () => heard === ids.length);
  });

  test('a second loss in the middle of it is survived, and told once all is well', async () => {
    await using bench = await openBench();
    const { direct, proxy, subscriber, keys, bus, restored } = bench;
    const ids = Array.from({ length: 1_500 }, newSession);
    await Promise.all(ids.map((id) => bus.subscribeSession(id, () => {})));
    proxy.delayMs = 30;
    proxy.cut();
    await new Promise((resolve) => subscriber.once('ready', resolve));
    proxy.cut();
    proxy.delayMs = 0;
    await until('restored', () => restored() > 0);
    const receivers = await Promise.all(ids.map((id) => direct.spublish(keys.sessionChannel(id), 'x')));
    expect(new Set(receivers)).toEqual(new Set([1]));
  });

  test('what was closed during the loss stays closed, what was wanted during it is subscribed', async () => {
    await using bench = await openBench();
    const { proxy, subscriber, keys, bus, restored, receiversOf } = bench;
    const [gone, wanted] = [newSession(), newSession()];
    const subscription = await bus.subscribeSession(gone, () => {});
    await proxy.refuse(true);
    const lost = new Promise((resolve) => subscriber.once('close', resolve));
    proxy.cut();
    await lost;
    await subscription.close();
    const wanting = bus.subscribeSession(wanted, () => {});
    await proxy.refuse(false);
    await within('the subscription', wanting, 3_000);
    await until('restored', () => restored() === 1);
    expect(await receiversOf(keys.sessionChannel(gone))).toBe(0);
    expect(await receiversOf(keys.sessionChannel(wanted))).toBe(1);
  });

  test('a refused resubscribe is tried again, then the connection is made anew; nothing is thrown', async () => {
    await using bench = await openBench();
    const { direct, proxy, keys, bus, said, restored, receiversOf } = bench;
    const unheard: unknown[] = [];
    const hear = (reason: unknown) => void unheard.push(reason);
    process.on('unhandledRejection', hear);
    const id = newSession();
    await bus.subscribeSession(id, () => {});
    await direct.call('ACL', 'SETUSER', 'default', 'resetchannels');
    try {
      proxy.cut();
      await until('several refusals', () => said.filter((line) => line.includes('refused')).length >= 7);
      expect(restored()).toBe(0);
      await expect(bus.subscribeSession(newSession(), () => {})).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    } finally {
      await direct.call('ACL', 'SETUSER', 'default', 'allchannels');
    }
    await until('restored', () => restored() > 0);
    expect(await receiversOf(keys.sessionChannel(id))).toBe(1);
    process.off('unhandledRejection', hear);
    expect(unheard).toEqual([]);
  });

  test('a server that was stopped and started again is found, and its channels with it', async () => {
    await using bench = await openBench();
    const { server, direct, keys, bus, restored, receiversOf } = bench;
    const id = newSession();
    await bus.subscribeSession(id, () => {});
    await server.stop();
    const refused = bus.subscribeSession(newSession(), () => {});
    await expect(within('an answer', refused, 4_000)).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    await expect(bus.ask(makeNodeId(randomBytes(16)), 'x')).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    await server.start();
    await until('restored', () => restored() > 0, 3_000);
    await waitForRedis(direct, 5_000);
    expect(await receiversOf(keys.sessionChannel(id))).toBe(1);
  });
});

describe.concurrent('[DE7] a bus that only looks alive', () => {
  test('is found and mended within 5 s when its link is half open', async () => {
    await using bench = await openBench();
    const { proxy, subscriber, keys, bus, restored, receiversOf } = bench;
    const id = newSession();
    await bus.subscribeSession(id, () => {});
    await until('a probe', () => bus.probeAgeMs() < 1_000);
    const startedMs = performance.now();
    proxy.freeze();
    await new Promise((resolve) => subscriber.once('close', resolve));
    expect(performance.now() - startedMs).toBeLessThan(5_000);
    expect(bus.probeAgeMs()).toBeGreaterThan(2_000);
    proxy.cut();
    proxy.thaw();
    await until('restored', () => restored() === 1);
    await until('a probe', () => bus.probeAgeMs() < 1_000);
    expect(await receiversOf(keys.sessionChannel(id))).toBe(1);
  });

  test('is found by its probe when the subscriptions are gone and pings are answered', async () => {
    await using bench = await openBench();
    const { subscriber, keys, bus, restored, count, receiversOf } = bench;
    const id = newSession();
    await bus.subscribeSession(id, () => {});
    await until('a probe', () => bus.probeAgeMs() < 1_000);
    // Behind the back of the bus, as a server that lost them would.
    await subscriber.sunsubscribe();
    await until('restored', () => restored() === 1, 10_000);
    expect(count('homing_bus_probe_lost_total')).toBe(1);
    expect(await receiversOf(keys.sessionChannel(id))).toBe(1);
  });
});

test('a closed bus listens to nothing, calls nobody and keeps no timer', async () => {
  await using bench = await openBench();
  const { direct, subscriber, keys, bus, receiversOf } = bench;
  const id = newSession();
  let heard = 0;
  await bus.subscribeSession(id, () => {
    heard += 1;
  });
  await bus.close();
  await bus.close();
  expect(await receiversOf(keys.sessionChannel(id))).toBe(0);
  expect(await direct.spublish(keys.sessionChannel(id), 'late')).toBe(0);
  expect(heard).toBe(0);
  for (const event of ['close', 'ready', 'smessage']) expect(subscriber.listenerCount(event)).toBeLessThanOrEqual(1);
  await expect(bus.subscribeSession(id, () => {})).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
});
