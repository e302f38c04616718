/** Presence on a real Redis: beats, what a process may hold, due work, the lead, and what server answers. */
import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Chance, Presence } from '../../src/domain/ports.js';
import {
  makeCommandId,
  makeNodeId,
  makeSessionId,
  makeWorkerId,
  type NodeId,
  tagFromDigest,
} from '../../src/protocol/ids.js';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { createKeys, type Keys } from '../../src/redis/keys.js';
import { createPresence } from '../../src/redis/presence.js';
import { createScripts } from '../../src/redis/scripts.js';
import { DEPLOYMENTS, type Deployment } from '../support/deployments.js';
import { startRedis, type TestRedis, uniquePrefix } from '../support/redis.js';
import { until } from '../support/wait.js';

const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const chance: Chance = { bytes: (size) => randomBytes(size), random: Math.random };
const LEASE_MS = 2_000;

const newNode = () => makeNodeId(randomBytes(16));
const newSession = () => makeSessionId(tagFromDigest(randomBytes(32)), randomBytes(16));
const nodeFacts = (nodeId: NodeId) => ({ nodeId, url: 'http://x', version: '1', startedAt: 1 });
const workerFacts = {
  workerId: makeWorkerId(randomBytes(16)),
  pool: 'default',
  concurrency: 2,
  containment: 'group',
  version: '1',
  startedAt: 1,
  draining: false,
};

describe.each(DEPLOYMENTS)('on $name', ({ start }) => {
  let server: Deployment;
  let redis: Redis;
  let keys: Keys;
  let presence: Presence;

  const connect = async () => {
    redis = createRedis(parseRedisUrl(server.url), 'commands', silent) as Redis;
    await waitForRedis(redis, 5_000);
  };
  beforeAll(async () => {
    server = await start();
    await connect();
  });
  beforeEach(() => {
    keys = createKeys(uniquePrefix());
    presence = createPresence({ redis, keys, scripts: createScripts(redis), leaseMs: LEASE_MS, chance });
  });
  afterAll(async () => {
    redis.disconnect();
    await server[Symbol.asyncDispose]();
  });

  describe('beats', () => {
    test('[SE5] each beat of a node is another text, and one that stops stands still for four leases', async () => {
      const nodeId = newNode();
      await presence.beatNode(nodeFacts(nodeId));
      const [first] = await presence.nodes();
      expect(first?.id).toBe(nodeId);
      await presence.beatNode(nodeFacts(nodeId));
      const [second] = await presence.nodes();
      expect(second?.beat).not.toBe(first?.beat);
      expect(await presence.nodes()).toEqual([second]);
      expect(await redis.pttl(keys.node(nodeId))).toBeGreaterThan(3 * LEASE_MS);
      await redis.del(keys.node(nodeId));
      expect(await presence.nodes()).toEqual([{ id: nodeId, beat: '' }]);
    });

    test("a worker's facts are read back; a record that is not understood counts as none", async () => {
      await presence.beatWorker(workerFacts);
      expect(await presence.workers()).toEqual([{ id: workerFacts.workerId, beat: '1', facts: workerFacts }]);
      await redis.set(keys.worker(workerFacts.workerId), '{"half');
      expect(await presence.workers()).toEqual([{ id: workerFacts.workerId, beat: '' }]);
    });

    test('a forgotten process is no longer named, unless something it may hold is still to be dealt with', async () => {
      const nodeId = newNode();
      const sessionId = newSession();
      await presence.beatNode(nodeFacts(nodeId));
      await presence.noteNodeSession(nodeId, sessionId);
      await presence.forgetNode(nodeId);
      expect(await presence.nodes()).toEqual([{ id: nodeId, beat: '' }]);
      await presence.dropNodeSession(nodeId, sessionId);
      await presence.forgetNode(nodeId);
      expect(await presence.nodes()).toEqual([]);
    });
  });

  test('what a process may hold is a set: noted twice is there once, dropped twice is gone', async () => {
    const nodeId = newNode();
    const sessions = Array.from({ length: 2_500 }, newSession);
    await Promise.all(sessions.map((id) => presence.noteNodeSession(nodeId, id)));
    await presence.noteNodeSession(nodeId, sessions[0]!);
    expect((await presence.nodeSessions(nodeId)).sort()).toEqual([...sessions].sort());
    const { workerId } = workerFacts;
    const commandId = makeCommandId(tagFromDigest(randomBytes(32)), randomBytes(16));
    await presence.noteWorkerCommand(workerId, commandId);
    expect(await presence.workerCommands(workerId)).toEqual([commandId]);
    await presence.dropWorkerCommand(workerId, commandId);
    await presence.dropWorkerCommand(workerId, commandId);
    expect(await presence.workerCommands(workerId)).toEqual([]);
  });

  describe('due work', () => {
    test('is handed out when its time has come by the clock of Redis, and not before', async () => {
      await presence.noteDue('grace:a', -1);
      await presence.noteDue('grace:b', 60_000);
      await presence.noteDue('grace:c', 150);
      expect((await presence.due(10)).map(({ member }) => member)).toEqual(['grace:a']);
      await until('grace:c is due', async () => (await presence.due(10)).length === 2);
    });

    test('is bounded, spread over buckets, and found in every one of them', async () => {
      const members = Array.from({ length: 200 }, (_, n) => `expire:${n}`);
      await Promise.all(members.map((member) => presence.noteDue(member, -5)));
      expect(await presence.due(7)).toHaveLength(7);
      const all = await presence.due(1_000);
      expect(all.map(({ member }) => member).sort()).toEqual(members.sort());
      expect(new Set(all.map(({ bucket }) => bucket)).size).toBe(16);
    });

    test('noted anew while it is worked on, it is not dropped with the old time', async () => {
      await presence.noteDue('queued:a', -5_000);
      const [item] = await presence.due(1);
      await presence.noteDue('queued:a', -1_000);
      await presence.dropDue(item!);
      const [again] = await presence.due(1);
      expect(again?.member).toBe('queued:a');
      await presence.dropDue(again!);
      expect(await presence.due(1)).toEqual([]);
    });
  });

  test('one leads at a time, renews its lead, and another takes over when it stops', async () => {
    expect(await presence.tryLead('a', 300)).toBe(true);
    expect(await presence.tryLead('b', 300)).toBe(false);
    expect(await presence.tryLead('a', 300)).toBe(true);
    await until('b leads', () => presence.tryLead('b', 300), 5_000);
    expect(await presence.tryLead('a', 300)).toBe(false);
  });
});

describe('on one server', () => {
  let server: TestRedis;
  let redis: Redis;
  let keys: Keys;
  let presence: Presence;

  const connect = async () => {
    redis = createRedis(parseRedisUrl(server.url), 'commands', silent) as Redis;
    await waitForRedis(redis, 5_000);
  };
  beforeAll(async () => {
    server = await startRedis();
    await connect();
  });
  beforeEach(() => {
    keys = createKeys(uniquePrefix());
    presence = createPresence({ redis, keys, scripts: createScripts(redis), leaseMs: LEASE_MS, chance });
  });
  afterAll(async () => {
    redis.disconnect();
    await server[Symbol.asyncDispose]();
  });

  test('[O1] beats and indexes are written while Redis is full, where plain commands are refused', async () => {
    // A little is always in use, so this is full.
    await redis.config('SET', 'maxmemory', '1kb');
    try {
      await expect(redis.set(`${keys.prefix}:plain`, 'x')).rejects.toThrow('OOM');
      await expect(redis.zadd(`${keys.prefix}:plain`, 1, 'x')).rejects.toThrow('OOM');
      const nodeId = newNode();
      await presence.beatNode(nodeFacts(nodeId));
      await presence.noteNodeSession(nodeId, newSession());
      await presence.noteDue('grace:x', 0);
      expect(await presence.tryLead('a', 1_000)).toBe(true);
      expect(await presence.nodes()).toHaveLength(1);
    } finally {
      await redis.config('SET', 'maxmemory', '0');
    }
  });

  test('[R2] the identity of the server stays over a reconnect and changes when it was started again', async () => {
    const before = await presence.serverIdentity();
    expect(before).toMatch(/^[0-9a-f]{40}\/[0-9a-f]{40}$/);
    redis.disconnect(true);
    await new Promise((resolve) => redis.once('close', resolve));
    await waitForRedis(redis, 5_000);
    expect(await presence.serverIdentity()).toBe(before);
    await server.stop();
    await expect(presence.serverIdentity()).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    await server.start();
    await waitForRedis(redis, 5_000);
    expect(await presence.serverIdentity()).not.toBe(before);
  });
});
