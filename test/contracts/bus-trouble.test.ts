/** A node whose subscription is in trouble: its link is half open, it alone hears nothing, or Redis is away for all. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../support/node.js';
import type { Arrival } from '../support/recording.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { openTab } from '../support/tab.js';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { makeToken } from '../support/tokens.js';
import { until } from '../support/wait.js';

describe.sequential('the link of a node to its channels', () => {
  const secret = randomBytes(32).toString('hex');
  let redis: TestRedis;
  let stores: Stores;
  /** Between the node's subscriber and Redis; its commands go past it. */
  let proxy: TcpProxy;
  let node: TestNode;
  beforeAll(async () => {
    redis = await startRedis();
    stores = await createStores(redis.url);
    proxy = await startTcpProxy({ port: redis.port });
    node = await startTestNode({ redis: { ...redis, url: proxy.url }, stores, secret });
  });
  afterAll(async () => {
    await node.close();
    await proxy[Symbol.asyncDispose]();
    await stores[Symbol.asyncDispose]();
    await redis[Symbol.asyncDispose]();
  });
  const tabHere = () => openTab(node.url, { token: makeToken(secret, { sub: 'ann' }) });
  const ready = async () => (await fetch(`${node.opsUrl}/readyz`)).status;

  it.each(['to client', 'to server'] as const)(
    '[R1] half open %s: found in under 5 s, and mended',
    async (direction) => {
      const before = node.count('homing_bus_restored_total');
      const { taken } = proxy;
      const beganMs = performance.now();
      proxy.blackhole(direction);
      await until('another connection to be made', () => proxy.taken > taken);
      const foundMs = performance.now() - beganMs;
      expect(foundMs).toBeLessThan(5_000);
      await until('the subscription to be made anew', () => node.count('homing_bus_restored_total') > before);
      const tookMs = performance.now() - beganMs;
      console.info(`half open ${direction}: found after ${Math.round(foundMs)} ms, mended after ${Math.round(tookMs)}`);
      await until('it to be ready', async () => (await ready()) === 200);
    },
  );

  it('[R1][SE1] Redis away for all: sockets stay, and heartbeats say that the bus is down', async () => {
    const tab = await tabHere();
    let code: number | undefined;
    void tab.socket.closed.then((close) => {
      code = close.code;
    });
    redis.suspend();
    try {
      await tab.waitFor('bus: down', (a) => a.method === 'session.heartbeat' && a.params.bus === 'down', 12_000);
      const sinceMs = performance.now();
      expect(await ready()).toBe(503);
      // Longer than it takes to give up on a subscription that alone is dead.
      await until('that time', () => performance.now() - sinceMs > 8_000, 10_000);
      expect(code).toBeUndefined();
    } finally {
      redis.resume();
    }
    const resumedMs = performance.now();
    const fine = (a: Arrival) => a.method === 'session.heartbeat' && a.params.bus === 'ok' && a.timeMs > resumedMs;
    await tab.waitFor('bus: ok', fine, 12_000);
    expect(code).toBeUndefined();
    await until('a command to be taken again', () => tab.rpc('command.list', {}).then(() => true), 10_000);
    await tab.close();
  }, 60_000);

  it('[R1] commands work and nothing is heard: not ready, and every client is sent elsewhere, once, spread over a moment', async () => {
    const tabs = await Promise.all(Array.from({ length: 12 }, tabHere));
    const beganMs = performance.now();
    await proxy.refuse(true);
    proxy.cut();
    const closes = await Promise.all(tabs.map((tab) => tab.socket.closed));
    expect(new Set(closes.map(({ code }) => code))).toEqual(new Set([4004]));
    const times = closes.map(({ timeMs }) => timeMs - beganMs).sort((a, b) => a - b);
    expect(times[0]).toBeGreaterThan(9_000);
    expect(times.at(-1)).toBeLessThan(18_000);
    expect((times.at(-1) as number) - (times[0] as number)).toBeGreaterThan(300);
    expect(await ready()).toBe(503);
    expect(node.count('homing_bus_probe_age_seconds')).toBeGreaterThan(5);
    expect(node.count('homing_sessions_moved_total')).toBe(12);
    await proxy.refuse(false);
    await until('it to be ready again', async () => (await ready()) === 200, 10_000);
    await (await tabHere()).close();
  }, 60_000);
});
