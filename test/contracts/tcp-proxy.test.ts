/** The proxy of the journeys does what they believe it does. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { startTcpProxy } from '../support/tcp-proxy.js';

const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };

let server: TestRedis;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server[Symbol.asyncDispose]());

test('a swallowed reply was carried out by the server, and the client came back on another connection', async () => {
  await using proxy = await startTcpProxy(server);
  const redis = createRedis(parseRedisUrl(proxy.url), 'commands', silent);
  await waitForRedis(redis, 5_000);
  const swallowed = proxy.swallowNextReply((bytes) => bytes.includes('swallow-me'));
  // ioredis sends it again after the reconnect: carried out twice, answered once.
  const answer = redis.incr('swallow-me');
  await swallowed;
  expect(await answer).toBe(2);
  redis.disconnect();
});

test('a frozen link passes nothing until it thaws, and is found within 5 s by a connection that pings', async () => {
  await using proxy = await startTcpProxy(server);
  const redis = createRedis(parseRedisUrl(proxy.url), 'commands', silent);
  await waitForRedis(redis, 5_000);
  const startedMs = performance.now();
  proxy.freeze();
  await new Promise((resolve) => redis.once('close', resolve));
  expect(performance.now() - startedMs).toBeLessThan(5_000);
  proxy.cut();
  proxy.thaw();
  await waitForRedis(redis, 5_000);
  expect(await redis.ping()).toBe('PONG');
  redis.disconnect();
});

test('[CO9] a refused port fails calls at once and is forgotten soon after it opens again', async () => {
  await using proxy = await startTcpProxy(server);
  const redis = createRedis(parseRedisUrl(proxy.url), 'commands', silent);
  await waitForRedis(redis, 5_000);
  await proxy.refuse(true);
  const closed = new Promise((resolve) => redis.once('close', resolve));
  expect(proxy.cut()).toBe(1);
  await closed;
  await expect(redis.ping()).rejects.toThrow();
  await proxy.refuse(false);
  await waitForRedis(redis, 3_000);
  proxy.delayMs = 50;
  const startedMs = performance.now();
  await redis.ping();
  // Once each way; a timer may fire a millisecond early.
  expect(performance.now() - startedMs).toBeGreaterThanOrEqual(95);
  redis.disconnect();
});
