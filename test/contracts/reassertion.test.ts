/** What a node or worker says again after a failover, against every state it may find (FAULTS R2). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { HeldSession, Reassertion } from '../../src/domain/ports.js';
import { createReassertion } from '../../src/redis/reassertion.js';
import { DEPLOYMENTS, type Deployment } from '../support/deployments.js';
import {
  createStores,
  keysLike,
  newAttachmentId,
  newClaimId,
  newNodeId,
  newWorkerId,
  type OpenTab,
  openTab,
  outputEntry,
  placeOf,
  type Stores,
  submit,
} from '../support/stores.js';

describe.each(DEPLOYMENTS)('on $name', ({ start }) => {
  let redis: Deployment;
  let stores: Stores;
  let reassertion: Reassertion;
  beforeAll(async () => {
    redis = await start();
    stores = await createStores(redis.url);
    reassertion = createReassertion(stores);
  });
  afterAll(async () => {
    await stores[Symbol.asyncDispose]();
    await redis[Symbol.asyncDispose]();
  });

  let count = 0;
  const freshPlace = () => placeOf('ann', `again-${++count}`);
  const held = (tab: OpenTab, changes: Partial<HeldSession> = {}): HeldSession => ({
    ...tab.place,
    ...tab,
    generation: 1,
    pageNonce: '',
    rev: 0,
    idleMs: 1_000,
    ...changes,
  });
  const attach = async (tab: OpenTab) => {
    const attachmentId = newAttachmentId();
    const { sessionId, resumeTokenHash } = tab;
    const { principal } = tab.place;
    const nodeId = newNodeId();
    const answer = await stores.sessions.attach({
      ...{ sessionId, attachmentId, nodeId, principal, resumeTokenHash },
      ...{ pageNonce: '', probedAttachmentId: '' },
    });
    expect(answer.type).toBe('attached');
    return { ...tab, attachmentId, nodeId };
  };
  /** What the keys of a conversation hold now, to be brought back later: data of a replica that missed what follows. */
  const remember = async (tab: OpenTab) => {
    const names = async () => keysLike(stores, `${stores.keys.tagPrefix(tab.place.tag)}*`.replace(/[{}]/g, '?'));
    const dumps: [string, Buffer][] = [];
    for (const name of await names()) dumps.push([name, (await stores.redis.dumpBuffer(name)) as Buffer]);
    return async () => {
      for (const name of await names()) await stores.redis.del(name);
      for (const [name, bytes] of dumps) await stores.redis.restore(name, 0, bytes);
    };
  };
  const stateOf = async (tab: OpenTab) => {
    const { state, attachmentId } = await stores.sessions.check(tab.sessionId, []);
    return { state, attachmentId };
  };

  describe('a session', () => {
    it('[R2] that is as its node says stays so, however often it is said', async () => {
      const tab = await openTab(stores, freshPlace());
      const before = await stores.redis.hgetall(stores.keys.session(tab.sessionId));
      for (let n = 0; n < 2; n += 1) expect(await reassertion.session(held(tab))).toEqual({ type: 'held' });
      expect(await stores.redis.hgetall(stores.keys.session(tab.sessionId))).toEqual(before);
    });

    it('[R2] whose record is missing is there again, with its token, its place among others and its counters', async () => {
      const place = freshPlace();
      const earlier = await openTab(stores, place);
      const forget = await remember(earlier);
      const tab = await openTab(stores, place);
      const later = await openTab(stores, place);
      await forget();
      expect((await stateOf(tab)).state).toBe('missing');
      // The one with the later activity says so first; order of restoring must not matter.
      expect(await reassertion.session(held(later, { idleMs: 0 }))).toEqual({ type: 'restored' });
      expect(await reassertion.session(held(tab, { idleMs: 500 }))).toEqual({ type: 'restored' });
      expect(await reassertion.session(held(tab, { idleMs: 500 }))).toEqual({ type: 'held' });
      expect(await stateOf(tab)).toEqual({ state: 'live', attachmentId: tab.attachmentId });
      const { sessions } = await stores.sessions.list(place, 0, 10);
      expect(sessions.map(({ sessionId }) => sessionId).slice(0, 1)).toEqual([later.sessionId]);
      expect(sessions).toHaveLength(3);
      await attach(tab);
      // Closing all of them ends the conversation's counter where it began.
      for (const one of [earlier, later]) {
        await stores.sessions.close(one.sessionId, { type: 'attachment', attachmentId: one.attachmentId });
      }
      expect(await stores.redis.hget(stores.keys.conversation(place.tag), 'open')).toBe('1');
    });

    it('[R2] whose attach was lost is taken back by its node', async () => {
      const tab = await openTab(stores, freshPlace());
      const forget = await remember(tab);
      const now = await attach(tab);
      await forget();
      expect(await reassertion.session(held(now, { generation: 2 }))).toEqual({ type: 'restored' });
      expect(await stateOf(tab)).toEqual({ state: 'live', attachmentId: now.attachmentId });
      // The one that was replaced can not come back.
      expect(await reassertion.session(held(tab))).toEqual({ type: 'superseded' });
    });

    it('[R2] goes to the later of two attaches that were both lost, whoever says so first', async () => {
      for (const laterFirst of [true, false]) {
        const tab = await openTab(stores, freshPlace());
        const forget = await remember(tab);
        const second = held(await attach(tab), { generation: 2 });
        const third = held(await attach(tab), { generation: 3 });
        await forget();
        if (laterFirst) {
          expect((await reassertion.session(third)).type).toBe('restored');
          expect((await reassertion.session(second)).type).toBe('superseded');
        } else {
          expect((await reassertion.session(second)).type).toBe('restored');
          expect((await reassertion.session(third)).type).toBe('restored');
          expect((await reassertion.session(second)).type).toBe('superseded');
        }
        expect((await stateOf(tab)).attachmentId).toBe(third.attachmentId);
      }
    });

    it('[R2][F1] stays with another attachment that was given the same generation since', async () => {
      const tab = await openTab(stores, freshPlace());
      const forget = await remember(tab);
      const lost = held(await attach(tab), { generation: 2 });
      await forget();
      const now = await attach(tab);
      expect(await reassertion.session(lost)).toEqual({ type: 'superseded' });
      expect((await stateOf(tab)).attachmentId).toBe(now.attachmentId);
    });

    it('[R2] whose close was lost is closed again, also when it was made away meanwhile; not when it was resumed', async () => {
      const tab = await openTab(stores, freshPlace());
      const again = { type: 'again', attachmentId: tab.attachmentId } as const;
      expect((await stores.sessions.close(tab.sessionId, again)).type).toBe('refused');
      await stores.sessions.detach(tab.sessionId, tab.attachmentId);
      expect((await stores.sessions.close(tab.sessionId, again)).type).toBe('closed');
      const resumed = await openTab(stores, freshPlace());
      await stores.sessions.detach(resumed.sessionId, resumed.attachmentId);
      const now = await attach(resumed);
      const old = { type: 'again', attachmentId: resumed.attachmentId } as const;
      expect((await stores.sessions.close(resumed.sessionId, old)).type).toBe('refused');
      await stores.sessions.detach(now.sessionId, now.attachmentId);
      expect((await stores.sessions.close(resumed.sessionId, old)).type).toBe('refused');
    });

    it('[R2] that was closed stays closed; that was judged dead has to be resumed', async () => {
      const closed = await openTab(stores, freshPlace());
      await stores.sessions.close(closed.sessionId, { type: 'attachment', attachmentId: closed.attachmentId });
      expect(await reassertion.session(held(closed))).toEqual({ type: 'gone' });
      const away = await openTab(stores, freshPlace());
      await stores.sessions.detachFromNode(away.sessionId, away.nodeId);
      expect(await reassertion.session(held(away))).toEqual({ type: 'away' });
      expect((await stateOf(away)).state).toBe('away');
    });
  });

  describe('a command', () => {
    async function running(onOwnerGone: 'adopt' | 'park' = 'adopt') {
      const tab = await openTab(stores, freshPlace());
      const empty = await remember(tab);
      const { commandId } = await submit(stores, { tab }, { onOwnerGone });
      const queued = await remember(tab);
      const claimId = newClaimId();
      const workerId = newWorkerId();
      await stores.commands.claim(commandId, claimId, workerId, 'group');
      const record = await reassertion.recordOf(commandId);
      return { tab, commandId, claimId, workerId, record, ownerSessionId: tab.sessionId, empty, queued };
    }
    const append = (c: Awaited<ReturnType<typeof running>>, seq: number, text: string, at: number) =>
      stores.commands.append({ ...c, entries: [outputEntry(c.commandId, seq, text, at)] });

    it('[R2][CO2] whose claim was lost is claimed again by the same attempt, and by no other', async () => {
      const c = await running();
      await c.queued();
      expect(await reassertion.command(c)).toEqual({ type: 'restored' });
      expect(await reassertion.command(c)).toEqual({ type: 'held' });
      const { snapshot, workerId } = (await stores.commands.get(c.commandId)) ?? {};
      expect(snapshot).toMatchObject({ state: 'running', containment: 'group', workerId: c.workerId });
      expect(workerId).toBe(c.workerId);
      expect((await append(c, 1, 'a', 0)).type).toBe('appended');
      expect((await stores.commands.claim(c.commandId, newClaimId(), newWorkerId(), 'group')).type).toBe('refused');
    });

    it('[R2] whose record was lost is given back whole, to its owner, and its log begins anew', async () => {
      const c = await running();
      const before = (await stores.commands.get(c.commandId))?.snapshot;
      await append(c, 1, 'a', 0);
      await c.empty();
      expect(await stores.commands.get(c.commandId)).toBeUndefined();
      expect(await reassertion.command(c)).toEqual({ type: 'restored' });
      expect((await stores.commands.get(c.commandId))?.snapshot).toEqual({ ...before, why: undefined });
      expect((await stores.sessions.owned(c.tab.sessionId, 10)).commands).toHaveLength(1);
      expect(await append(c, 2, 'b', 1)).toEqual({ type: 'behind', headSeq: 0 });
      expect((await append(c, 1, 'a', 0)).type).toBe('appended');
      const { commands } = await stores.commands.list(c.tab.place, { limit: 10 });
      expect(commands.map(({ commandId }) => commandId)).toEqual([c.commandId]);
    });

    it('[R2][OW2] whose record was lost and whose owner has closed goes to the heir, or is parked, or is kept', async () => {
      for (const [policy, heirs, expected] of [
        ['adopt', 1, 'heir'],
        ['adopt', 0, 'parked'],
        ['park', 1, 'kept'],
      ] as const) {
        const c = await running(policy);
        await stores.redis.del(stores.keys.command(c.commandId));
        const heir = heirs === 1 ? await openTab(stores, c.tab.place) : undefined;
        await stores.sessions.close(c.tab.sessionId, { type: 'attachment', attachmentId: c.tab.attachmentId });
        expect((await reassertion.command(c)).type).toBe('restored');
        const owner = (await stores.commands.get(c.commandId))?.snapshot.ownerSessionId;
        expect(owner ?? null).toBe(expected === 'heir' ? heir?.sessionId : null);
        const { tag, principal } = c.tab.place;
        const parked = await stores.redis.smembers(stores.keys.parked(tag, principal));
        const kept = await stores.redis.smembers(stores.keys.kept(tag, principal));
        expect([parked.length, kept.length]).toEqual(
          expected === 'parked' ? [1, 0] : expected === 'kept' ? [0, 1] : [0, 0],
        );
      }
    });

    it('[R2][CO2] that another attempt has claimed since is lost; that ended by this claim has ended', async () => {
      const taken = await running();
      await taken.queued();
      await stores.commands.claim(taken.commandId, newClaimId(), newWorkerId(), 'group');
      expect(await reassertion.command(taken)).toEqual({ type: 'lost' });
      const over = await running();
      await stores.commands.endWithoutWorker(over.commandId, over.claimId, 'lost', 'x');
      expect(await reassertion.command(over)).toEqual({ type: 'lost' });
    });
  });
});
