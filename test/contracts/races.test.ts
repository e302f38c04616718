/**
 * Several want one session at the same moment: one wins, whatever the order, and what the losers do afterwards changes
 * nothing. First the scripts alone, many times; then whole nodes with sockets.
 */
import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeSessionId, type SessionId } from '../../src/protocol/ids.js';
import { createCommandStore } from '../../src/redis/command-store.js';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { createScripts } from '../../src/redis/scripts.js';
import { createSessionDirectory } from '../../src/redis/session-directory.js';
import { expectComplete } from '../support/expect-tab.js';
import { claimToWrite } from '../support/log-writer.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createSeeded } from '../support/seeded.js';
import {
  chance,
  createStores,
  newAttachmentId,
  newClaimId,
  newNodeId,
  newWorkerId,
  type OpenTab,
  openTab as openSession,
  placeOf,
  type Stores,
  silentLog,
  submit,
} from '../support/stores.js';
import { createTab, openTab, RpcFailure, type Tab } from '../support/tab.js';
import { makeToken } from '../support/tokens.js';
import { until, within } from '../support/wait.js';

const secret = 'a secret of at least 32 characters';
const ROUNDS = 60;

let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(async () => {
  await redis?.[Symbol.asyncDispose]();
});

describe('at the scripts', () => {
  const seeded = createSeeded(Number(process.env.HOMING_TEST_SEED ?? 1));
  /** On connections of their own, so that Redis sees their calls in any order. */
  let both: Pick<Stores, 'sessions' | 'commands' | 'redis'>[];
  let stores: Stores;
  let second: Redis;
  let count = 0;

  beforeAll(async () => {
    stores = await createStores(redis.url, { graceMs: 0 });
    second = createRedis(parseRedisUrl(redis.url), 'commands', silentLog) as Redis;
    await waitForRedis(second, 5_000);
    const { keys, presence } = stores;
    const common = { redis: second, scripts: createScripts(second), keys, presence, retentionMs: 60_000 };
    const sessions = createSessionDirectory({ ...common, graceMs: 0 });
    const commands = createCommandStore({ ...common, chance, logFirstBytes: 1024, logLastBytes: 1024 });
    both = [stores, { redis: second, sessions, commands }];
  });
  afterAll(async () => {
    second?.disconnect();
    await stores?.[Symbol.asyncDispose]();
  });

  /** One of both, after none or a few round trips. */
  async function someone() {
    const one = seeded.pick(both);
    for (let trips = seeded.between(0, 3); trips > 0; trips -= 1) await one.redis.ping();
    return one;
  }

  const opened = () => openSession(stores, placeOf('ann', `race-${++count}`));
  const attach = async (tab: OpenTab, more: { attachmentId?: string; pageNonce?: string; probed?: string } = {}) =>
    (await someone()).sessions.attach({
      sessionId: tab.sessionId,
      attachmentId: (more.attachmentId ?? newAttachmentId()) as never,
      nodeId: newNodeId(),
      principal: 'ann',
      resumeTokenHash: tab.resumeTokenHash,
      pageNonce: more.pageNonce ?? '',
      probedAttachmentId: (more.probed ?? '') as never,
    });
  const check = (tab: OpenTab) => stores.sessions.check(tab.sessionId, []);

  it('[SE1] [SE3] of resumes at once the last one carried out holds the session, and no late detach of another takes it away', async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const tab = await opened();
      const ids = Array.from({ length: 4 }, newAttachmentId);
      const late = ids.map(async (attachmentId) => {
        await attach(tab, { attachmentId });
        return attachmentId;
      });
      // The old node notices the drop meanwhile.
      await Promise.all([...late, someone().then(({ sessions }) => sessions.detach(tab.sessionId, tab.attachmentId))]);
      const { state, attachmentId: winner } = await check(tab);
      expect(state).toBe('live');
      expect(ids).toContain(winner);
      for (const id of ids) if (id !== winner) await seeded.pick(both).sessions.detach(tab.sessionId, id);
      expect(await check(tab)).toMatchObject({ state: 'live', attachmentId: winner });
      // A loser that asks again with its own id never comes back (F1).
      for (const id of ids)
        expect((await attach(tab, { attachmentId: id })).type).toBe(id === winner ? 'attached' : 'superseded');
    }
  });

  it('[SE4] of two other pages that probed the same silent one, one takes over, and the other has to probe again', async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const tab = await opened();
      const first = await attach(tab, { pageNonce: 'first page' });
      expect(first.type).toBe('attached');
      const asked = await attach(tab, { pageNonce: 'second page' });
      if (asked.type !== 'probe') throw new Error(`expected a probe, got ${asked.type}`);
      const answers = await Promise.all([
        attach(tab, { pageNonce: 'second page', probed: asked.attachmentId }),
        attach(tab, { pageNonce: 'third page', probed: asked.attachmentId }),
      ]);
      expect(answers.map(({ type }) => type).sort()).toEqual(['attached', 'probe']);
    }
  });

  it('[OW6] [OW7] a resume in the moment in which the grace ends wins whole or loses whole', async () => {
    const outcomes = new Set<string>();
    for (let round = 0; round < ROUNDS; round += 1) {
      const tab = await opened();
      const heir = await openSession(stores, tab.place);
      const { commandId } = await submit(stores, { tab });
      await stores.sessions.detach(tab.sessionId, tab.attachmentId);
      const close = async () => (await someone()).sessions.close(tab.sessionId, { type: 'grace' });
      const steps = seeded.chance(0.5) ? [attach(tab), close()] : [close(), attach(tab)];
      const types = (await Promise.all(steps)).map(({ type }) => type).sort();
      const owner = (await stores.commands.get(commandId))?.snapshot.ownerSessionId;
      const { state } = await check(tab);
      const resumed = types.includes('attached');
      expect(types).toEqual(resumed ? ['attached', 'refused'] : ['closed', 'gone']);
      expect([state, owner]).toEqual(resumed ? ['live', tab.sessionId] : ['closed', heir.sessionId]);
      outcomes.add(types.join());
    }
    expect(outcomes.size).toBe(2);
  });

  it('[CO2] of claims at once one wins, also when each is sent twice', async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const { commandId } = await submit(stores, { tab: await opened() });
      const attempts = Array.from({ length: 3 }, newClaimId);
      const answers = await Promise.all(
        [...attempts, ...attempts].map(async (claimId) => {
          const { type } = await (await someone()).commands.claim(commandId, claimId, newWorkerId(), 'group');
          return type === 'claimed' ? claimId : undefined;
        }),
      );
      const winners = new Set(answers.filter((id) => id !== undefined));
      expect(winners.size).toBe(1);
      expect(answers.filter((id) => id !== undefined)).toHaveLength(2);
    }
  });
});

describe('at whole nodes', () => {
  const ann = makeToken(secret, { sub: 'ann' });
  let stores: Stores;
  let nodes: TestNode[];
  let count = 0;

  beforeAll(async () => {
    stores = await createStores(redis.url);
    nodes = await Promise.all([0, 1, 2].map(() => startTestNode({ redis, stores, secret }, { drainMs: 600 })));
  });
  afterAll(async () => {
    const misdelivered = (nodes ?? []).reduce((sum, node) => sum + node.count('homing_misdelivered_total'), 0);
    for (const node of nodes ?? []) await node.close();
    await stores?.[Symbol.asyncDispose]();
    expect(misdelivered).toBe(0);
  });

  const node = (index: number): TestNode => nodes[index % nodes.length] as TestNode;
  const fresh = () => ({ token: ann, conversation: `race-${++count}` });
  const attachmentOf = async (tab: Tab) => stores.sessions.check(tab.sessionId as SessionId, []);
  const dialed = (tab: Tab, pageNonce = 'the page'): Tab =>
    createTab({
      ...{ token: ann, pageNonce, name: 'another' },
      session: { sessionId: tab.sessionId, resumeToken: tab.resumeToken },
    });

  /** Whoever is attached in the end gets what is printed from now on, whole; the others nothing of it. */
  async function onlyOneHears(tabs: readonly Tab[], commandId: string): Promise<Tab> {
    const writer = await claimToWrite(stores, commandId);
    for (let line = 0; line < 20; line += 1) await writer.print(`line ${line}\n`);
    await writer.end();
    const winner = await until('one that heard the end', () =>
      tabs.find((tab) => tab.entries(commandId).some(({ method }) => method === 'command.ended')),
    );
    expectComplete(winner, commandId);
    for (const tab of tabs) if (tab !== winner) expect(tab.entries(commandId)).toEqual([]);
    return winner;
  }

  it('[SE1] two resumes at once on two nodes: one holds the session, the other is closed with 4500', async () => {
    for (let round = 0; round < 5; round += 1) {
      await using first = await openTab(node(0).url, { ...fresh(), pageNonce: 'the page' });
      const id = await first.run({ argv: ['true'] });
      await first.drop();
      await using one = dialed(first);
      await using two = dialed(first);
      await Promise.all([one.resume(node(1).url), two.resume(node(2).url)].map((resume) => resume.catch(() => {})));
      const codes = await until('one closed', async () => {
        const closed = [one, two].filter(({ socket }) => socket.ws.readyState === 3);
        return closed.length === 1 && Promise.all(closed.map(async ({ socket }) => (await socket.closed).code));
      });
      expect(codes).toEqual([4500]);
      await onlyOneHears([one, two], id);
    }
  });

  it('[SE4] fast reloads leave one live session with one connection, and nothing behind', async () => {
    await using first = await openTab(node(0).url, { ...fresh(), pageNonce: 'page 0' });
    const id = await first.run({ argv: ['true'] });
    const pages: Tab[] = [first];
    for (let reload = 1; reload <= 12; reload += 1) {
      // The page is gone before its socket is; the next page does not wait for either.
      void pages.at(-1)?.drop();
      const page = dialed(first, `page ${reload}`);
      pages.push(page);
      await page.resume(node(reload).url);
    }
    const last = pages.at(-1) as Tab;
    expect(await onlyOneHears(pages, id)).toBe(last);
    const { sessions } = await stores.sessions.list(placeOf('ann', `race-${count}`), 0, 10);
    expect(sessions.map(({ sessionId, state }) => [sessionId, state])).toEqual([[first.sessionId, 'live']]);
    await last.drop();
    await until('away', async () => (await attachmentOf(first)).state === 'away');
  });

  it('[SE4] a duplicated tab gets a session of its own, also when both pages come back at once', async () => {
    await using original = await openTab(node(0).url, { ...fresh(), pageNonce: 'the page' });
    const id = await original.run({ argv: ['true'] });
    await original.drop();
    await using same = dialed(original, 'the page');
    await using copy = dialed(original, 'its copy');
    const came = await Promise.all(
      [same, copy].map(async (tab, index) => {
        try {
          await tab.resume(node(index + 1).url);
          return 'resumed';
        } catch (error) {
          return error instanceof RpcFailure ? error.code : `${error}`;
        }
      }),
    );
    // Whoever was first answers the probe of the other; the same page may take over from a copy that was first, never a third way.
    expect(came.filter((outcome) => outcome !== 'resumed' && outcome !== 'SESSION_IN_USE')).toEqual([]);
    expect(came).toContain('resumed');
    await until('one left', () => [same, copy].filter(({ socket }) => socket.ws.readyState === 1).length >= 1);
    const winner = await onlyOneHears([same, copy], id);
    const loser = winner === same ? copy : same;
    // As the SDK does: a session of its own, in which it runs its own commands.
    await loser.drop();
    await using second = await openTab(node(0).url, { token: ann, conversation: `race-${count}` });
    const own = await second.run({ argv: ['true'] });
    expect(await onlyOneHears([winner, second], own)).toBe(second);
  });

  it('[SE3] a resume that comes before the old node notices the drop keeps the session live', async () => {
    for (let round = 0; round < 10; round += 1) {
      await using tab = await openTab(node(round).url, { ...fresh(), pageNonce: 'the page' });
      await using next = dialed(tab);
      await Promise.all([tab.drop(), next.resume(node(round + 1).url)]);
      const { attachmentId } = await attachmentOf(tab);
      // The detach of the old node comes now or came already.
      await until('the old node rid of it', async () => {
        const left = await stores.presence.nodeSessions(node(round).gateway.nodeId);
        return !left.includes(tab.sessionId as SessionId);
      });
      expect(await attachmentOf(tab)).toMatchObject({ state: 'live', attachmentId });
    }
  });

  it('[SE6] a resume while its node drains goes on elsewhere, and the end of the drain takes nothing away', async () => {
    const old = await startTestNode({ redis, stores, secret });
    await using tab = await openTab(old.url, { ...fresh(), pageNonce: 'the page' });
    const id = await tab.run({ argv: ['true'] });
    const drained = old.gateway.drain(800);
    await tab.waitFor('draining', ({ method }) => method === 'session.draining');
    await using next = dialed(tab);
    await next.resume(node(0).url);
    await expect(dialed(tab).resume(old.url)).rejects.toThrow();
    await within('the drain', drained);
    await old.close();
    expect(await attachmentOf(tab)).toMatchObject({ state: 'live' });
    expect(await onlyOneHears([tab, next], id)).toBe(next);
  });

  it('[SE2] ids that never were are refused alike, however many ask at once', async () => {
    const tag = placeOf('ann', 'race-none').tag;
    const outcomes = await Promise.all(
      Array.from({ length: 10 }, async (_, index) => {
        const session = { sessionId: makeSessionId(tag, randomBytes(16)), resumeToken: 'x'.repeat(43) };
        await using tab = createTab({ token: ann, session });
        return tab.resume(node(index).url).catch((error) => error.code);
      }),
    );
    expect(new Set(outcomes)).toEqual(new Set(['RESUME_DENIED']));
  });
});
