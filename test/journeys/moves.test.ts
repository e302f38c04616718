/** When a tab closes for good, what it ran goes to one heir, decided the same from every node; or waits for one. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectNothing, expectOnly } from '../support/expect-tab.js';
import { createStage, type Stage } from '../support/programs.js';
import type { Tab } from '../support/tab.js';
import { until } from '../support/wait.js';

const GRACE_MS = 1500;

describe('ownership moves', () => {
  let cluster: Cluster;
  let stage: Stage;
  let count = 0;
  /** Each test has a conversation of its own. */
  const fresh = () => {
    count += 1;
    return `moves-${count}`;
  };

  beforeAll(async () => {
    stage = await createStage();
    cluster = await startCluster({ nodes: 2, workers: 2, env: { HOMING_GRACE_MS: String(GRACE_MS) } });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  /** The tab's `command.owner` for a command, seen or to come. */
  const gotOwner = (tab: Tab, commandId: string, limitMs?: number) =>
    tab.waitFor(
      `command.owner of ${commandId}`,
      (a) => a.method === 'command.owner' && a.params.commandId === commandId,
      limitMs,
    );
  const ownerOf = async (tab: Tab, commandId: string) =>
    (await tab.rpc('command.get', { commandId })).ownerSessionId as string | null;
  /** Waits until the store has taken an acknowledgement. */
  const acked = (tab: Tab, commandId: string, seq: number) => {
    tab.ack({ [commandId]: seq });
    return until(`seq ${seq} acknowledged`, async () => {
      return (await tab.rpc('command.get', { commandId })).ackedSeq === seq;
    });
  };

  it('[OW2] when a tab closes, the other tab of its conversation gets command.owner and all it had not acknowledged; a third conversation nothing', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(1, { name: 'B', conversation });
    const c = await cluster.tab(0, { name: 'C', conversation: fresh() });
    const gate = conversation;
    const commandId = await a.run(stage.gated(gate, 'before', 'after'));
    await a.shows(commandId, 'before');
    await acked(a, commandId, 1);
    expectNothing(b);

    await a.close();
    const moved = await gotOwner(b, commandId);
    expect(moved.params).toMatchObject({ fromSeq: 2, snapshot: { commandId, originSessionId: a.sessionId } });
    expect(['origin_closed', 'owner_closed']).toContain(moved.params.why);
    stage.open(gate);
    await b.ended(commandId);

    expectComplete(b, commandId, { fromSeq: 2 });
    expect(b.output(commandId)).toBe('before\nafter\n');
    expectOnly(b, [commandId]);
    expectNothing(c);
    expect((await a.socket.closed).code).toBe(4504);
    // The origin is written once and never changes.
    expect((await b.rpc('command.get', { commandId })).originSessionId).toBe(a.sessionId);
  });

  it('[OW2] the same happens when the grace of a tab that went away runs out', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(1, { name: 'B', conversation });
    const commandId = await a.run(stage.gated(conversation, 'before', 'after'));
    await a.shows(commandId, 'before');
    await a.drop();
    const droppedAt = performance.now();
    const moved = await gotOwner(b, commandId);
    expect(moved.timeMs - droppedAt).toBeGreaterThan(GRACE_MS * 0.9);
    stage.open(conversation);
    await b.ended(commandId);
    expectComplete(b, commandId);
  });

  it.each([
    ['B', 'D', 'E'],
    ['D', 'E', 'B'],
    ['E', 'B', 'D'],
  ])(
    '[OW2] the latest active of the same principal is the heir, and then the next: opened %s, %s, %s',
    async (...order) => {
      const conversation = fresh();
      const a = await cluster.tab(0, { name: 'A', conversation });
      const tabs = new Map<string, Tab>();
      for (const [i, name] of order.entries()) tabs.set(name, await cluster.tab(i % 2, { name, conversation }));
      const stranger = await cluster.tab(1, { name: 'stranger', conversation, sub: 'bob' });
      const [b, d, e] = ['B', 'D', 'E'].map((name) => tabs.get(name)) as [Tab, Tab, Tab];
      const commandId = await a.run(stage.gated(conversation, 'before', 'after'));
      await a.shows(commandId, 'before');
      // Activity, oldest to latest: E, D, B; and the stranger after all of them.
      for (const tab of [e, d, b, stranger]) await tab.rpc('session.touch');

      await a.close();
      await gotOwner(b, commandId);
      expect(await ownerOf(b, commandId)).toBe(b.sessionId);
      await b.close();
      await gotOwner(d, commandId);
      await d.close();
      await gotOwner(e, commandId);
      stage.open(conversation);
      await e.ended(commandId);

      expectComplete(e, commandId);
      // B and D owned it for a while; the stranger never did.
      expectOnly(b, [commandId]);
      expectOnly(d, [commandId]);
      expectNothing(stranger);
    },
  );

  it('[OW12] reading, listing and acknowledging do not make a tab the latest active; running does', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(1, { name: 'B', conversation });
    const d = await cluster.tab(0, { name: 'D', conversation });
    const commandId = await a.run(stage.gated(conversation, 'before', 'after'));
    await b.ended(await b.run({ argv: ['/bin/true'] }));
    await d.rpc('command.list', {});
    await d.rpc('command.log', { commandId });
    d.ack({ [commandId]: 1 });
    await d.rpc('command.get', { commandId });
    await a.close();
    await gotOwner(b, commandId);
    expectNothing(d);
    stage.open(conversation);
    await b.ended(commandId);
  });

  it('[OW2] a live tab is preferred to one that is away, even if that one was active later', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const live = await cluster.tab(1, { name: 'live', conversation });
    const away = await cluster.tab(0, { name: 'away', conversation });
    const commandId = await a.run(stage.gated(conversation, 'before', 'after'));
    await away.rpc('session.touch');
    await away.drop();
    await until('the other tab recorded as away', async () => {
      const { json } = await cluster.http('GET', `/v1/conversations/${conversation}/sessions`);
      return json.sessions.some((s: { state: string }) => s.state === 'away');
    });
    await a.close();
    await gotOwner(live, commandId);
    stage.open(conversation);
    await live.ended(commandId);
    expectComplete(live, commandId);
  });

  it('[OW7] a tab that is away inherits too, and finds it all when it resumes', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(1, { name: 'B', conversation });
    const commandId = await a.run(stage.gated(conversation, 'before', 'after'));
    await a.shows(commandId, 'before');
    await b.drop();
    await a.close();
    stage.open(conversation);
    const opened = await b.resume(cluster.node(0).url);
    expect(opened.commands.map((s: { commandId: string }) => s.commandId)).toEqual([commandId]);
    await b.ended(commandId);
    expectComplete(b, commandId);
    expect(b.output(commandId)).toBe('before\nafter\n');
  });

  it('[OW8] once moved it stays, however active the others become', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(1, { name: 'B', conversation });
    const commandId = await a.run(stage.gated(conversation, 'before', 'after'));
    await a.close();
    await gotOwner(b, commandId);
    const d = await cluster.tab(0, { name: 'D', conversation });
    await d.rpc('session.touch');
    await d.ended(await d.run({ argv: ['/bin/true'] }));
    stage.open(conversation);
    await b.ended(commandId);
    expectComplete(b, commandId);
    expectOnly(d, d.ran);
  });

  it('[OW4] with no heir it is parked, and the next tab that principal opens gets all of it; another principal nothing', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const commandId = await a.run(stage.gated(conversation, 'before', 'after'));
    await a.shows(commandId, 'before');
    await a.close();

    const stranger = await cluster.tab(0, { name: 'stranger', conversation, sub: 'bob' });
    expect(stranger.opened.commands).toEqual([]);
    const parked = await cluster.http('GET', `/v1/commands/${commandId}`);
    expect(parked.json).toMatchObject({ state: 'running', ownerSessionId: null });

    const next = await cluster.tab(1, { name: 'next', conversation });
    expect(next.opened.commands).toMatchObject([{ commandId, ownerSessionId: next.sessionId }]);
    stage.open(conversation);
    await next.ended(commandId);
    expectComplete(next, commandId);
    expect(next.output(commandId)).toBe('before\nafter\n');
    expectNothing(stranger);
  });

  it('[OW4] what ended while it was parked is adopted too, as long as nobody acknowledged it', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const commandId = await a.run(stage.gated(conversation, 'before', 'after'));
    await a.shows(commandId, 'before');
    await a.close();
    stage.open(conversation);
    const ended = await cluster.http('GET', `/v1/commands/${commandId}?waitMs=10000`);
    expect(ended.json).toMatchObject({ state: 'ended', ownerSessionId: null });
    const next = await cluster.tab(1, { name: 'next', conversation });
    await next.ended(commandId);
    expectComplete(next, commandId);
  });

  it('[OW2] an ended command moves while it has entries that nobody acknowledged, and stays when it has none', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(1, { name: 'B', conversation });
    const done = await a.run({ argv: ['/bin/echo', 'done with'] });
    const unread = await a.run({ argv: ['/bin/echo', 'not read'] });
    const last = (await a.ended(done)).params.seq;
    await a.ended(unread);
    await acked(a, done, last);
    await a.close();
    await b.ended(unread);
    expectComplete(b, unread);
    expectOnly(b, [unread]);
  });

  it('[OW9] output and the ending follow the new owner; the old one hears nothing more', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(0, { name: 'B', conversation });
    const commandId = await a.run(stage.chatty(conversation, 5));
    await a.shows(commandId, 'line 20 ');
    await a.close();
    const heard = a.recording.length;
    await gotOwner(b, commandId);
    stage.open(conversation);
    await b.ended(commandId);
    expectComplete(b, commandId);
    expect(b.output(commandId)).toBe(stage.printed(conversation));
    expect(a.recording.slice(heard)).toEqual([]);
  });

  it('[OW6] a closed session can not be resumed, even with the right resume token', async () => {
    const a = await cluster.tab(0, { name: 'A', conversation: fresh() });
    await a.close();
    await a.socket.closed;
    await expect(a.resume(cluster.node(1).url)).rejects.toMatchObject({ code: 'SESSION_GONE' });
  });

  it('[OW6] nor one whose grace ran out', async () => {
    const a = await cluster.tab(0, { name: 'A', conversation: fresh() });
    await a.drop();
    const conversation = `/v1/conversations/moves-${count}/sessions`;
    await until('the session gone from the list', async () => {
      return (await cluster.http('GET', conversation)).json.sessions.length === 0;
    });
    await expect(a.resume(cluster.node(1).url)).rejects.toMatchObject({ code: 'SESSION_GONE' });
  });

  it('[OW11] onOwnerGone "park" keeps it for whoever asks; "kill" ends it with owner_gone', async () => {
    const conversation = fresh();
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(1, { name: 'B', conversation });
    const kept = await a.run({ ...stage.gated(conversation, 'before', 'after'), onOwnerGone: 'park' });
    const killed = await a.run({ ...stage.gated('never', 'before', 'after'), onOwnerGone: 'kill' });
    await a.shows(kept, 'before');
    await a.shows(killed, 'before');
    await a.close();
    const ended = await cluster.http('GET', `/v1/commands/${killed}?waitMs=10000`);
    expect(ended.json).toMatchObject({ state: 'ended', outcome: { reason: 'owner_gone' } });
    // A tab that opens does not take a kept one by itself.
    const d = await cluster.tab(0, { name: 'D', conversation });
    expect(await ownerOf(d, kept)).toBeNull();

    await b.rpc('command.adopt', { commandId: kept });
    stage.open(conversation);
    await b.ended(kept);
    expectComplete(b, kept);
    expect(d.entries(kept)).toEqual([]);
    await expect(d.rpc('command.adopt', { commandId: kept })).rejects.toMatchObject({ code: 'NOT_OWNER' });
  });

  it('[OW3] a command without an origin, or whose named origin has closed, comes to the latest active tab at once', async () => {
    const conversation = fresh();
    const gone = await cluster.tab(0, { name: 'gone', conversation });
    const a = await cluster.tab(0, { name: 'A', conversation });
    const b = await cluster.tab(1, { name: 'B', conversation });
    await gone.close();
    await a.rpc('session.touch');
    await b.rpc('session.touch');
    const submit = async (origin?: string) => {
      const body = { conversation, argv: ['/bin/echo', 'hello'], ...(origin ? { originSessionId: origin } : {}) };
      const { status, json } = await cluster.http('POST', '/v1/commands', { body });
      expect(status).toBe(202);
      return json.commandId as string;
    };
    const ids = [await submit(), await submit(gone.sessionId)];
    for (const commandId of ids) {
      await b.ended(commandId);
      expectComplete(b, commandId);
    }
    expectNothing(a);
    // An open origin is the owner, whoever was active later.
    const named = await submit(a.sessionId);
    await a.ended(named);
    expectComplete(a, named);
    expectOnly(b, ids);
  });
});
