/** The port CommandStore on a real Redis: submit, claim, append, read, end. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Entry, type StoredEntry, serializeEntry } from '../../src/protocol/entries.js';
import type { ClaimId, CommandId } from '../../src/protocol/ids.js';
import { makeSessionId } from '../../src/protocol/ids.js';
import { DEPLOYMENTS, type Deployment } from '../support/deployments.js';
import {
  chance,
  createStores,
  keysLike,
  newAttachmentId,
  newClaimId,
  newCommandId,
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
    stores = await createStores(redis.url, { logFirstBytes: 4_096, logLastBytes: 8_192, retentionMs: 1_000 });
  });
  afterAll(async () => {
    await stores[Symbol.asyncDispose]();
    await redis[Symbol.asyncDispose]();
  });

  let count = 0;
  const freshPlace = (principal = 'ann') => placeOf(principal, `talk-${++count}`);

  /** A running command of an open tab. */
  async function running(tab?: OpenTab) {
    const owner = tab ?? (await openTab(stores, freshPlace()));
    const { commandId } = await submit(stores, { tab: owner });
    const claimId = newClaimId();
    const workerId = newWorkerId();
    await stores.commands.claim(commandId, claimId, workerId, 'group');
    return { tab: owner, commandId, claimId, workerId, ownerSessionId: owner.sessionId };
  }
  const letter = { output: 'o', watch: 'w', gap: 'g', started: 's', heartbeat: 'h', ended: 'e' } as const;
  const stored = (entry: Entry, endOffset: number, fromSeq = entry.seq): StoredEntry => ({
    letter: letter[entry.type],
    fromSeq,
    seq: entry.seq,
    endOffset,
    text: serializeEntry(entry),
  });
  const ended = (commandId: CommandId, seq: number, endOffset: number) => {
    const outcome = {
      reason: 'exited',
      code: 0,
      signal: null,
      durationMs: 1,
      outputBytes: endOffset,
      tail: '',
      leftovers: 0,
    } as const;
    return { outcome, entry: stored({ type: 'ended', commandId, seq, ts: 1, outcome }, endOffset) };
  };
  const readAll = async (commandId: CommandId) => {
    const page = await stores.commands.readLog(commandId, { type: 'viewer' }, 0, 1e9);
    if (page.type !== 'page') throw new Error(page.type);
    return page;
  };

  describe('submit', () => {
    it('[CO1] the same submit twice is stored once; another body under the same id is a conflict', async () => {
      const tab = await openTab(stores, freshPlace());
      const first = await submit(stores, { tab }, { argv: ['a'] });
      const again = await submit(stores, { tab }, { argv: ['a'] }, tab.place, first.commandId);
      const other = await submit(stores, { tab }, { argv: ['b'] }, tab.place, first.commandId);
      expect(first.answer).toMatchObject({
        type: 'accepted',
        state: 'queued',
        ownerSessionId: tab.sessionId,
        rev: 1,
        repeated: false,
      });
      expect(again.answer).toMatchObject({ type: 'accepted', rev: 1, repeated: true });
      expect(other.answer).toEqual({ type: 'conflict' });
      expect((await stores.commands.list(tab.place, { limit: 10 })).commands).toHaveLength(1);
    });

    it('a list leaves out a record that can not be read, and nothing beside it', async () => {
      const tab = await openTab(stores, freshPlace());
      const ids: CommandId[] = [];
      for (let n = 0; n < 5; n += 1) ids.unshift((await submit(stores, { tab })).commandId);
      const [, damaged] = ids;
      await stores.redis.hset(stores.keys.command(damaged as CommandId), 'spec', '{');
      const first = await stores.commands.list(tab.place, { limit: 2 });
      const rest = await stores.commands.list(tab.place, { limit: 10, cursor: first.next });
      const listed = [...first.commands, ...rest.commands].map(({ commandId }) => commandId);
      expect(listed).toEqual(ids.filter((id) => id !== damaged));
    });

    it('[OW5] a named origin that never was, or is of another principal, is refused', async () => {
      const tab = await openTab(stores, freshPlace());
      const never = makeSessionId(tab.place.tag, chance.bytes(16));
      const unknown = await submit(stores, { named: never }, {}, tab.place);
      const foreign = await submit(stores, { named: tab.sessionId }, {}, { ...tab.place, principal: 'bob' });
      expect([unknown.answer, foreign.answer]).toEqual([{ type: 'origin_unknown' }, { type: 'origin_unknown' }]);
    });

    it('[OW3] without an origin, or with one that has closed, the owner is found as for a close', async () => {
      const place = freshPlace();
      const [a, b] = [await openTab(stores, place), await openTab(stores, place)];
      expect((await submit(stores, 'none', {}, place)).answer).toMatchObject({ ownerSessionId: b.sessionId });
      await stores.sessions.close(b.sessionId, { type: 'attachment', attachmentId: b.attachmentId });
      const closed = await submit(stores, { named: b.sessionId }, {}, place);
      expect(closed.answer).toMatchObject({ ownerSessionId: a.sessionId });
      const claim = await stores.commands.claim(closed.commandId, newClaimId(), newWorkerId(), 'group');
      expect(claim).toMatchObject({ type: 'claimed', originSessionId: b.sessionId, originClosed: true });
    });

    it('[SE1] a submit through a connection that lost its attachment is refused', async () => {
      const tab = await openTab(stores, freshPlace());
      const late = { ...tab, attachmentId: newAttachmentId() };
      expect((await submit(stores, { tab: late })).answer).toEqual({ type: 'superseded' });
    });
  });

  describe('claim', () => {
    it('[CO2] one attempt wins; the winner asked again is told the same, everybody else is refused', async () => {
      const { commandId } = await submit(stores, { tab: await openTab(stores, freshPlace()) });
      const [one, two] = [newClaimId(), newClaimId()];
      const first = await stores.commands.claim(commandId, one, newWorkerId(), 'group');
      expect(first.type).toBe('claimed');
      expect(await stores.commands.claim(commandId, one, newWorkerId(), 'group')).toEqual(first);
      expect(await stores.commands.claim(commandId, two, newWorkerId(), 'group')).toEqual({
        type: 'refused',
        state: 'running',
      });
      const missing = newCommandId(freshPlace());
      expect(await stores.commands.claim(missing, two, newWorkerId(), 'group')).toEqual({
        type: 'refused',
        state: 'missing',
      });
    });
  });

  describe('append', () => {
    it('[DE1] a repeat changes nothing, a hole is refused with the head, and the log reads back as written', async () => {
      const c = await running();
      const entries = [outputEntry(c.commandId, 1, 'one\n', 0), outputEntry(c.commandId, 2, 'two\n', 4)];
      expect(await stores.commands.append({ ...c, entries })).toEqual({ type: 'appended', headSeq: 2 });
      expect(await stores.commands.append({ ...c, entries })).toEqual({ type: 'appended', headSeq: 2 });
      const hole = [outputEntry(c.commandId, 4, 'four\n', 12)];
      expect(await stores.commands.append({ ...c, entries: hole })).toEqual({ type: 'behind', headSeq: 2 });
      const page = await readAll(c.commandId);
      expect(page.entries).toEqual(entries);
      expect(page.headSeq).toBe(2);
    });

    it('[CO2] only the holder of the claim writes', async () => {
      const c = await running();
      const entries = [outputEntry(c.commandId, 1, 'x', 0)];
      expect(await stores.commands.append({ ...c, claimId: newClaimId(), entries })).toEqual({ type: 'claim_lost' });
      expect((await readAll(c.commandId)).headSeq).toBe(0);
    });

    it('[OW1] an append that names another owner stores nothing and is told the owner', async () => {
      const place = freshPlace();
      const [a, b] = [await openTab(stores, place), await openTab(stores, place)];
      const c = await running(a);
      await stores.sessions.close(a.sessionId, { type: 'attachment', attachmentId: a.attachmentId });
      const entries = [outputEntry(c.commandId, 1, 'x', 0)];
      expect(await stores.commands.append({ ...c, entries })).toEqual({ type: 'owner', ownerSessionId: b.sessionId });
      expect(await stores.commands.append({ ...c, ownerSessionId: b.sessionId, entries })).toEqual({
        type: 'appended',
        headSeq: 1,
      });
    });

    it('[CO7] first and last bytes are kept within their bounds, and watch entries survive the trimming', async () => {
      const c = await running();
      const chunk = 'x'.repeat(1_000);
      let at = 0;
      for (let seq = 1; seq <= 60; seq += 1) {
        const watch = {
          type: 'watch',
          commandId: c.commandId,
          seq,
          ts: 1,
          pattern: 'p',
          text: 't',
          suppressed: 0,
        } as const;
        const entry = seq === 20 ? stored(watch, at) : outputEntry(c.commandId, seq, chunk, at);
        at = entry.endOffset;
        await stores.commands.append({ ...c, entries: [entry] });
      }
      const seqs = (await readAll(c.commandId)).entries.map((entry) => entry.seq);
      expect(seqs).toEqual([1, 2, 3, 4, 20, 53, 54, 55, 56, 57, 58, 59, 60]);
    });

    it('[CO7] many tiny entries are bounded by their number', async () => {
      const c = await running();
      for (let batch = 0; batch < 10; batch += 1) {
        const entries = Array.from({ length: 50 }, (_, i) =>
          outputEntry(c.commandId, batch * 50 + i + 1, 'x', batch * 50 + i),
        );
        await stores.commands.append({ ...c, entries });
      }
      const kept = (await readAll(c.commandId)).entries;
      expect(kept.length).toBe(32 + 64);
      expect(kept.at(-1)?.seq).toBe(500);
    });

    it('[DE2] nothing follows the end, and its repeat is no fault', async () => {
      const c = await running();
      const last = ended(c.commandId, 1, 0);
      expect(await stores.commands.append({ ...c, entries: [last.entry], outcome: last.outcome })).toEqual({
        type: 'appended',
        headSeq: 1,
      });
      expect(await stores.commands.append({ ...c, entries: [last.entry], outcome: last.outcome })).toEqual({
        type: 'appended',
        headSeq: 1,
      });
      const late = [outputEntry(c.commandId, 2, 'x', 0)];
      expect(await stores.commands.append({ ...c, entries: late })).toEqual({ type: 'claim_lost' });
      expect((await stores.commands.get(c.commandId))?.snapshot).toMatchObject({
        state: 'ended',
        outcome: { reason: 'exited' },
      });
    });
  });

  describe('reading and acknowledging', () => {
    it('[IS2] an owner reads only with its current attachment, and only what it owns', async () => {
      const c = await running();
      const reader = { type: 'owner', sessionId: c.tab.sessionId, attachmentId: c.tab.attachmentId } as const;
      expect((await stores.commands.readLog(c.commandId, reader, 0, 100)).type).toBe('page');
      const stale = { ...reader, attachmentId: newAttachmentId() };
      expect(await stores.commands.readLog(c.commandId, stale, 0, 100)).toEqual({ type: 'not_owner' });
      const other = await openTab(stores, c.tab.place);
      const foreign = { ...reader, sessionId: other.sessionId, attachmentId: other.attachmentId };
      expect(await stores.commands.readLog(c.commandId, foreign, 0, 100)).toEqual({ type: 'not_owner' });
    });

    it('[DE4] pages follow one another without a hole or a repeat, whatever their size', async () => {
      const c = await running();
      const entries = Array.from({ length: 40 }, (_, i) => outputEntry(c.commandId, i + 1, 'abc', i * 3));
      await stores.commands.append({ ...c, entries });
      const seen: number[] = [];
      for (let cursor = 0; cursor < 40; cursor = seen.at(-1) ?? 40) {
        const page = await stores.commands.readLog(c.commandId, { type: 'viewer' }, cursor, 400);
        if (page.type !== 'page') throw new Error(page.type);
        expect(page.cursorOffset).toBe(cursor * 3);
        seen.push(...page.entries.map((entry) => entry.seq));
      }
      expect(seen).toEqual(entries.map((entry) => entry.seq));
    });

    it('[DE6] acks only rise, and count only from the current attachment of the owner', async () => {
      const c = await running();
      const entries = Array.from({ length: 9 }, (_, i) => outputEntry(c.commandId, i + 1, 'x', i));
      await stores.commands.append({ ...c, entries });
      const acked = async () => (await stores.commands.get(c.commandId))?.snapshot.ackedSeq;
      const ack = (seq: number, attachmentId = c.tab.attachmentId) =>
        stores.commands.ack(c.tab.sessionId, attachmentId, new Map([[c.commandId, seq]]));
      await ack(5);
      await ack(3);
      expect(await acked()).toBe(5);
      await ack(10);
      await ack(7, newAttachmentId());
      expect(await acked()).toBe(5);
      await ack(9);
      expect(await acked()).toBe(9);
    });

    it('[OW2] an ended command that is wholly acknowledged moves to nobody', async () => {
      const place = freshPlace();
      const [a, b] = [await openTab(stores, place), await openTab(stores, place)];
      const c = await running(a);
      const last = ended(c.commandId, 1, 0);
      await stores.commands.append({ ...c, entries: [last.entry], outcome: last.outcome });
      await stores.commands.ack(a.sessionId, a.attachmentId, new Map([[c.commandId, 1]]));
      await stores.sessions.close(a.sessionId, { type: 'attachment', attachmentId: a.attachmentId });
      expect((await stores.sessions.owned(b.sessionId, 10)).commands).toEqual([]);
    });
  });

  describe('ending', () => {
    it('[CO3] a command without a worker ends once, and the worker that comes back has lost its claim', async () => {
      const c = await running();
      await stores.commands.append({ ...c, entries: [outputEntry(c.commandId, 1, 'tail', 0)] });
      expect(await stores.commands.endWithoutWorker(c.commandId, c.claimId, 'lost', 'gone')).toEqual({ type: 'ended' });
      expect(await stores.commands.endWithoutWorker(c.commandId, c.claimId, 'lost', 'gone')).toEqual({
        type: 'refused',
      });
      const late = [outputEntry(c.commandId, 2, 'x', 4)];
      expect(await stores.commands.append({ ...c, entries: late })).toEqual({ type: 'claim_lost' });
      expect(await stores.commands.checkClaims([c])).toEqual([{ held: false }]);
      const { entries } = await readAll(c.commandId);
      expect(entries.map((entry) => entry.letter).join('')).toBe('oe');
      expect((await stores.commands.get(c.commandId))?.snapshot.outcome).toMatchObject({
        reason: 'lost',
        tail: 'tail',
        outputBytes: 4,
      });
    });

    it('[CO5] the first reason of a kill stays, and the wish is in the record', async () => {
      const c = await running();
      const wish = { signal: 'SIGTERM', graceMs: 10, reason: 'owner_gone' } as const;
      expect(await stores.commands.requestKill(c.commandId, wish)).toMatchObject({
        type: 'requested',
        state: 'running',
      });
      await stores.commands.requestKill(c.commandId, { signal: 'SIGKILL', graceMs: 0, reason: 'cancelled' });
      const [check] = await stores.commands.checkClaims([c]);
      expect(check).toEqual({ held: true, kill: { signal: 'SIGKILL', graceMs: 0, reason: 'owner_gone' } });
    });

    it('[CO2] cancelling a queued command takes the claim, so that no worker starts it', async () => {
      const { commandId } = await submit(stores, { tab: await openTab(stores, freshPlace()) });
      const queued = '' as ClaimId | '';
      expect(await stores.commands.endWithoutWorker(commandId, queued, 'cancelled', 'x')).toEqual({ type: 'ended' });
      const claim = await stores.commands.claim(commandId, newClaimId(), newWorkerId(), 'group');
      expect(claim).toEqual({ type: 'refused', state: 'ended' });
    });

    it('[DE3] retention counts from the end, and nothing of an expired command is left', async () => {
      const c = await running();
      const last = ended(c.commandId, 1, 0);
      await stores.commands.append({ ...c, entries: [last.entry], outcome: last.outcome });
      const early = await stores.commands.expire(c.commandId);
      expect(early.type).toBe('refused');
      await expect.poll(() => stores.commands.expire(c.commandId)).toEqual({ type: 'expired' });
      const left = await keysLike(stores, `*${c.commandId}*`);
      expect(left).toEqual([]);
      expect((await stores.sessions.owned(c.tab.sessionId, 10)).commands).toEqual([]);
    });
  });
});
