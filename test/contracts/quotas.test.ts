/** Quotas on a real Redis: what is refused, what is let go, and that nobody is refused while there is room. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type QuotaLimits,
  type Quotas,
  refusalOf,
  withRetainedQuota,
  withSessionQuota,
} from '../../src/domain/quotas.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { createQuotas } from '../../src/redis/quotas.js';
import { claimToWrite } from '../support/log-writer.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { startRedisCluster } from '../support/redis-cluster.js';
import {
  createStores,
  newAttachmentId,
  newCommandId,
  newNodeId,
  type OpenTab,
  openTab,
  placeOf,
  type Stores,
  silentLog,
  submit,
} from '../support/stores.js';
import { until } from '../support/wait.js';

const NONE: QuotaLimits = { sessions: 0, queued: 0, queuedPerSession: 0, retainedBytes: 0, retainedBytesPerSession: 0 };
const RETENTION_MS = 60_000;

let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis[Symbol.asyncDispose]());

async function world(limits: Partial<QuotaLimits>, url = redis.url): Promise<Stores & { readonly quotas: Quotas }> {
  const most = { ...NONE, ...limits };
  const made: { quotas?: Quotas } = {};
  const stores = await createStores(url, {
    retentionMs: RETENTION_MS,
    refusalOf: async (request) => made.quotas && refusalOf(made.quotas, most, request),
  });
  const quotas = createQuotas({ ...stores, retentionMs: RETENTION_MS });
  made.quotas = quotas;
  const sessions = withSessionQuota(stores.sessions, quotas, most);
  const commands = withRetainedQuota(stores.commands, quotas, most, silentLog);
  return { ...stores, quotas, sessions, commands, [Symbol.asyncDispose]: () => stores[Symbol.asyncDispose]() };
}

const refused = { code: 'LIMIT_EXCEEDED', retryable: true, retryAfterMs: 1_000 };
const kill = (stores: Stores, id: CommandId) => stores.commands.endWithoutWorker(id, '', 'cancelled', 'by the test');

describe('queued commands', () => {
  it('[CO12] of a tenant are limited over all its conversations; what starts or ends makes room at once', async () => {
    await using stores = await world({ queued: 3 });
    const [one, two] = [await openTab(stores), await openTab(stores, placeOf('bob', 'other'))];
    const queue = (tab: OpenTab) => submit(stores, { tab });
    const ids = [await queue(one), await queue(two), await queue(one)].map(({ commandId }) => commandId);
    await expect(queue(two)).rejects.toMatchObject(refused);
    await expect(queue(two)).rejects.toThrow('at most 3 commands of one tenant');
    // A repeat is answered as the first time, and another tenant has room.
    const again = await submit(stores, { tab: one }, {}, one.place, ids[0]);
    expect(again.answer).toMatchObject({ type: 'accepted', repeated: true });
    await submit(stores, { tab: await openTab(stores, placeOf('ann', 'chat', 'acme')) });
    await claimToWrite(stores, ids[0] as string);
    await queue(two);
    await kill(stores, ids[1] as CommandId);
    await queue(two);
    await expect(queue(one)).rejects.toMatchObject(refused);
  });

  it('[CO12] of a session are limited by themselves', async () => {
    await using stores = await world({ queuedPerSession: 1 });
    const [one, two] = [await openTab(stores), await openTab(stores)];
    const { commandId } = await submit(stores, { tab: one });
    await expect(submit(stores, { tab: one })).rejects.toThrow('at most 1 commands of one session');
    await expect(submit(stores, { named: one.sessionId })).rejects.toMatchObject(refused);
    await submit(stores, { tab: two });
    await submit(stores, 'none');
    await kill(stores, commandId);
    await submit(stores, { tab: one });
  });

  it('[CO12] never more than the limit, however many come at once, and room is found behind hundreds that are gone', async () => {
    await using stores = await world({ queued: 300 });
    const tab = await openTab(stores);
    const many = await Promise.allSettled(Array.from({ length: 320 }, () => submit(stores, { tab })));
    const stored = many.flatMap((one) => (one.status === 'fulfilled' ? [one.value.commandId] : []));
    expect(stored).toHaveLength(300);
    // The newest of all: it is looked at last.
    await kill(stores, stored[299] as CommandId);
    await submit(stores, { tab });
    await expect(submit(stores, { tab })).rejects.toMatchObject(refused);
    // What has never been stored holds its place for seconds only, and a restart of everything forgets nothing.
    const fresh = createQuotas({ ...stores, retentionMs: RETENTION_MS });
    expect(await fresh.roomForCommand({ tenant: 'default' }, newCommandId(tab.place), 300)).toBe(false);
  });
});

describe('sessions', () => {
  it('[CO12] of a tenant are limited, those that are away count, and a closed one makes room', async () => {
    await using stores = await world({ sessions: 2 });
    const [one, two] = [await openTab(stores), await openTab(stores, placeOf('bob', 'other'))];
    await stores.sessions.detach(two.sessionId, two.attachmentId);
    await expect(openTab(stores)).rejects.toMatchObject(refused);
    // The same open again, since its answer was lost; a resume; another tenant.
    expect((await stores.sessions.open({ ...one.place, ...one, pageNonce: '' })).type).toBe('opened');
    const { sessionId, resumeTokenHash, place } = two;
    const attach = {
      sessionId,
      resumeTokenHash,
      principal: place.principal,
      pageNonce: '',
      probedAttachmentId: '',
    } as const;
    expect(
      (await stores.sessions.attach({ ...attach, attachmentId: newAttachmentId(), nodeId: newNodeId() })).type,
    ).toBe('attached');
    await openTab(stores, placeOf('ann', 'chat', 'acme'));
    await stores.sessions.close(one.sessionId, { type: 'attachment', attachmentId: one.attachmentId });
    await openTab(stores);
    await expect(openTab(stores)).rejects.toMatchObject(refused);
  });
});

/** A command of this tab that printed so many bytes and is over. */
async function ended(stores: Stores, tab: OpenTab, bytes = 1_000, place = tab.place): Promise<CommandId> {
  const { commandId } = await submit(stores, { tab }, {}, place);
  const writer = await claimToWrite(stores, commandId);
  await writer.print('x'.repeat(bytes));
  await writer.end();
  return commandId;
}

/** The log as a reader gets it. */
async function entriesOf(stores: Stores, id: CommandId) {
  const page = await stores.commands.readLog(id, { type: 'viewer' }, 0, 100_000);
  return page.type === 'page' ? page.entries.map(({ letter, fromSeq, seq }) => [letter, fromSeq, seq]) : page.type;
}

/** Of the output nothing is there; `ended` is, and so is what came before it, as a gap. */
const isGone = async (stores: Stores, id: CommandId) => JSON.stringify(await entriesOf(stores, id)).startsWith('[["e"');

describe('retained logs', () => {
  it('[CO12][DE3] of a tenant that are too many go, the oldest first, and readers are told', async () => {
    await using stores = await world({ retainedBytes: 2_500 });
    const tab = await openTab(stores);
    const foreign = await ended(stores, await openTab(stores, placeOf('ann', 'chat', 'acme')));
    const ids = [await ended(stores, tab), await ended(stores, tab), await ended(stores, tab)] as const;
    await until('the oldest log to go', () => isGone(stores, ids[0]));
    for (const id of [ids[1], ids[2], foreign]) expect((await entriesOf(stores, id)).length, id).toBe(2);
    // Counted once, also when an end is told again.
    expect(await stores.quotas.retain(ids[2], { ...NONE, retainedBytes: 2_500 })).toBe(0);
    const live = await submit(stores, { tab });
    const writer = await claimToWrite(stores, live.commandId);
    await writer.print('y'.repeat(9_000));
    expect((await entriesOf(stores, live.commandId)).length).toBe(1);
  });

  const perSession = async (stores: Stores & { readonly quotas: Quotas }) => {
    const most = { ...NONE, retainedBytesPerSession: 2_500 };
    const [one, two] = [await openTab(stores), await openTab(stores)];
    const ids = [await ended(stores, one), await ended(stores, one)] as const;
    const beside = await ended(stores, two);
    const without = (await submit(stores, 'none')).commandId;
    const writer = await claimToWrite(stores, without);
    await writer.print('z'.repeat(9_000));
    await writer.end();
    // A command counts for the session that asked, whoever owns it at its end.
    const moved = (await submit(stores, { tab: one })).commandId;
    const moving = await claimToWrite(stores, moved);
    await moving.print('x'.repeat(1_000));
    await stores.sessions.close(one.sessionId, { type: 'attachment', attachmentId: one.attachmentId });
    await moving.end();
    await until('the oldest log to go', () => isGone(stores, ids[0]));
    for (const id of [ids[1], moved, beside, without]) expect((await entriesOf(stores, id)).length, id).toBe(2);
    expect(await stores.quotas.retain(moved, most)).toBe(0);
    // The counters outlive the session, and not the logs by more than an hour; nobody counted the tenant.
    for (const key of stores.keys.retained(one.sessionId)) {
      const left = await stores.redis.pttl(key);
      expect(left).toBeGreaterThan(RETENTION_MS);
      expect(left).toBeLessThanOrEqual(RETENTION_MS + 3_600_000);
    }
    expect(await Promise.all(stores.keys.tenantRetained('default').map((key) => stores.redis.exists(key)))).toEqual([
      0, 0,
    ]);
  };

  it('[CO12][DE3] that one session asked for are limited by themselves, whoever owns them now', async () => {
    await using stores = await world({ retainedBytesPerSession: 2_500 });
    await perSession(stores);
  });

  it('[CO12][DE3] are limited on a Cluster too: of a session where its records are, of a tenant in a slot of its own', async () => {
    await using cluster = await startRedisCluster();
    await using one = await world({ retainedBytesPerSession: 2_500 }, cluster.url);
    await perSession(one);
    await using both = await world({ retainedBytes: 3_500, retainedBytesPerSession: 2_500 }, cluster.url);
    // Conversations in other slots than their tenant, and than each other.
    const tabs = await Promise.all(['chat', 'other', 'third'].map((name) => openTab(both, placeOf('ann', name))));
    const ids: CommandId[] = [];
    for (const tab of tabs) ids.push(await ended(both, tab), await ended(both, tab));
    await until('the oldest logs of the tenant to go', async () => {
      const gone = await Promise.all(ids.map((id) => isGone(both, id)));
      return gone.join() === 'true,true,true,false,false,false';
    });
  });

  it('[CO12] that a session let go of are no longer counted for its tenant, so they cost no other session anything', async () => {
    await using stores = await world({ retainedBytes: 4_500, retainedBytesPerSession: 1_500 });
    const [loud, quiet] = [await openTab(stores), await openTab(stores)];
    const kept = await ended(stores, quiet);
    const ids: CommandId[] = [];
    for (let n = 0; n < 6; n += 1) {
      ids.push(await ended(stores, loud));
      await until(`log ${n} to be counted`, () => counted(stores, ids[n] as CommandId));
    }
    // One that is too large by itself.
    const large = await ended(stores, loud, 9_000);
    await until('the large log to go', () => isGone(stores, large));
    for (const id of ids) expect(await isGone(stores, id), id).toBe(true);
    expect((await entriesOf(stores, kept)).length).toBe(2);
    await until('the tenant to be counted for what is there', async () => (await bytesOfTenant(stores)) === 1_000);
  });
});

/** Bytes that the tenant is counted for. */
const bytesOfTenant = async ({ redis, keys }: Stores): Promise<number> =>
  Number(await redis.hget(keys.tenantRetained('default')[1] as string, '#'));

const counted = async ({ redis, keys }: Stores, id: CommandId): Promise<boolean> =>
  (await redis.zscore(keys.tenantRetained('default')[0] as string, id)) !== null;
