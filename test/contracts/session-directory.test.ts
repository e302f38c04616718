/** The port SessionDirectory on a real Redis: attachments, grace, closing and what moves where. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type CommandId, makeSessionId, type SessionId } from '../../src/protocol/ids.js';
import { DEPLOYMENTS, type Deployment } from '../support/deployments.js';
import {
  chance,
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
  beforeAll(async () => {
    redis = await start();
    stores = await createStores(redis.url);
  });
  afterAll(async () => {
    await stores[Symbol.asyncDispose]();
    await redis[Symbol.asyncDispose]();
  });

  let count = 0;
  /** A conversation no other test uses. */
  const freshPlace = (principal = 'ann') => placeOf(principal, `chat-${++count}`);
  const ownerOf = async (commandId: Parameters<Stores['commands']['get']>[0]) =>
    (await stores.commands.get(commandId))?.snapshot.ownerSessionId;
  const closeTab = (tab: OpenTab) =>
    stores.sessions.close(tab.sessionId, { type: 'attachment', attachmentId: tab.attachmentId });
  const attach = (tab: OpenTab, changes: Partial<Parameters<Stores['sessions']['attach']>[0]> = {}) =>
    stores.sessions.attach({
      sessionId: tab.sessionId,
      attachmentId: newAttachmentId(),
      nodeId: newNodeId(),
      principal: tab.place.principal,
      resumeTokenHash: tab.resumeTokenHash,
      pageNonce: '',
      probedAttachmentId: '',
      ...changes,
    });

  describe('opening and attaching', () => {
    it('[SE3] the same open sent twice makes one session', async () => {
      const place = freshPlace();
      const ids = {
        sessionId: makeSessionId(place.tag, chance.bytes(16)),
        attachmentId: newAttachmentId(),
        nodeId: newNodeId(),
      };
      const request = { ...place, ...ids, resumeTokenHash: 'a', pageNonce: '' };
      expect(await stores.sessions.open(request)).toEqual({ type: 'opened', generation: 1, rev: 0 });
      expect(await stores.sessions.open(request)).toEqual({ type: 'opened', generation: 1, rev: 0 });
      expect((await stores.sessions.list(place, 0, 10)).sessions).toHaveLength(1);
    });

    it('[SE1] a new attachment replaces the old one, and a late repeat of the old one never attaches again', async () => {
      const tab = await openTab(stores, freshPlace());
      const second = newAttachmentId();
      expect(await attach(tab, { attachmentId: second })).toEqual({ type: 'attached', generation: 2, rev: 0 });
      expect(await attach(tab, { attachmentId: second })).toEqual({ type: 'attached', generation: 2, rev: 0 });
      expect(await attach(tab, { attachmentId: tab.attachmentId })).toEqual({ type: 'superseded' });
      expect((await stores.sessions.check(tab.sessionId, [])).attachmentId).toBe(second);
    });

    it('[SE2] an unknown id, a wrong token and another principal are denied alike', async () => {
      const tab = await openTab(stores, freshPlace());
      const unknown = makeSessionId(tab.place.tag, chance.bytes(16));
      expect(await attach(tab, { resumeTokenHash: 'wrong' })).toEqual({ type: 'denied' });
      expect(await attach(tab, { principal: 'bob' })).toEqual({ type: 'denied' });
      expect(await attach(tab, { sessionId: unknown })).toEqual({ type: 'denied' });
    });

    it('[SE4] another page must probe the current attachment first, and again if that changed meanwhile', async () => {
      const place = freshPlace();
      const tab = await openTab(stores, place);
      const first = newAttachmentId();
      await attach(tab, { attachmentId: first, pageNonce: 'page-1', nodeId: tab.nodeId });
      const probe = { type: 'probe', nodeId: tab.nodeId, attachmentId: first };
      expect(await attach(tab, { pageNonce: 'page-2' })).toEqual(probe);
      expect(await attach(tab, { pageNonce: 'page-2', probedAttachmentId: newAttachmentId() })).toEqual(probe);
      expect((await attach(tab, { pageNonce: 'page-2', probedAttachmentId: first })).type).toBe('attached');
      expect((await attach(tab, { pageNonce: 'page-2' })).type).toBe('attached');
    });

    it('[OW6] a closed session can not be resumed, and only its own token learns that it is gone', async () => {
      const tab = await openTab(stores, freshPlace());
      await closeTab(tab);
      expect(await attach(tab)).toEqual({ type: 'gone' });
      expect(await attach(tab, { resumeTokenHash: 'wrong' })).toEqual({ type: 'denied' });
    });
  });

  describe('looking at many', () => {
    it('[DE7] [SE1] sessions and claims of many conversations are looked at together, each gets its own answer, and a damaged record holds up no other', async () => {
      const tabs = await Promise.all(Array.from({ length: 300 }, () => openTab(stores, freshPlace())));
      const [claimId, workerId] = [newClaimId(), newWorkerId()];
      const ids = await Promise.all(
        tabs.map(async (tab) => {
          const { commandId } = await submit(stores, { tab });
          await stores.commands.claim(commandId, claimId, workerId, 'group');
          return commandId;
        }),
      );
      const look = () =>
        Promise.allSettled(tabs.map((tab, n) => stores.sessions.check(tab.sessionId, [ids[n] as CommandId])));
      const claims = () => stores.commands.checkClaims(ids.map((commandId) => ({ commandId, claimId })));
      const wanted = tabs.map(({ attachmentId }) => ({
        status: 'fulfilled',
        value: { state: 'live', attachmentId, heads: [{ ended: false, owned: true }] },
      }));
      expect(await look()).toMatchObject(wanted);
      expect((await claims()).filter(({ held }) => held)).toHaveLength(ids.length);

      const [session, command] = [tabs[7]?.sessionId as SessionId, ids[11] as CommandId];
      for (const key of [stores.keys.session(session), stores.keys.command(command)]) {
        await stores.redis.del(key);
        await stores.redis.set(key, 'something else');
      }
      const after = await look();
      expect(after.filter(({ status }) => status === 'rejected')).toHaveLength(2);
      for (const [n, answer] of after.entries())
        if (n !== 7 && n !== 11) expect(answer).toMatchObject(wanted[n] as object);
      expect((await claims()).map(({ held }) => held)).toEqual(ids.map((_, n) => n !== 11));
      await stores.redis.del(stores.keys.session(session));
      await stores.redis.del(stores.keys.command(command));
    });
  });

  describe('grace', () => {
    it('[OW7] a dropped session is away and still owns; only its current attachment can make it so', async () => {
      const tab = await openTab(stores, freshPlace());
      const { commandId } = await submit(stores, { tab });
      await stores.sessions.detach(tab.sessionId, newAttachmentId());
      expect((await stores.sessions.check(tab.sessionId, [])).state).toBe('live');
      await stores.sessions.detach(tab.sessionId, tab.attachmentId);
      expect((await stores.sessions.check(tab.sessionId, [])).state).toBe('away');
      expect(await ownerOf(commandId)).toBe(tab.sessionId);
    });

    it('[SE5] a grace that is not over refuses the close and says how long it lasts; a resume wins over it', async () => {
      const tab = await openTab(stores, freshPlace());
      await stores.sessions.detach(tab.sessionId, tab.attachmentId);
      const refused = await stores.sessions.close(tab.sessionId, { type: 'grace' });
      expect(refused.type === 'refused' && (refused.dueInMs ?? 0) > 29_000).toBe(true);
      await attach(tab);
      expect(await stores.sessions.close(tab.sessionId, { type: 'grace' })).toEqual({ type: 'refused' });
    });

    it('[SE5] a session of a dead node becomes away, but not one that resumed elsewhere', async () => {
      const here = await openTab(stores, freshPlace());
      const elsewhere = await openTab(stores, freshPlace());
      await attach(elsewhere);
      await stores.sessions.detachFromNode(here.sessionId, here.nodeId);
      await stores.sessions.detachFromNode(elsewhere.sessionId, elsewhere.nodeId);
      expect((await stores.sessions.check(here.sessionId, [])).state).toBe('away');
      expect((await stores.sessions.check(elsewhere.sessionId, [])).state).toBe('live');
    });
  });

  describe('moves', () => {
    it('[OW2] the heir is the latest active open session of the same principal, whatever the order of opening', async () => {
      const place = freshPlace();
      const [a, d, e] = [await openTab(stores, place), await openTab(stores, place), await openTab(stores, place)];
      const stranger = await openTab(stores, { ...place, principal: 'bob' });
      const { commandId } = await submit(stores, { tab: a });
      await stores.sessions.touch(d.sessionId, d.attachmentId);
      await stores.sessions.touch(stranger.sessionId, stranger.attachmentId);
      await closeTab(a);
      expect(await ownerOf(commandId)).toBe(d.sessionId);
      await closeTab(d);
      expect(await ownerOf(commandId)).toBe(e.sessionId);
    });

    it('[OW2] a live session comes before an away one that was active later', async () => {
      const place = freshPlace();
      const [a, live, away] = [
        await openTab(stores, place),
        await openTab(stores, place),
        await openTab(stores, place),
      ];
      await stores.sessions.detach(away.sessionId, away.attachmentId);
      const { commandId } = await submit(stores, { tab: a });
      await closeTab(a);
      expect(await ownerOf(commandId)).toBe(live.sessionId);
    });

    it('[OW4] without an heir a command is parked, and the next session of that principal adopts it', async () => {
      const place = freshPlace();
      const a = await openTab(stores, place);
      const { commandId } = await submit(stores, { tab: a });
      await closeTab(a);
      expect(await ownerOf(commandId)).toBeNull();
      await openTab(stores, { ...place, principal: 'bob' });
      expect(await ownerOf(commandId)).toBeNull();
      const next = await openTab(stores, place);
      expect(await ownerOf(commandId)).toBe(next.sessionId);
      const { commands } = await stores.sessions.owned(next.sessionId, 10);
      expect(commands.map((command) => command.why)).toEqual(['unparked']);
    });

    it('[OW8] a moved command stays with its new owner while a more active session appears', async () => {
      const place = freshPlace();
      const [a, b] = [await openTab(stores, place), await openTab(stores, place)];
      const { commandId } = await submit(stores, { tab: a });
      await closeTab(a);
      await openTab(stores, place);
      expect(await ownerOf(commandId)).toBe(b.sessionId);
    });

    it('[OW11] park is kept until it is asked for, and kill says what to end', async () => {
      const place = freshPlace();
      const [a, b] = [await openTab(stores, place), await openTab(stores, place)];
      const park = await submit(stores, { tab: a }, { onOwnerGone: 'park' });
      const kill = await submit(stores, { tab: a }, { onOwnerGone: 'kill' });
      expect(await closeTab(a)).toEqual({ type: 'closed', moved: 2, toKill: [kill.commandId] });
      expect([await ownerOf(park.commandId), await ownerOf(kill.commandId)]).toEqual([null, null]);
      await openTab(stores, place);
      expect(await ownerOf(park.commandId)).toBeNull();
      expect(await stores.commands.adopt(park.commandId, b.sessionId, b.attachmentId)).toEqual({ type: 'adopted' });
      expect(await ownerOf(park.commandId)).toBe(b.sessionId);
    });

    it('[OW2] a close of 1,200 commands goes on in batches, and what an interrupted one left another process finishes', async () => {
      const place = freshPlace();
      const [a, b] = [await openTab(stores, place), await openTab(stores, place)];
      const submits = await Promise.all(Array.from({ length: 1_200 }, () => submit(stores, { tab: a })));
      const { keys } = stores;
      const one = ['close', [keys.session(a.sessionId), keys.owned(a.sessionId)]] as const;
      const args = [keys.tagPrefix(place.tag), a.sessionId, 'attachment', a.attachmentId, 500, 60_000, 30_000];
      expect(await stores.scripts.run(...one, args)).toEqual(['more', 500]);
      expect(await stores.sessions.close(a.sessionId, { type: 'continue' })).toEqual({
        type: 'closed',
        moved: 700,
        toKill: [],
      });
      const owners = await Promise.all(submits.map(({ commandId }) => ownerOf(commandId)));
      expect(new Set(owners)).toEqual(new Set([b.sessionId]));
    });

    it('[OW2] when the heir closes midway, the rest goes to the next one', async () => {
      const place = freshPlace();
      const c = await openTab(stores, place);
      const [b, a] = [await openTab(stores, place), await openTab(stores, place)];
      const submits = await Promise.all(Array.from({ length: 6 }, () => submit(stores, { tab: a })));
      const { keys } = stores;
      const args = [keys.tagPrefix(place.tag), a.sessionId, 'attachment', a.attachmentId, 3, 60_000, 30_000];
      await stores.scripts.run('close', [keys.session(a.sessionId), keys.owned(a.sessionId)], args);
      await closeTab(b);
      await stores.sessions.close(a.sessionId, { type: 'continue' });
      const owners = await Promise.all(submits.map(({ commandId }) => ownerOf(commandId)));
      expect(new Set(owners)).toEqual(new Set([c.sessionId]));
    });

    it('[OW12] acknowledging and resuming are no user activity', async () => {
      const place = freshPlace();
      const [a, b, c] = [await openTab(stores, place), await openTab(stores, place), await openTab(stores, place)];
      const { commandId } = await submit(stores, { tab: a });
      const acked = await submit(stores, { tab: b });
      await stores.sessions.touch(c.sessionId, c.attachmentId);
      const claimId = newClaimId();
      await stores.commands.claim(acked.commandId, claimId, newWorkerId(), 'group');
      const entries = [outputEntry(acked.commandId, 1, 'x', 0)];
      await stores.commands.append({ commandId: acked.commandId, claimId, ownerSessionId: b.sessionId, entries });
      await stores.commands.ack(b.sessionId, b.attachmentId, new Map([[acked.commandId, 1]]));
      await attach(b);
      await closeTab(a);
      expect(await ownerOf(commandId)).toBe(c.sessionId);
    });

    it('[L4] a command that moves after it has ended leaves no key without an end', async () => {
      const place = freshPlace();
      const [a, heir] = [await openTab(stores, place), await openTab(stores, place)];
      const { commandId } = await submit(stores, { tab: a });
      await stores.commands.endWithoutWorker(commandId, '', 'expired', 'Nobody took it.');
      await closeTab(a);
      expect(await ownerOf(commandId)).toBe(heir.sessionId);
      const left = await keysLike(stores, `*${commandId}`);
      expect(left).toContain(stores.keys.trace(commandId));
      const endless = await Promise.all(left.map(async (key) => [key, await stores.redis.pttl(key)] as const));
      expect(endless.filter(([, ms]) => ms < 0)).toEqual([]);
    });

    it('[OW6] when the last session and the last command are gone, no key is left without an end', async () => {
      const place = freshPlace();
      const tab = await openTab(stores, place);
      await closeTab(tab);
      const left = await keysLike(stores, `${stores.keys.tagPrefix(place.tag).replace(/[{}]/g, '?')}*`);
      const lifetimes = await Promise.all(left.map((key) => stores.redis.pttl(key)));
      expect(left).toHaveLength(2);
      expect(lifetimes.every((ms) => ms > 0)).toBe(true);
    });
  });
});
