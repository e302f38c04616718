/** Whom a judge takes for dead, on a real Redis, where what it does takes long (R4). */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeWorkerId } from '../../src/protocol/ids.js';
import { createReconciler } from '../../src/reconciler/reconciler.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import {
  beatOnce,
  chance,
  createStores,
  newClaimId,
  newNodeId,
  newWorkerId,
  openTab,
  placeOf,
  silentLog,
  submit,
} from '../support/stores.js';
import { until } from '../support/wait.js';

const LEASE_MS = 400;
let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis[Symbol.asyncDispose]());

it('[R4] [SE5] a node that beats is not judged dead because a dead worker took longer than a lease to bury', async () => {
  await using stores = await createStores(redis.url);
  const { commands, presence, sessions } = stores;
  const [workerId, nodeId] = [newWorkerId(), newNodeId()];
  const tab = await openTab(stores, placeOf(), nodeId);
  await presence.noteNodeSession(nodeId, tab.sessionId);
  const { commandId } = await submit(stores, { tab });
  await presence.noteWorkerCommand(workerId, commandId);
  await commands.claim(commandId, newClaimId(), workerId, 'group');
  await beatOnce(stores, nodeId, workerId);

  let looks = 0;
  const reconciler = createReconciler(
    {
      ...{ sessions, log: silentLog, chance },
      // The node beats before each look, the worker no more.
      presence: {
        ...presence,
        async nodes() {
          looks += 1;
          await presence.beatNode({ nodeId, address: '', version: '', startedAt: 0, draining: false } as never);
          return presence.nodes();
        },
      },
      commands: {
        ...commands,
        // As where Redis, or this process, has much to do.
        async get(id: typeof commandId) {
          await new Promise((resolve) => setTimeout(resolve, 2 * LEASE_MS));
          return commands.get(id);
        },
      },
      meter: { count() {}, gauge() {}, observe() {} },
      queue: { state: async () => 'missing', add: async () => {}, remove: async () => {} },
      webhooks: { add: async () => {} },
      nowMs: () => performance.now(),
    } as unknown as Parameters<typeof createReconciler>[0],
    { id: makeWorkerId(randomBytes(16)), leaseMs: LEASE_MS, graceMs: 100, queueMs: 60_000, killGraceMs: 100 },
  );
  reconciler.start();
  try {
    await until('the dead worker’s command to end', async () => {
      return (await commands.get(commandId))?.snapshot.state === 'ended';
    });
    const before = looks;
    await until('the next look', () => looks > before + 1);
    expect(await stores.redis.hget(stores.keys.session(tab.sessionId), 'state')).toBe('live');
  } finally {
    await reconciler.close();
  }
});
