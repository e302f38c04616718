/** What is asked in one turn of the event loop comes to Redis together and in order. */
import { Cluster, type Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { DEPLOYMENTS, type Deployment } from '../support/deployments.js';
import { uniquePrefix } from '../support/redis.js';

const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const COMMANDS = 200;
/** Between two commands of one turn: Redis would have read the first long before. */
const BETWEEN_MS = 0.2;

function busyFor(ms: number): void {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}

describe.each(DEPLOYMENTS)('on $name', ({ start }) => {
  let server: Deployment;
  let redis: Redis | Cluster;
  beforeAll(async () => {
    server = await start();
    redis = createRedis(parseRedisUrl(server.url), 'commands', silent);
    await waitForRedis(redis, 5_000);
  });
  afterAll(async () => {
    redis.disconnect();
    await server[Symbol.asyncDispose]();
  });

  /** How often the servers found something to read. */
  const reads = async () => {
    const nodes = redis instanceof Cluster ? redis.nodes('master') : [redis];
    const stats = await Promise.all(nodes.map((node) => node.info('stats')));
    return stats.reduce((sum, text) => sum + Number(/^total_reads_processed:(\d+)/m.exec(text)?.[1]), 0);
  };

  test('many commands of one turn are few reads for Redis, and run in the order in which they were asked', async () => {
    const key = `{${uniquePrefix()}}:list`;
    const before = await reads();
    // Also those that are asked by what runs later in the same turn.
    const lengths = await Promise.all(
      Array.from({ length: COMMANDS }, async (_, n) => {
        if (n % 2 === 1) await undefined;
        busyFor(BETWEEN_MS);
        return redis.rpush(key, n);
      }),
    );
    // Pings and the cluster's own talk are a few more.
    expect((await reads()) - before).toBeLessThan(COMMANDS / 4);
    const asked = [...lengths.keys()].sort((a, b) => (lengths[a] ?? 0) - (lengths[b] ?? 0));
    expect(await redis.lrange(key, 0, -1)).toEqual(asked.map(String));
    expect(new Set(lengths).size).toBe(COMMANDS);
    expect(lengths.filter((_, n) => n % 2 === 0)).toEqual(Array.from({ length: COMMANDS / 2 }, (_, n) => n + 1));
  });

  test('what was asked in the turn of a disconnect still arrives', async () => {
    const key = `{${uniquePrefix()}}:last`;
    const other = createRedis(parseRedisUrl(server.url), 'commands', silent);
    await waitForRedis(other, 5_000);
    await other.get(key);
    const set = other.set(key, 'here').catch(() => undefined);
    other.disconnect();
    await set;
    await expect.poll(() => redis.get(key)).toBe('here');
  });
});
