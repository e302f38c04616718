/** Homing with the users of `deploy/redis-users.acl` on a real Redis: everything works, and nothing that they must not do. */
import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createKeys } from '../../src/redis/keys.js';
import { type Cluster, runHoming, startCluster } from '../support/cluster.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { ROLES, type Role, redisUsers } from '../support/redis-users.js';

const passwords = Object.fromEntries(ROLES.map((role) => [role, randomBytes(16).toString('hex')]));
const ADMIN = randomBytes(16).toString('hex');
const PREFIX = 'acl';

const users = redisUsers(PREFIX, (role) => passwords[role] ?? '');

let redis: TestRedis;
let cluster: Cluster;
const urlOf = (role: Role) => `redis://${role}:${passwords[role]}@${redis.host}:${redis.port}`;
const as = (role: Role) => new Redis(urlOf(role), { lazyConnect: true, maxRetriesPerRequest: 1 });
let admin: Redis;

beforeAll(async () => {
  redis = await startRedis({
    config: [...users, `user admin on >${ADMIN} ~* &* +@all`, 'client-output-buffer-limit pubsub 256mb 64mb 60'],
  });
  admin = new Redis(`redis://admin:${ADMIN}@${redis.host}:${redis.port}`);
  cluster = await startCluster({
    nodes: 2,
    workers: 1,
    redis: { url: urlOf('homing-node') },
    // With every limit that is counted in Redis, none of which is met.
    env: {
      HOMING_PREFIX: PREFIX,
      HOMING_MAX_SESSIONS: '1000',
      HOMING_MAX_QUEUED: '1000',
      HOMING_MAX_QUEUED_PER_SESSION: '1000',
      HOMING_MAX_RETAINED_BYTES: '100000000',
      HOMING_MAX_RETAINED_BYTES_PER_SESSION: '100000000',
      HOMING_MAX_RUNNING: '1000',
      HOMING_MAX_RUNS_PER_SEC: '1000',
      HOMING_MAX_RUNS_PER_SEC_PER_PRINCIPAL: '1000',
      HOMING_MAX_WRITES_PER_SEC_PER_PRINCIPAL: '1000',
      HOMING_MAX_KILLS_PER_SEC_PER_PRINCIPAL: '1000',
    },
    workerEnv: () => ({ HOMING_REDIS_URL: urlOf('homing-worker') }),
  });
});
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  admin?.disconnect();
  await redis?.[Symbol.asyncDispose]();
});

/** What Redis refused to anybody. */
const refused = async () => ((await admin.call('ACL', 'LOG')) as unknown[]).map((entry) => JSON.stringify(entry));

describe('with a user for each role', () => {
  it('[OW2] [CO5] commands run, are written to, move, are ended and found, and nothing is refused', async () => {
    const conversation = 'acl';
    const [a, b] = [await cluster.tab(0, { conversation }), await cluster.tab(1, { conversation })];
    const first = await a.run({ argv: ['cat'], stdin: 'pipe' });
    await a.rpc('command.write', { commandId: first, offset: 0, data: 'typed\n', eof: true });
    await a.ended(first);
    expect(a.output(first)).toBe('typed\n');
    const second = await a.run({ argv: ['sleep', '60'], idempotencyKey: 'once' });
    await a.waitFor('the start', ({ method, params }) => method === 'command.started' && params.commandId === second);
    await a.close();
    await b.waitFor('the move', ({ method, params }) => method === 'command.owner' && params.commandId === second);
    await b.rpc('command.kill', { commandId: second, graceMs: 0 });
    await b.ended(second);
    const ops = (path: string) =>
      fetch(`${cluster.nodes[0]?.opsUrl}${path}`, { headers: { authorization: `Bearer ${cluster.adminToken}` } });
    for (const path of [
      '/admin',
      '/admin/parked',
      `/admin/commands/${second}`,
      '/admin/queues/api/queues',
      '/readyz',
    ]) {
      expect((await ops(path)).status, path).toBe(200);
    }
    await expect.poll(() => cluster.metric(0, 'homing_redis_up')).toBe(1);
    // The limits were counted.
    const ofTenant = ['sessions', 'queued', 'logs', 'bytes'].map((what) => `${PREFIX}:{tenant:default}:${what}`);
    const keys = createKeys(PREFIX);
    const counted = [...ofTenant, keys.queued(a.opened.sessionId), ...keys.retained(a.opened.sessionId)];
    await expect.poll(() => admin.exists(...counted)).toBe(counted.length);
    expect(await refused()).toEqual([]);
  });

  it("[IS1] neither node nor worker may flush, configure, list, move data, or reach what is not Homing's", async () => {
    await admin.set('other:key', 'secret');
    for (const role of ['homing-node', 'homing-worker'] as const) {
      const client = as(role);
      for (const command of [
        ['FLUSHALL'],
        ['CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru'],
        ['CONFIG', 'GET', '*'],
        ['KEYS', '*'],
        ['GET', 'other:key'],
        ['SET', 'other:key', 'x'],
        ['EVAL', "return redis.call('GET', 'other:key')", '0'],
        ['SUBSCRIBE', 'other'],
        ['SPUBLISH', 'other', 'x'],
        ['MONITOR'],
        ['CLIENT', 'KILL', 'TYPE', 'normal'],
        ['ACL', 'LIST'],
        ['REPLICAOF', 'NO', 'ONE'],
        ['SHUTDOWN'],
      ] as const) {
        const [name, ...args] = command;
        await expect(client.call(name, ...args), `${role}: ${command.join(' ')}`).rejects.toThrow(
          /NOPERM|can't access|permission/,
        );
      }
      client.disconnect();
    }
    expect(await admin.get('other:key')).toBe('secret');
    await admin.call('ACL', 'LOG', 'RESET');
  });

  it('homing doctor looks with a user of its own, which reaches no key', async () => {
    await admin.call('ACL', 'LOG', 'RESET');
    const env = {
      HOMING_REDIS_URL: urlOf('homing-doctor'),
      HOMING_PREFIX: PREFIX,
      HOMING_PORT: '0',
      HOMING_OPS_PORT: '0',
    };
    const { stdout, stderr } = await runHoming(['doctor', '--json'], { env });
    expect(`${stdout}${stderr}`).not.toMatch(/NOPERM/);
    expect(stdout).toContain('noeviction');
    expect(await refused()).toEqual([]);
    const client = as('homing-doctor');
    await expect(client.get(`${PREFIX}:nodes`)).rejects.toThrow(/NOPERM/);
    client.disconnect();
  });
});
