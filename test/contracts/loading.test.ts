/** A server that still loads its data guesses how long that takes; whoever believes it waits long after it is ready. */
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { createRedis, parseRedisUrl } from '../../src/redis/connections.js';
import { startRedis } from '../support/redis.js';
import { silentLog } from '../support/stores.js';
import { until } from '../support/wait.js';

test('[CO9] a Redis that was loading is used as soon as it is ready, whatever it had guessed', async () => {
  // Looks at its connections while it loads, and takes a moment for each key.
  await using server = await startRedis({
    config: ['key-load-delay 500', 'loading-process-events-interval-bytes 1024'],
  });
  const writer = new Redis(server.url);
  // One command for each key, so that each is waited for.
  const single = writer.pipeline();
  for (let n = 0; n < 20_000; n += 1) single.incr(`one:${n}`);
  await single.exec();
  writer.disconnect();
  await server.stop();

  const ready = server.start();
  const direct = new Redis(server.url, { enableReadyCheck: false });
  direct.on('error', () => {});
  const guess = async () => Number(/loading_eta_seconds:(\d+)/.exec(await direct.info('persistence'))?.[1] ?? 0);
  await until('a long guess', async () => (await guess()) >= 5);
  const ours = createRedis(parseRedisUrl(server.url), 'commands', silentLog);
  // It has asked, and was told to wait.
  await until('a connection', () => ours.status === 'connect');
  await direct.ping().catch(() => undefined);
  await direct.config('SET', 'key-load-delay', '0');
  await ready;
  const readyMs = performance.now();
  await until('a ready connection', () => ours.status === 'ready');
  expect(performance.now() - readyMs).toBeLessThan(2_000);
  expect(await ours.ping()).toBe('PONG');
  ours.disconnect();
  direct.disconnect();
});
