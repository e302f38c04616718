/** The trace of a command and the list of parked ones, as operators get them from a real Redis: bounded, and complete within. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createCensus } from '../../src/redis/census.js';
import { createGapNotes } from '../../src/redis/gap-notes.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import {
  createStores,
  newAttachmentId,
  type OpenTab,
  openTab,
  placeOf,
  type Stores,
  submit,
} from '../support/stores.js';

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
});
afterAll(async () => {
  await stores?.[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
});

const census = () => createCensus(stores);
const attach = (tab: OpenTab, attachmentId = newAttachmentId()) =>
  stores.sessions.attach({
    ...{ sessionId: tab.sessionId, attachmentId, nodeId: tab.nodeId, principal: tab.place.principal },
    ...{ resumeTokenHash: tab.resumeTokenHash, pageNonce: '', probedAttachmentId: '' },
  });

/** Times are milliseconds, and lines of one are in no order. */
const nextMs = () => sleep(2);

describe('the trace of a command', () => {
  it('[OW2] [SE1] tells attaches, lost connections, moves and gaps, with their times', async () => {
    const place = placeOf('ann', 'trace');
    const tab = await openTab(stores, place);
    const { commandId } = await submit(stores, { tab });
    await attach(tab);
    await nextMs();
    await stores.sessions.detachFromNode(tab.sessionId, tab.nodeId);
    await nextMs();
    await stores.scripts.run(
      'note-gap',
      [stores.keys.command(commandId), stores.keys.trace(commandId)],
      [3, 7, 'trimmed'],
    );
    await nextMs();
    const last = newAttachmentId();
    await attach(tab, last);
    await nextMs();
    await stores.sessions.close(tab.sessionId, { type: 'attachment', attachmentId: last });

    const found = await census().command(commandId);
    expect(found?.trace.map(({ what, from, to, why }) => [what, from, to, why])).toEqual([
      ['attach', tab.sessionId, tab.nodeId, 'generation 1'],
      ['attach', tab.sessionId, tab.nodeId, 'generation 2'],
      ['away', tab.sessionId, tab.nodeId, 'generation 2'],
      ['gap', '3', '7', 'trimmed'],
      ['attach', tab.sessionId, tab.nodeId, 'generation 3'],
      ['move', tab.sessionId, '-', 'parked'],
    ]);
    const times = found?.trace.map(({ at }) => at) ?? [];
    expect([...times].sort((a, b) => a - b)).toEqual(times);

    const parked = [];
    for (let cursor: string | undefined = '0-0'; cursor !== undefined; ) {
      const { rows, next }: { rows: readonly { commandId: string }[]; next?: string } = await census().parked(cursor);
      parked.push(...rows.map((row) => row.commandId));
      cursor = next;
    }
    expect(parked).toEqual([commandId]);
  });

  it('keeps the last of each kind, so that many gaps push out no move', async () => {
    const tab = await openTab(stores, placeOf('ann', 'bounded'));
    const { commandId } = await submit(stores, { tab });
    for (let n = 0; n < 30; n += 1) await attach(tab);
    const current = newAttachmentId();
    await attach(tab, current);
    await stores.sessions.close(tab.sessionId, { type: 'attachment', attachmentId: current });
    const notes = createGapNotes(stores);
    for (let n = 1; n <= 60; n += 1) {
      await stores.scripts.run(
        'note-gap',
        [stores.keys.command(commandId), stores.keys.trace(commandId)],
        [n, n, 'flood'],
      );
    }
    notes.close();
    const trace = (await census().command(commandId))?.trace ?? [];
    const count = (kind: string) => trace.filter(({ what }) => what === kind).length;
    expect([count('move'), count('gap'), count('attach')]).toEqual([1, 50, 20]);
    expect(trace.filter(({ what }) => what === 'gap').at(-1)?.from).toBe('60');
  });

  it('writes gaps of a second as one, and nothing for a command that is gone', async () => {
    const tab = await openTab(stores, placeOf('ann', 'merged'));
    const { commandId } = await submit(stores, { tab });
    const notes = createGapNotes(stores);
    notes.gap(commandId, { fromSeq: 5, toSeq: 6, reason: 'flood' });
    notes.gap(commandId, { fromSeq: 9, toSeq: 12, reason: 'flood' });
    notes.gap(commandId, { fromSeq: 1, toSeq: 2, reason: 'trimmed' });
    const gaps = async () =>
      (await census().command(commandId))?.trace
        .filter(({ what }) => what === 'gap')
        .map(({ from, to, why }) => `${from}-${to} ${why}`);
    await expect.poll(gaps).toEqual(['5-12 flood', '1-2 trimmed']);
    notes.close();
    await stores.redis.del(stores.keys.command(commandId), stores.keys.trace(commandId));
    const ran = await stores.scripts.run(
      'note-gap',
      [stores.keys.command(commandId), stores.keys.trace(commandId)],
      [1, 2, 'flood'],
    );
    expect([ran, await stores.redis.exists(stores.keys.trace(commandId))]).toEqual([0, 0]);
  });
});
