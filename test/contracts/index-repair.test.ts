/** Indexes are only hints: what they lost is found again from the records, and then whoever is dead is judged (S2, SE5). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { QueueProducer } from '../../src/domain/ports.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { createReconciler } from '../../src/reconciler/reconciler.js';
import { DEPLOYMENTS, type Deployment } from '../support/deployments.js';
import {
  chance,
  createStores,
  keysLike,
  newClaimId,
  newNodeId,
  newWorkerId,
  openTab,
  placeOf,
  type Stores,
  silentLog,
  submit,
} from '../support/stores.js';
import { until } from '../support/wait.js';

const LEASE_MS = 600;

describe.each(DEPLOYMENTS)('on $name', ({ start }) => {
  let redis: Deployment;
  let stores: Stores;
  let count = 0;
  const freshPlace = () => placeOf('ann', `repair-${++count}`);

  beforeAll(async () => {
    redis = await start();
    stores = await createStores(redis.url, { graceMs: 300 });
  });
  afterAll(async () => {
    await stores?.[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
  });

  const dueMembers = async (): Promise<string[]> => {
    const buckets = await keysLike(stores, `${stores.keys.prefix}:due:*`);
    return (await Promise.all(buckets.map((key) => stores.redis.zrange(key, '0', '-1')))).flat();
  };
  /** All notes are gone, as if the shards that held them had been lost. */
  async function loseIndexes(): Promise<void> {
    const { prefix } = stores.keys;
    for (const pattern of [`${prefix}:due:*`, `${prefix}:node*`, `${prefix}:worker*`])
      for (const key of await keysLike(stores, pattern)) await stores.redis.del(key);
  }
  /** Pages until everything was looked at. @returns how many notes were missing */
  async function wholeRound(): Promise<number> {
    let missing = 0;
    for (let page = 0; page < 12; page += 1) missing += await stores.presence.repairIndexes();
    return missing;
  }

  it('[SE5] notes anew what lives, is away, waits, runs and has ended, and nothing that was noted', async () => {
    const place = freshPlace();
    const [nodeId, workerId] = [newNodeId(), newWorkerId()];
    const live = await openTab(stores, place, nodeId);
    const away = await openTab(stores, place, newNodeId());
    await stores.sessions.detach(away.sessionId, away.attachmentId);
    const [queued, running, ended] = await Promise.all([0, 1, 2].map(() => submit(stores, { tab: live })));
    const ids = [queued, running, ended].map((one) => one?.commandId as CommandId);
    for (const id of ids.slice(1)) await stores.commands.claim(id, newClaimId(), workerId, 'group');
    const claimId = (await stores.commands.get(ids[2] as CommandId))?.claimId;
    await stores.commands.endWithoutWorker(ids[2] as CommandId, claimId as never, 'lost', 'It ended.');
    await loseIndexes();

    expect(await wholeRound()).toBeGreaterThanOrEqual(5);
    expect(await stores.presence.nodeSessions(nodeId)).toEqual([live.sessionId]);
    expect((await stores.presence.nodes()).map(({ id }) => id)).toContain(nodeId);
    expect(await stores.presence.workerCommands(workerId)).toEqual([ids[1]]);
    expect((await stores.presence.workers()).map(({ id }) => id)).toContain(workerId);
    expect(await dueMembers()).toEqual(
      expect.arrayContaining([`grace:${away.sessionId}`, `queued:${ids[0]}`, `expire:${ids[2]}`]),
    );
    expect(await wholeRound()).toBe(0);
  });

  it('[S2] [OW2] finds commands whose owner never came back, or was lost from its set, and lists that name lost ones', async () => {
    const place = freshPlace();
    const [ghost, heir] = [await openTab(stores, place), await openTab(stores, place)];
    const owned = (await submit(stores, { tab: heir })).commandId;
    const orphaned = (await submit(stores, { tab: ghost })).commandId;
    const lost = (await submit(stores, { tab: heir })).commandId;
    const done = (await submit(stores, { tab: ghost })).commandId;
    await stores.commands.endWithoutWorker(done, '', 'expired', 'x');
    await stores.commands.ack(ghost.sessionId, ghost.attachmentId, new Map([[done, 1]]));
    // A failover lost the session, a set and a record.
    const { redis: at, keys } = stores;
    await at.del(keys.session(ghost.sessionId));
    await at.zrem(keys.sessions(place.tag, place.principal), ghost.sessionId);
    await at.del(keys.owned(heir.sessionId));
    await at.del(keys.command(lost));
    expect(await wholeRound()).toBeGreaterThan(0);
    const ownerOf = async (id: CommandId) => (await stores.commands.get(id))?.snapshot.ownerSessionId;
    expect(await ownerOf(orphaned)).toBe(heir.sessionId);
    expect((await at.smembers(keys.owned(heir.sessionId))).sort()).toEqual([owned, orphaned].sort());
    // What is over and acknowledged is moved to nobody.
    expect(await ownerOf(done)).toBe(ghost.sessionId);
    expect(await at.zscore(keys.commands(place.tag), lost)).toBeNull();
    expect(await wholeRound()).toBe(0);
  });

  it('[SE5] [OW2] an attach that was carried out after its node was judged does not look live for ever: its command goes to the heir', async () => {
    const place = freshPlace();
    const deadNode = newNodeId();
    const lost = await openTab(stores, place, deadNode);
    const { commandId } = await submit(stores, { tab: lost });
    const aliveNode = newNodeId();
    const heir = await openTab(stores, place, aliveNode);
    // Its node was buried before the attach came through: nothing names the two any more.
    await stores.presence.dropNodeSession(deadNode, lost.sessionId);
    await stores.presence.forgetNode(deadNode);
    const queue: QueueProducer = {
      add: async () => {},
      state: async () => 'waiting',
      position: async () => undefined,
      remove: async () => {},
      close: async () => {},
    };
    const meter = { count() {}, gauge() {}, observe() {} };
    const reconciler = createReconciler(
      {
        ...stores,
        queue,
        webhooks: { add: async () => {} },
        meter,
        log: silentLog,
        chance,
        nowMs: () => performance.now(),
      },
      { id: 'judge', leaseMs: LEASE_MS, graceMs: 300, queueMs: 60_000, killGraceMs: 100 },
    );
    const facts = { nodeId: aliveNode, url: '', version: '1', startedAt: 0 };
    const beating = setInterval(() => void stores.presence.beatNode(facts), LEASE_MS / 4);
    reconciler.start();
    try {
      await until('the command at the heir', async () => {
        return (await stores.commands.get(commandId))?.snapshot.ownerSessionId === heir.sessionId;
      });
    } finally {
      clearInterval(beating);
      await reconciler.close();
    }
  });
});
