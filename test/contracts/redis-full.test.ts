/** Redis at its limit of memory: what must go on goes on, what may not grow is refused, and room is made (O1, O2). */
import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/protocol/entries.js';
import { createCommandStore } from '../../src/redis/command-store.js';
import { createReassertion } from '../../src/redis/reassertion.js';
import { createRelief } from '../../src/redis/relief.js';
import { SCRIPTS } from '../support/fences.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import {
  chance,
  createStores,
  newAttachmentId,
  newClaimId,
  newNodeId,
  newWorkerId,
  openTab,
  outputEntry,
  placeOf,
  type Stores,
  submit,
} from '../support/stores.js';
import { until } from '../support/wait.js';

/** What makes data grow without need; everything else must work in a full Redis. */
const REFUSED_WHEN_FULL = ['open', 'submit', 'claim', 'append', 'write', 'count-notice', 'note-gap'];
const READS = ['check', 'list', 'read-log'];

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
});
afterEach(async () => {
  await stores.redis.config('SET', 'maxmemory', '0');
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});
const fill = () => stores.redis.config('SET', 'maxmemory', '1kb');
const full = { code: 'REDIS_UNAVAILABLE', message: 'Redis is full: its maxmemory is reached' };

async function running(conversation: string, at = stores) {
  const tab = await openTab(at, placeOf('ann', conversation));
  const { commandId } = await submit(at, { tab });
  const claimId = newClaimId();
  await at.commands.claim(commandId, claimId, newWorkerId(), 'group');
  await at.commands.append({
    ...{ commandId, claimId, ownerSessionId: tab.sessionId },
    entries: [outputEntry(commandId, 1, 'x'.repeat(1_000), 0)],
  });
  return { tab, commandId, claimId, ownerSessionId: tab.sessionId };
}

describe('a Redis that is full', () => {
  it('[O1] each script says whether it may run then, and which may not are those that make data grow', async () => {
    for (const file of readdirSync(SCRIPTS)) {
      if (file.startsWith('_') || !file.endsWith('.lua')) continue;
      const name = file.replace('.lua', '');
      const [shebang = ''] = (await readFile(new URL(file, SCRIPTS), 'utf8')).split('\n');
      const mayRun = shebang.includes('allow-oom') || shebang.includes('no-writes');
      expect(mayRun, name).toBe(!REFUSED_WHEN_FULL.includes(name));
      if (READS.includes(name)) expect(shebang, name).toContain('no-writes');
    }
  });

  it('[O1] refuses what would grow, whole, as an outage', async () => {
    const c = await running('full-refuses');
    const other = await submit(stores, { tab: c.tab });
    await fill();
    const before = await stores.redis.dbsize();
    await expect(openTab(stores, placeOf('ann', 'full-new'))).rejects.toMatchObject(full);
    await expect(submit(stores, { tab: c.tab })).rejects.toMatchObject(full);
    await expect(stores.commands.claim(other.commandId, newClaimId(), newWorkerId(), 'group')).rejects.toMatchObject(
      full,
    );
    await expect(
      stores.commands.append({ ...c, entries: [outputEntry(c.commandId, 2, 'y', 1_000)] }),
    ).rejects.toMatchObject(full);
    expect(await stores.redis.dbsize()).toBe(before);
    expect((await stores.commands.get(other.commandId))?.snapshot.state).toBe('queued');
  });

  it('[O1] lets everything else go on: tabs come, go and close, commands end, move and are killed', async () => {
    const c = await running('full-goes-on');
    const heir = await openTab(stores, c.tab.place);
    const second = await running('full-goes-on');
    const reassertion = createReassertion(stores);
    const record = await reassertion.recordOf(c.commandId);
    await fill();
    const { sessions, commands, presence } = stores;
    const { sessionId, resumeTokenHash } = c.tab;
    const attachmentId = newAttachmentId();
    const nodeId = newNodeId();
    const attached = await sessions.attach({
      ...{ sessionId, attachmentId, nodeId, resumeTokenHash, principal: 'ann' },
      ...{ pageNonce: '', probedAttachmentId: '' },
    });
    expect(attached.type).toBe('attached');
    await sessions.touch(sessionId, attachmentId);
    await commands.ack(sessionId, attachmentId, new Map([[c.commandId, 1]]));
    expect((await commands.get(c.commandId))?.snapshot.ackedSeq).toBe(1);
    const reader = { type: 'owner', sessionId, attachmentId } as const;
    expect((await commands.readLog(c.commandId, reader, 0, 10_000)).type).toBe('page');
    const kill = { signal: 'SIGTERM', graceMs: 1, reason: 'cancelled' } as const;
    expect((await commands.requestKill(c.commandId, kill)).type).toBe('requested');
    expect((await reassertion.command({ ...c, record })).type).toBe('held');
    const held = { ...c.tab, ...c.tab.place, attachmentId, nodeId, generation: 2, pageNonce: '', rev: 0, idleMs: 0 };
    expect((await reassertion.session(held)).type).toBe('held');
    await presence.beatNode({ nodeId, url: '', version: '1', startedAt: 0 });
    expect(await presence.tryLead('one', 1_000)).toBe(true);
    expect((await commands.endWithoutWorker(second.commandId, second.claimId, 'lost', 'x')).type).toBe('ended');
    await sessions.detach(heir.sessionId, heir.attachmentId);
    expect((await sessions.close(sessionId, { type: 'attachment', attachmentId })).type).toBe('closed');
    const owner = (await commands.get(c.commandId))?.snapshot.ownerSessionId;
    expect([second.tab.sessionId, heir.sessionId]).toContain(owner);
    const outcome: Outcome = {
      reason: 'exited',
      code: 0,
      signal: null,
      durationMs: 1,
      outputBytes: 1_000,
      tail: '',
      leftovers: 0,
    };
    const entry = { ...outputEntry(c.commandId, 2, '', 1_000), letter: 'e' } as const;
    const ended = await commands.append({ ...c, ownerSessionId: owner as never, entries: [entry], outcome });
    expect(ended).toEqual({ type: 'appended', headSeq: 2 });
  });
});

describe('a Redis that is nearly full', () => {
  it('[O2] refuses new commands, answers repeats, and lets go of the oldest logs of what is over until there is room', async () => {
    // Its own prefix: what other tests left is not let go first.
    await using own = await createStores(redis.url);
    const relief = createRelief(own);
    const commands = createCommandStore({
      ...{ ...own, chance, relief },
      ...{ retentionMs: 60_000, logFirstBytes: 1024, logLastBytes: 4096 },
    });
    const at = { ...own, commands };
    const tab = await openTab(own, placeOf('ann', 'nearly'));
    const stored = await submit(at, { tab });
    const over: Awaited<ReturnType<typeof running>>[] = [];
    for (let n = 0; n < 3; n += 1) {
      const c = await running('nearly', own);
      await own.commands.endWithoutWorker(c.commandId, c.claimId, 'lost', 'x');
      over.push(c);
    }
    const alive = await running('nearly', own);
    expect(await relief.isTight()).toBe(false);
    const used = Number(/used_memory:(\d+)/.exec(await stores.redis.info('memory'))?.[1]);
    await stores.redis.config('SET', 'maxmemory', String(Math.round(used * 1.1)));
    await until('it to be noticed', () => relief.isTight());
    await expect(submit(at, { tab })).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED', retryable: true });
    const again = await submit(at, { tab }, {}, tab.place, stored.commandId);
    expect(again.answer).toMatchObject({ type: 'accepted', repeated: true });

    expect(await relief.trimOldest(2)).toBe(2);
    const page = async (c: (typeof over)[number]) => {
      const read = await commands.readLog(c.commandId, { type: 'viewer' }, 0, 100_000);
      return read.type === 'page' ? read.entries.map(({ letter }) => letter).join('') : read.type;
    };
    expect(await Promise.all(over.map(page))).toEqual(['e', 'e', 'oe']);
    expect(await relief.trimOldest(10)).toBe(1);
    expect(await page(alive)).toBe('o');
    await stores.redis.config('SET', 'maxmemory', '0');
    await until('room', async () => !(await relief.isTight()));
    expect((await submit(at, { tab })).answer.type).toBe('accepted');
    expect(await relief.trimOldest(10)).toBe(0);
  });
});
