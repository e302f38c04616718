/**
 * Sets that are indexes, damaged on a real Redis: another type at their key, or members that are no ids. What is damaged is
 * told by its key and costs what it is about, nothing beside it; once the key is gone, the index comes back from the records.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Log } from '../../src/domain/ports.js';
import { type CommandId, makeWorkerId, type SessionId } from '../../src/protocol/ids.js';
import { createReconciler } from '../../src/reconciler/reconciler.js';
import { createCensus } from '../../src/redis/census.js';
import { DUE_BUCKETS } from '../../src/redis/keys.js';
import { bucketOf } from '../../src/redis/presence.js';
import { claimToWrite } from '../support/log-writer.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import {
  beatOnce,
  chance,
  createStores,
  newClaimId,
  newNodeId,
  newWorkerId,
  openTab as openStored,
  placeOf,
  type Stores,
  silentLog,
  submit,
} from '../support/stores.js';
import { type Json, openTab, type Tab } from '../support/tab.js';
import { makeToken } from '../support/tokens.js';
import { until } from '../support/wait.js';

const secret = 'a secret of at least 32 characters';
const ann = makeToken(secret, { sub: 'ann' });
const LEASE_MS = 400;
/** Neither an id nor a tag; wildcards, braces, a text that is long, and an id of another kind. */
const GARBAGE = ['', 'x', '{}', '*', `cmd_${'z'.repeat(16)}_`, 'x'.repeat(5_000), newNodeId() as string];

let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis[Symbol.asyncDispose]());

async function replaceBy({ redis: client }: Stores, key: string): Promise<void> {
  await client.del(key);
  await client.set(key, 'a string');
}

async function addGarbage({ redis: client }: Stores, key: string): Promise<void> {
  const type = await client.type(key);
  const isSorted = type === 'zset' || (type === 'none' && key.includes(':due:'));
  if (isSorted) await client.zadd(key, ...GARBAGE.flatMap((text) => [1, text]));
  else await client.sadd(key, ...GARBAGE);
}

describe('indexes of a conversation', () => {
  let stores: Stores;
  let node: TestNode;
  beforeAll(async () => {
    stores = await createStores(redis.url);
    node = await startTestNode({ redis, stores, secret });
  });
  afterAll(async () => {
    await node.close();
    await stores[Symbol.asyncDispose]();
  });

  const keys = () => stores.keys;
  const INDEXES: readonly (readonly [what: string, keyOf: (id: SessionId, conversation: string) => string])[] = [
    ['commands', (_id, conversation) => keys().commands(placeOf('ann', conversation).tag)],
    ['sessions of a principal', (_id, conversation) => keys().sessions(placeOf('ann', conversation).tag, 'ann')],
    ['parked commands', (_id, conversation) => keys().parked(placeOf('ann', conversation).tag, 'ann')],
    ['kept commands', (_id, conversation) => keys().kept(placeOf('ann', conversation).tag, 'ann')],
    ['commands that a session owns', (id) => keys().owned(id)],
  ];

  /** Everything that a tab does, in a conversation where nothing is wrong or in the same one. */
  async function works(conversation: string): Promise<void> {
    const [first, second] = [
      await openTab(node.url, { token: ann, conversation }),
      await openTab(node.url, { token: ann, conversation }),
    ];
    await using _first = first;
    await using tab = second;
    const id = await first.run({ argv: ['true'] });
    await first.close();
    await tab.waitFor('the move', ({ method, params }) => method === 'command.owner' && params.commandId === id);
    const writer = await claimToWrite(stores, id);
    await writer.print('still here');
    await tab.shows(id, 'still here');
    await tab.drop();
    await tab.resume(node.url);
    await writer.end();
    await tab.ended(id);
    expect((await tab.rpc('command.list')).commands.map((one: Json) => one.commandId)).toContain(id);
    // Without an heir it waits for whoever comes next.
    const parked = await tab.run({ argv: ['true'] });
    await tab.close();
    await using next: Tab = await openTab(node.url, { token: ann, conversation });
    expect(next.opened.commands.map((one: Json) => one.commandId)).toContain(parked);
  }

  it.each(INDEXES)('[V1] %s of another type cost that conversation; all goes on in others', async (what, keyOf) => {
    const conversation = `type-${what}`.replaceAll(' ', '-');
    const tab = await openTab(node.url, { token: ann, conversation });
    await using _tab = tab;
    await tab.run({ argv: ['true'] });
    const key = keyOf(tab.sessionId as SessionId, conversation);
    await replaceBy(stores, key);
    for (const [method, params] of [
      ['command.list', {}],
      ['command.run', { argv: ['true'] }],
      ['session.close', {}],
    ] as const)
      await tab.rpc(method, params).catch(() => undefined);
    await openTab(node.url, { token: ann, conversation }).then(
      (other) => other.drop(),
      () => undefined,
    );
    await works(`${conversation}-beside`);
    expect((await fetch(`${node.opsUrl}/livez`)).status).toBe(200);
    // It was not put right by chance, and nobody took what was there for an index.
    expect(await stores.redis.get(key)).toBe('a string');
  });

  it.each(INDEXES)(
    '[V1] members that are no ids among %s are passed over: all goes on in that conversation',
    async (what, keyOf) => {
      const conversation = `members-${what}`.replaceAll(' ', '-');
      const tab = await openTab(node.url, { token: ann, conversation });
      await using _tab = tab;
      const faults = node.count('homing_internal_errors_total');
      const id = (await tab.run({ argv: ['true'] })) as CommandId;
      await addGarbage(stores, keyOf(tab.sessionId as SessionId, conversation));
      await tab.drop();
      await tab.resume(node.url);
      expect(tab.opened.commands.map((one: Json) => one.commandId)).toEqual([id]);
      await tab.close();
      await works(conversation);
      expect(node.count('homing_internal_errors_total')).toBe(faults);
    },
  );
});

describe('indexes of what processes hold, and of what is due', () => {
  async function world() {
    const told: string[] = [];
    const log: Log = {
      ...silentLog,
      error: (fields) => void told.push(JSON.stringify(fields)),
      child: () => log,
    };
    const stores = await createStores(redis.url, { log });
    const added: string[] = [];
    const nothing = { count() {}, gauge() {}, observe() {} };
    const reconciler = createReconciler(
      {
        ...{ sessions: stores.sessions, commands: stores.commands, presence: stores.presence, log, chance },
        meter: nothing,
        queue: {
          state: async () => 'missing',
          add: async (_pool: string, job: { commandId: string }) => void added.push(job.commandId),
          remove: async () => {},
        },
        webhooks: { add: async () => {} },
        nowMs: () => performance.now(),
      } as unknown as Parameters<typeof createReconciler>[0],
      { id: makeWorkerId(randomBytes(16)), leaseMs: LEASE_MS, graceMs: 100, queueMs: 60_000, killGraceMs: 100 },
    );
    /** A worker and a node that were there once, with a running command and a live session each. */
    async function deadOnes() {
      const [workerId, nodeId] = [newWorkerId(), newNodeId()];
      const tab = await openStored(stores, placeOf(), nodeId);
      const { commandId } = await submit(stores, { tab });
      await stores.presence.noteWorkerCommand(workerId, commandId);
      await stores.commands.claim(commandId, newClaimId(), workerId, 'group');
      await stores.presence.noteNodeSession(nodeId, tab.sessionId);
      await beatOnce(stores, nodeId, workerId);
      return { workerId, nodeId, commandId, sessionId: tab.sessionId };
    }
    const isLost = async (id: CommandId) => (await stores.commands.get(id))?.snapshot.state === 'ended';
    const isAway = async (id: SessionId) => (await stores.redis.hget(stores.keys.session(id), 'state')) !== 'live';
    return {
      ...{ stores, told, added, reconciler, deadOnes, isLost, isAway },
      async [Symbol.asyncDispose]() {
        await reconciler.close();
        await stores[Symbol.asyncDispose]();
      },
    };
  }
  type World = Awaited<ReturnType<typeof world>>;
  type Dead = Awaited<ReturnType<World['deadOnes']>>;

  /** What is due elsewhere is done, and who else is dead is judged. */
  async function othersAreLookedAfter({ stores, added, isLost, isAway }: World, other: Dead): Promise<void> {
    await until('the other dead worker’s command to end', () => isLost(other.commandId));
    await until('the other dead node’s session to be away', () => isAway(other.sessionId));
    const tab = await openStored(stores, placeOf('bob', 'due'));
    // In every bucket that there is, but for those that are damaged.
    const ids: CommandId[] = [];
    for (let n = 0; n < 12; n += 1) {
      const done = await submit(stores, { tab }).catch(() => undefined);
      if (done !== undefined) ids.push(done.commandId);
    }
    for (const id of ids) await stores.presence.noteDue(`queued:${id}`, -1).catch(() => undefined);
    await until('jobs of others to be added', () => ids.filter((id) => added.includes(id)).length >= 6);
  }

  const dueIn = ({ keys }: Stores, { sessionId, commandId }: Dead): string[] =>
    [`grace:${sessionId}`, `close:${sessionId}`, `queued:${commandId}`, `expire:${commandId}`].map((member) =>
      keys.due(bucketOf(member)),
    );

  const HELD: readonly (readonly [what: string, keyOf: (stores: Stores, dead: Dead) => string])[] = [
    ['what a dead worker ran', ({ keys }, { workerId }) => keys.workerCommands(workerId)],
    ['what a dead node held', ({ keys }, { nodeId }) => keys.nodeSessions(nodeId)],
    ['the first bucket of what is due', ({ keys }) => keys.due(0)],
    ['the last bucket of what is due', ({ keys }) => keys.due(DUE_BUCKETS - 1)],
  ];

  it.each(HELD)(
    '[V1] [S2] %s of another type is told by its key, holds up nobody else, and comes back once it is gone',
    async (_what, keyOf) => {
      await using all = await world();
      const dead = await all.deadOnes();
      const key = keyOf(all.stores, dead);
      // One of sixteen has its own place in a bucket that is damaged.
      let other = await all.deadOnes();
      while (dueIn(all.stores, other).includes(key)) other = await all.deadOnes();
      await replaceBy(all.stores, key);
      all.reconciler.start();
      await othersAreLookedAfter(all, other);
      await until('its key to be told', () => all.told.some((line) => line.includes(key)));
      await all.stores.redis.del(key);
      await until('its command to end', () => all.isLost(dead.commandId), 20_000);
      await until('its session to be away', () => all.isAway(dead.sessionId), 20_000);
    },
  );

  it.each(HELD)('[V1] members that are no ids among %s are taken out, and hold up nobody', async (_what, keyOf) => {
    await using all = await world();
    const [dead, other] = [await all.deadOnes(), await all.deadOnes()];
    const key = keyOf(all.stores, dead);
    await addGarbage(all.stores, key);
    all.reconciler.start();
    await othersAreLookedAfter(all, other);
    await until('its own command to end', () => all.isLost(dead.commandId));
    await until('its own session to be away', () => all.isAway(dead.sessionId));
    await until('the garbage to be gone', async () => {
      const left: string[] =
        (await all.stores.redis.type(key)) === 'zset'
          ? await all.stores.redis.zrange(key, '0', '-1')
          : await all.stores.redis.smembers(key);
      return !GARBAGE.some((text) => left.includes(text));
    });
  });

  it.each([
    ['nodes', ({ keys }: Stores) => keys.nodes],
    ['workers', ({ keys }: Stores) => keys.workers],
  ] as const)(
    '[V1] the set of %s of another type is told by its key; what is due and the others are looked after',
    async (what, keyOf) => {
      await using all = await world();
      const dead = await all.deadOnes();
      const key = keyOf(all.stores);
      await replaceBy(all.stores, key);
      all.reconciler.start();
      if (what === 'nodes') await until('the dead worker’s command to end', () => all.isLost(dead.commandId));
      else await until('the dead node’s session to be away', () => all.isAway(dead.sessionId));
      const { commandId } = await submit(all.stores, 'none');
      await all.stores.presence.noteDue(`queued:${commandId}`, -1);
      await until('a job to be added', () => all.added.includes(commandId));
      expect(all.told.join('\n')).toContain(key);
      // Nobody is judged by what can not be read.
      expect(await (what === 'nodes' ? all.isAway(dead.sessionId) : all.isLost(dead.commandId))).toBe(false);
    },
  );

  it('[V1] [OW2] [OW4] who owns what, and what is parked, of another type is told at each walk, and comes back once it is gone', async () => {
    await using all = await world();
    const { stores, told } = all;
    const tab = await openStored(stores);
    const owned = (await submit(stores, { tab })).commandId;
    const parked = (await submit(stores, 'none', {}, placeOf('bob', 'parked'))).commandId;
    const sound = (await submit(stores, { tab: await openStored(stores, placeOf('eve', 'sound')) })).commandId;
    const sets = [
      [owned, stores.keys.owned(tab.sessionId)],
      [parked, stores.keys.parked(placeOf('bob', 'parked').tag, 'bob')],
    ] as const;
    for (const [id, key] of sets) {
      expect(await stores.redis.sismember(key, id)).toBe(1);
      await replaceBy(stores, key);
    }
    const walk = async () => {
      for (let n = 0; n < 200; n += 1) await stores.presence.repairIndexes();
    };
    await walk();
    for (const id of [owned, parked]) expect(told.join('\n')).toContain(`"key":"${stores.keys.command(id)}"`);
    expect(told.join('\n')).not.toContain(stores.keys.command(sound));
    for (const [, key] of sets) await stores.redis.del(key);
    await walk();
    for (const [id, key] of sets) expect(await stores.redis.sismember(key, id)).toBe(1);
  });

  it('[V1] a process whose beat is of another type, or no id, is judged like one without, and no other', async () => {
    await using all = await world();
    const [dead, other] = [await all.deadOnes(), await all.deadOnes()];
    await replaceBy(all.stores, all.stores.keys.worker(dead.workerId));
    await replaceBy(all.stores, all.stores.keys.node(dead.nodeId));
    for (const key of [all.stores.keys.nodes, all.stores.keys.workers]) await addGarbage(all.stores, key);
    // Operators see the rest as well.
    const census = createCensus(all.stores);
    expect((await census.nodes()).map(({ nodeId }) => nodeId)).toEqual(
      expect.arrayContaining([dead.nodeId, other.nodeId]),
    );
    expect((await census.workers()).map(({ workerId }) => workerId)).toContain(other.workerId);
    all.reconciler.start();
    await othersAreLookedAfter(all, other);
    await until('its own command to end', () => all.isLost(dead.commandId));
    await until('its own session to be away', () => all.isAway(dead.sessionId));
    await until('the garbage to be gone', async () => {
      const left = [...(await all.stores.presence.nodes()), ...(await all.stores.presence.workers())];
      return !left.some(({ id }) => GARBAGE.includes(id));
    });
  });
});
