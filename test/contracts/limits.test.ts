/** Limits on commands that run at the same time: who waits has no job, turns come in order, and lost notes are made good. */
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CommandStore } from '../../src/domain/ports.js';
import { createTurns, type Turns, withTurns } from '../../src/domain/turns.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { createQueueProducer } from '../../src/queue/producer.js';
import { createReconciler } from '../../src/reconciler/reconciler.js';
import { createRedis, parseRedisUrl } from '../../src/redis/connections.js';
import { createLines } from '../../src/redis/lines.js';
import { createTenantPlaces } from '../../src/redis/tenant-places.js';
import { DEPLOYMENTS, type Deployment } from '../support/deployments.js';
import {
  chance,
  createStores,
  newClaimId,
  newWorkerId,
  openTab,
  outputEntry,
  placeOf,
  type Stores,
  type StoresOptions,
  silentLog,
  submit,
} from '../support/stores.js';
import { until } from '../support/wait.js';

const OUTCOME = {
  reason: 'exited',
  code: 0,
  signal: null,
  durationMs: 1,
  outputBytes: 1,
  tail: '',
  leftovers: 0,
} as const;

/** What a node and a worker have of limits, and what they do with it. */
async function openLine(url: string, limits: NonNullable<StoresOptions['limits']>, staleMs = 60_000) {
  const plain = await createStores(url, { limits });
  const producing = createRedis(parseRedisUrl(url), 'queue-producer', silentLog) as Redis;
  await until('the connection', () => producing.status === 'ready');
  const queue = createQueueProducer({ redis: producing, keys: plain.keys, log: silentLog });
  const places = createTenantPlaces({ keys: plain.keys, scripts: plain.scripts, staleMs });
  const turns: Turns = createTurns({ store: plain.commands, places, queue, log: silentLog });
  const stores: Stores = { ...plain, commands: withTurns(plain.commands, turns, silentLog) };

  /** As a door does: stores, and adds the job unless it is held. */
  async function run(...args: Parameters<typeof submit> extends [Stores, ...infer Rest] ? Rest : never) {
    const { commandId, answer } = await submit(stores, ...args);
    if (answer.type !== 'accepted') throw new Error(answer.type);
    const job = { v: 1, commandId, originSessionId: '', ownerSessionId: '', conversation: '', tenant: '' } as const;
    if (answer.held === undefined)
      await queue.add('default', { ...job, principal: '', program: '' }, { priority: 50, delayMs: 0 });
    return { commandId, held: answer.held };
  }
  const hasJob = async (id: CommandId) => (await queue.state('default', id)) !== 'missing';
  const heldBy = async (id: CommandId) => (await plain.commands.get(id))?.snapshot.held;

  const lines = createLines({ ...plain, queue });
  const positionOf = async (id: CommandId) => {
    const record = await plain.commands.get(id);
    return record && lines.position({ ...record.snapshot, commandId: id, tenant: record.tenant });
  };

  /** As a worker does: claims, and ends it. */
  async function runToEnd(id: CommandId, store: CommandStore = stores.commands): Promise<void> {
    const claimId = newClaimId();
    expect(await store.claim(id, claimId, newWorkerId(), 'group')).toMatchObject({ type: 'claimed' });
    const ownerSessionId = ((await store.get(id))?.snapshot.ownerSessionId ?? null) as null;
    const entries = [outputEntry(id, 1, 'x', 0)];
    const ended = await store.append({ commandId: id, claimId, ownerSessionId, entries, outcome: OUTCOME });
    expect(ended.type).toBe('appended');
  }

  return {
    ...{ plain, stores, queue, turns, run, hasJob, heldBy, positionOf, runToEnd },
    begun: (id: CommandId) => until('its job', async () => (await hasJob(id)) && (await heldBy(id)) === undefined),
    async [Symbol.asyncDispose]() {
      await queue.close();
      producing.disconnect();
      await plain[Symbol.asyncDispose]();
    },
  };
}

describe.each(DEPLOYMENTS)('limits on $name', ({ start }) => {
  let redis: Deployment;
  beforeAll(async () => {
    redis = await start();
  });
  afterAll(() => redis?.[Symbol.asyncDispose]());

  it('[CO11] hold a session’s commands back without a job, and start them in the order of priority and time', async () => {
    await using line = await openLine(redis.url, { session: 2 });
    const tab = await openTab(line.stores);
    const [a, b, c, urgent, d] = [
      await line.run({ tab }),
      await line.run({ tab }),
      await line.run({ tab }),
      await line.run({ tab }, { priority: 1 }),
      await line.run({ tab }),
    ];
    expect([a, b, c, urgent, d].map(({ held }) => held)).toEqual([
      undefined,
      undefined,
      'session',
      'session',
      'session',
    ]);
    expect(await Promise.all([a, c, d].map(({ commandId }) => line.hasJob(commandId)))).toEqual([true, false, false]);
    expect(await line.heldBy(c.commandId)).toBe('session');
    // Another tab of the same person has a line of its own.
    expect((await line.run({ tab: await openTab(line.stores) })).held).toBeUndefined();

    await line.runToEnd(a.commandId);
    await line.begun(urgent.commandId);
    expect(await line.heldBy(c.commandId)).toBe('session');
    await line.runToEnd(b.commandId);
    await line.begun(c.commandId);
    await line.runToEnd(urgent.commandId);
    await line.begun(d.commandId);
  });

  it('[CO11] let never more through than they say, however many come at once', async () => {
    await using line = await openLine(redis.url, { session: 3 });
    const tab = await openTab(line.stores);
    const all = await Promise.all(Array.from({ length: 12 }, () => line.run({ tab })));
    const onTheWay = async () => {
      const found: CommandId[] = [];
      for (const { commandId } of all) {
        const snapshot = (await line.stores.commands.get(commandId))?.snapshot;
        if (snapshot?.state !== 'ended' && snapshot?.held === undefined) found.push(commandId);
      }
      return found;
    };
    for (let left = 12; left > 0; left -= 1) {
      const now = await onTheWay();
      expect(now).toHaveLength(Math.min(3, left));
      const [first] = now as [CommandId];
      await line.begun(first);
      await line.runToEnd(first);
    }
  });

  it('[CO11] tell where who waits stands: of its session, then of its tenant, then in the queue', async () => {
    await using line = await openLine(redis.url, { session: 1, tenant: 2 });
    const tab = await openTab(line.stores);
    const ids: CommandId[] = [];
    for (const spec of [{}, {}, { priority: 90 }, { priority: 1 }, { delayMs: 60_000 }]) {
      ids.push((await line.run({ tab }, spec)).commandId);
    }
    const [first = '' as CommandId, second = '' as CommandId] = ids;
    const positions = async () => Promise.all(ids.map(line.positionOf));
    expect(await positions()).toEqual([1, 2, 3, 1, undefined]);
    await line.runToEnd(first);
    await line.queue.remove('default', first);
    await until('the next turn', async () => (await positions()).join() === ',1,2,1,');
    const others = [];
    for (const conversation of ['c1', 'c2', 'c3']) {
      const other = await openTab(line.stores, placeOf('ann', conversation));
      others.push((await line.run({ tab: other })).commandId);
    }
    // Of the tenant's two places this session and the first of the others have one each.
    expect(await line.heldBy(others[2] as CommandId)).toBe('tenant');
    expect(await Promise.all(others.map(line.positionOf))).toEqual([2, 1, 2]);
    expect(await line.positionOf(second)).toBe(1);
  });

  it('[CO11][CO5] let a kill end a held command at once, and give no turn to it', async () => {
    await using line = await openLine(redis.url, { session: 1 });
    const tab = await openTab(line.stores);
    const [first, second, third] = [await line.run({ tab }), await line.run({ tab }), await line.run({ tab })];
    const ended = await line.stores.commands.endWithoutWorker(second.commandId, '', 'cancelled', 'not wanted');
    expect(ended.type).toBe('ended');
    expect((await line.stores.commands.get(second.commandId))?.snapshot).toMatchObject({
      state: 'ended',
      outcome: { reason: 'cancelled' },
    });
    await line.runToEnd(first.commandId);
    await line.begun(third.commandId);
    expect(await line.hasJob(second.commandId)).toBe(false);
  });

  it('[CO11][OW10] do not hold a command back that its parent waits for, but a detached one', async () => {
    await using line = await openLine(redis.url, { session: 1, tenant: 1 });
    const tab = await openTab(line.stores);
    const parent = await line.run({ tab });
    await line.stores.commands.claim(parent.commandId, newClaimId(), newWorkerId(), 'group');
    expect((await line.run({ inside: parent.commandId })).held).toBeUndefined();
    expect((await line.run({ inside: parent.commandId }, { detached: true })).held).toBe('session');
  });

  it('[CO11] let a delayed command take no place before its time, and then its turn', async () => {
    await using line = await openLine(redis.url, { session: 1 });
    const tab = await openTab(line.stores);
    const later = await line.run({ tab }, { delayMs: 500 });
    const now = await line.run({ tab });
    expect([later.held, now.held]).toEqual(['delayed', undefined]);
    expect(await line.turns.ask(later.commandId)).toMatchObject({ ready: false, waitMs: expect.any(Number) });
    await until('its time', async () => {
      await line.turns.ask(later.commandId);
      return (await line.heldBy(later.commandId)) === 'session';
    });
    await line.runToEnd(now.commandId);
    await line.begun(later.commandId);
  });

  it('[CO11] of a tenant hold over all its conversations, and not over those of others', async () => {
    await using line = await openLine(redis.url, { tenant: 1 });
    const [one, two] = [
      await openTab(line.stores, placeOf('ann', 'c1')),
      await openTab(line.stores, placeOf('bob', 'c2')),
    ];
    const [first, second] = [await line.run({ tab: one }), await line.run({ tab: two })];
    expect([first.held, second.held]).toEqual([undefined, 'tenant']);
    const other = await openTab(line.stores, placeOf('ann', 'c1', 'other'));
    expect((await line.run({ tab: other })).held).toBeUndefined();
    await line.runToEnd(first.commandId);
    await line.begun(second.commandId);
  });

  it('[CO11] of both kinds: who waits for its session takes no place of the tenant', async () => {
    await using line = await openLine(redis.url, { session: 1, tenant: 2 });
    const [one, two] = [
      await openTab(line.stores, placeOf('ann', 'c1')),
      await openTab(line.stores, placeOf('ann', 'c2')),
    ];
    const held = [];
    for (const tab of [one, one, one, two]) held.push((await line.run({ tab })).held);
    expect(held).toEqual([undefined, 'session', 'session', undefined]);
  });

  it('[CO11] give back a tenant’s place whose holder ended unnoticed, once somebody waits', async () => {
    await using line = await openLine(redis.url, { tenant: 1 }, 0);
    const tab = await openTab(line.stores);
    const [first, second] = [await line.run({ tab }), await line.run({ tab })];
    // Whoever ended it died before it gave the place back.
    await line.runToEnd(first.commandId, line.plain.commands);
    await until('its turn', async () => (await line.turns.ask(second.commandId)).ready);
  });

  it('[CO11] give back a session’s place of a command that Redis lost', async () => {
    await using line = await openLine(redis.url, { session: 1 });
    const tab = await openTab(line.stores);
    const [first, second] = [await line.run({ tab }), await line.run({ tab })];
    await line.stores.redis.del(line.stores.keys.command(first.commandId));
    expect(await line.turns.ask(second.commandId)).toEqual({ ready: true });
  });

  it('[CO11] leave nobody waiting when the note of a turn was lost: the reconciler adds the job, and none of who waits', async () => {
    await using line = await openLine(redis.url, { session: 1 });
    const tab = await openTab(line.stores);
    const [first, second, third] = [await line.run({ tab }), await line.run({ tab }), await line.run({ tab })];
    await line.runToEnd(first.commandId, line.plain.commands);
    expect(await line.hasJob(second.commandId)).toBe(false);
    for (const { commandId } of [second, third]) await line.stores.presence.noteDue(`queued:${commandId}`, 0);
    const reconciler = createReconciler(
      {
        ...line.stores,
        queue: line.queue,
        turns: line.turns,
        webhooks: { add: async () => {} },
        meter: { count() {}, gauge() {}, observe() {} },
        log: silentLog,
        chance,
        nowMs: () => performance.now(),
      },
      { id: 'judge', leaseMs: 600, graceMs: 300, queueMs: 60_000, killGraceMs: 100 },
    );
    reconciler.start();
    try {
      await line.begun(second.commandId);
      expect(await line.hasJob(third.commandId)).toBe(false);
      await line.runToEnd(second.commandId, line.plain.commands);
      await line.begun(third.commandId);
    } finally {
      await reconciler.close();
    }
  });
});
