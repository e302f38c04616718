/** Commands that start commands, as the scripts decide it (OW10, CO5). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CommandId } from '../../src/protocol/ids.js';
import type { CommandSpecInput } from '../../src/protocol/methods.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, newClaimId, newWorkerId, openTab, type Stores, submit } from '../support/stores.js';

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

const run = (commandId: CommandId) => stores.commands.claim(commandId, newClaimId(), newWorkerId(), 'group');
const record = async (commandId: CommandId) => (await stores.commands.get(commandId))!;

/** A command that a tab started, running. */
async function parentOf(tab: Awaited<ReturnType<typeof openTab>>, spec: Partial<CommandSpecInput> = {}) {
  const { commandId } = await submit(stores, { tab }, spec);
  await run(commandId);
  return commandId;
}

async function inside(parent: CommandId, spec: Partial<CommandSpecInput> = {}) {
  const { commandId, answer } = await submit(stores, { inside: parent }, spec);
  expect(answer.type).toBe('accepted');
  return commandId;
}

describe('[OW10] a command started from inside a command', () => {
  it('has the origin of its parent, and its present owner', async () => {
    const [origin, heir] = [await openTab(stores), await openTab(stores)];
    const parent = await parentOf(origin);
    await stores.sessions.close(origin.sessionId, { type: 'attachment', attachmentId: origin.attachmentId });
    const child = await inside(parent);
    await run(child);
    const grandchild = await inside(child);
    for (const [id, of] of [
      [child, parent],
      [grandchild, child],
    ] as const) {
      expect((await record(id)).snapshot).toMatchObject({
        originSessionId: origin.sessionId,
        ownerSessionId: heir.sessionId,
        parentCommandId: of,
        why: 'inherited',
      });
    }
    const claimed = await run(grandchild);
    expect(claimed).toMatchObject({ type: 'claimed', originClosed: true });
  });

  it.each(['adopt', 'park'] as const)('waits where its parent waits, which has nobody (%s)', async (onOwnerGone) => {
    const tab = await openTab(stores);
    const parent = await parentOf(tab, { onOwnerGone });
    for (const { sessionId, attachmentId } of [tab, ...(await openOthers())]) {
      await stores.sessions.close(sessionId, { type: 'attachment', attachmentId });
    }
    const child = await inside(parent);
    expect((await record(child)).snapshot.ownerSessionId).toBeNull();
    const next = await openTab(stores);
    const owner = onOwnerGone === 'adopt' ? next.sessionId : null;
    expect((await record(parent)).snapshot.ownerSessionId).toBe(owner);
    expect((await record(child)).snapshot.ownerSessionId).toBe(owner);
  });

  it('has a depth of eight at most', async () => {
    let parent = await parentOf(await openTab(stores));
    for (let depth = 1; depth <= 8; depth += 1) {
      parent = await inside(parent);
      await run(parent);
    }
    expect((await submit(stores, { inside: parent })).answer.type).toBe('too_deep');
  });
});

describe('[CO5] a kill', () => {
  const kill = { signal: 'SIGTERM', graceMs: 100, reason: 'cancelled' } as const;

  it('reaches what the command started, however deep, but not what was detached', async () => {
    const parent = await parentOf(await openTab(stores));
    const child = await inside(parent);
    await run(child);
    const grandchild = await inside(child);
    const free = await inside(parent, { detached: true });
    await stores.commands.requestKill(parent, kill);
    expect((await record(child)).kill).toEqual(kill);
    expect((await record(grandchild)).kill).toEqual(kill);
    expect((await record(free)).kill).toBeUndefined();
  });

  it('that is under way reaches a child that is submitted meanwhile', async () => {
    const parent = await parentOf(await openTab(stores));
    await stores.commands.requestKill(parent, kill);
    expect((await record(await inside(parent))).kill).toEqual(kill);
    expect((await record(await inside(parent, { detached: true }))).kill).toBeUndefined();
  });
});

/** Every session that is open in the conversation of these tests. */
async function openOthers() {
  const place = (await openTab(stores)).place;
  const { sessions } = await stores.sessions.list(place, 0, 100);
  const rows = sessions.map(async ({ sessionId }) => ({
    sessionId,
    attachmentId: (await stores.redis.hget(stores.keys.session(sessionId), 'att')) as never,
  }));
  return Promise.all(rows);
}
