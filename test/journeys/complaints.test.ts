/**
 * What users of other systems complain about, each as a kind and tried here end to end. Those that another journey tries
 * already are listed with it in docs/delivery.md.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { openEvents } from '../support/events.js';
import { expectComplete, expectNothing, expectOnly } from '../support/expect-tab.js';
import { stablePort } from '../support/ports.js';
import { createStage, type Stage } from '../support/programs.js';
import type { Tab } from '../support/tab.js';
import { never, until } from '../support/wait.js';

/** A sweep and its jitter: what should not come would have come by then. */
const SWEEP_MS = 2_500;

describe('complaints about other systems', () => {
  let cluster: Cluster;
  let stage: Stage;
  let count = 0;
  const fresh = () => `complaint-${++count}`;

  beforeAll(async () => {
    stage = await createStage();
    const ports = await Promise.all([stablePort(), stablePort()]);
    cluster = await startCluster({
      ...{ nodes: 2, workers: 1 },
      nodeEnv: (index) => ({ HOMING_PORT: String(ports[index]) }),
      env: { HOMING_CONCURRENCY: '24' },
    });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  const liveSessions = async (conversation: string) => {
    const { json } = await cluster.http('GET', `/v1/conversations/${conversation}/sessions`);
    return json.sessions.filter(({ state }: { state: string }) => state === 'live').length as number;
  };
  const acked = async (tab: Tab, commandId: string) => {
    const seq = tab.cursors()[commandId] as number;
    tab.ack({ [commandId]: seq });
    await until('the acknowledgement stored', async () => {
      return (await tab.rpc('command.get', { commandId })).ackedSeq === seq;
    });
  };

  it('[OW1] "the completion showed in the tab that had the focus": the tab that is used while another’s command ends gets nothing of it', async () => {
    const conversation = fresh();
    const origin = await cluster.tab(0, { name: 'origin', conversation });
    const focused = await cluster.tab(1, { name: 'focused', conversation });
    const commandId = await origin.run(stage.gated(conversation, 'before', 'after'));
    await origin.shows(commandId, 'before');
    for (let i = 0; i < 5; i += 1) await focused.rpc('session.touch');
    const own = await focused.run({ argv: ['/bin/echo', 'mine'] });
    stage.open(conversation);
    await origin.ended(commandId);
    await focused.ended(own);
    expectComplete(origin, commandId);
    expectOnly(focused, [own]);
  });

  it('[OW1] "the first tab of the list won", "only the first of two that ended together was delivered": six tabs, eighteen commands that end at once, each at its own', async () => {
    const conversation = fresh();
    const tabs = await Promise.all([0, 1, 0, 1, 0, 1].map((node) => cluster.tab(node, { conversation })));
    const ids = await Promise.all(
      tabs.map((tab) => Promise.all([1, 2, 3].map(() => tab.run(stage.gated(conversation, 'before', 'after'))))),
    );
    await Promise.all(tabs.map((tab, i) => Promise.all((ids[i] ?? []).map((id) => tab.shows(id, 'before')))));
    stage.open(conversation);
    for (const [i, tab] of tabs.entries()) {
      for (const id of ids[i] ?? []) {
        await tab.ended(id);
        expectComplete(tab, id);
      }
      expectOnly(tab, ids[i] ?? []);
    }
  });

  it('[DE6] "asking for the status swallowed the notice", "reading the log marked it as seen", "another poller took it": whoever looks takes nothing away', async () => {
    const conversation = fresh();
    const owner = await cluster.tab(0, { name: 'owner', conversation });
    const curious = await cluster.tab(1, { name: 'curious', conversation });
    const commandId = await owner.run(stage.gated(conversation, 'before', 'after'));
    await owner.shows(commandId, 'before');
    await owner.drop();
    // Nobody who owns it is there while it ends; others look in every way there is.
    await using stream = await openEvents(`${cluster.node(1).url}/v1/commands/${commandId}/events`, {
      token: cluster.token(),
    });
    await curious.rpc('command.attach', { commandId });
    stage.open(conversation);
    await stream.waitFor('the end', ({ event }) => event === 'command.ended');
    for (let i = 0; i < 3; i += 1) {
      expect((await cluster.http('GET', `/v1/commands/${commandId}?waitMs=1000`)).json.state).toBe('ended');
      await cluster.wholeLog(commandId);
      await curious.rpc('command.get', { commandId });
      await curious.rpc('command.log', { commandId });
      await curious.rpc('command.list', {});
    }
    curious.ack({ [commandId]: 1_000 });
    owner.forget();
    const opened = await owner.resume(cluster.node(1).url, { cursors: {} });
    expect(opened.commands).toMatchObject([{ commandId, ackedSeq: 0 }]);
    await owner.ended(commandId);
    expectComplete(owner, commandId);
    expectNothing({ ...curious, recording: curious.recording.filter(({ params }) => params.view !== true) } as Tab);
  });

  it('[OW3] "an inherited id of a closed tab silently fell to another": it falls to the heir, and the start of the command says so', async () => {
    const conversation = fresh();
    const gone = await cluster.tab(0, { conversation });
    const heir = await cluster.tab(1, { conversation });
    await gone.close();
    const body = { conversation, argv: ['/bin/true'], originSessionId: gone.sessionId };
    const { json } = await cluster.http('POST', '/v1/commands', { body });
    await heir.ended(json.commandId);
    const [started] = heir.entries(json.commandId);
    expect(started).toMatchObject({ method: 'command.started', params: { originClosed: true } });
    const why = heir.recording.find(({ method }) => method === 'command.owner')?.params;
    expect(why).toMatchObject({ why: 'origin_closed', snapshot: { originSessionId: gone.sessionId } });
  });

  it('[SE2] "output went to an empty session when the key rotated", "resuming made a second live session": a new token changes neither the session nor where its output goes', async () => {
    const conversation = fresh();
    const tab = await cluster.tab(0, { conversation });
    const commandId = await tab.run(stage.chatty(conversation, 10));
    await tab.shows(commandId, 'line 5 ');
    await tab.rpc('session.refresh', { token: cluster.token({ ttlSeconds: 7_200 }) });
    await tab.shows(commandId, 'line 15 ');
    const { sessionId } = tab;
    for (const node of [1, 0]) {
      await tab.drop();
      expect((await tab.resume(cluster.node(node).url)).sessionId).toBe(sessionId);
      expect(await liveSessions(conversation)).toBe(1);
    }
    stage.open(conversation);
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    expect(tab.output(commandId)).toBe(stage.printed(conversation));
  });

  it('[OW1] "the newest window took the transport and the older froze": two windows of one conversation go on side by side', async () => {
    const conversation = fresh();
    const older = await cluster.tab(0, { conversation });
    const first = await older.run(stage.chatty(`${conversation}-a`, 10));
    await older.shows(first, 'line 5 ');
    const newest = await cluster.tab(0, { conversation });
    const second = await newest.run(stage.chatty(`${conversation}-b`, 10));
    await newest.shows(second, 'line 20 ');
    const seen = older.output(first).length;
    await until('more in the older window', () => older.output(first).length > seen + 100);
    for (const gate of ['a', 'b']) stage.open(`${conversation}-${gate}`);
    await older.ended(first);
    await newest.ended(second);
    expectComplete(older, first);
    expectComplete(newest, second);
    expectOnly(older, [first]);
    expectOnly(newest, [second]);
  });

  it('[SE3] "recovery failed because nothing had been sent yet": a session comes back that never got an entry, also to a node that knows it only from Redis', async () => {
    const conversation = fresh();
    const tab = await cluster.tab(0, { conversation });
    const silent = await tab.run({ script: `until [ -e ${stage.folder}/${conversation}.open ]; do sleep 0.2; done` });
    const later = await tab.run({ argv: ['/bin/echo', 'later'], delayMs: 1_000 });
    tab.forget();
    await tab.drop();
    await tab.resume(cluster.node(1).url, { cursors: {} });
    stage.open(conversation);
    for (const id of [silent, later]) {
      await tab.ended(id);
      expectComplete(tab, id);
    }
    expectOnly(tab, [silent, later]);
  });

  it('[DE1] "it was delivered again after a restart", "hours late, in the next turn": what was consumed comes no more, over a restart of all nodes, to old tabs and new', async () => {
    const conversation = fresh();
    const tab = await cluster.tab(0, { conversation });
    const done = await tab.run({ argv: ['/bin/echo', 'done'] });
    await tab.ended(done);
    await acked(tab, done);
    const unread = await tab.run({ argv: ['/bin/echo', 'unread'] });
    await tab.ended(unread);
    for (const node of cluster.nodes) {
      await node.kill('SIGKILL');
      await node.restart();
    }
    await tab.socket.closed;
    tab.forget();
    const opened = await tab.resume(cluster.node(1).url, { cursors: {} });
    expect(opened.commands.map(({ commandId }: { commandId: string }) => commandId)).toEqual([unread]);
    await tab.ended(unread);
    const next = await cluster.tab(0, { conversation });
    expect(next.opened.commands).toEqual([]);
    await never('anything again', () => next.entries(done).length + tab.entries(done).length > 0, SWEEP_MS);
    expectComplete(tab, unread);
    expectOnly(tab, [unread]);
    expectNothing(next);
  });

  it('[DE4] "a message was lost between reading the history and going live": ten resumes from the beginning while output flows, and a viewer that joins in the middle', async () => {
    const conversation = fresh();
    const tab = await cluster.tab(0, { conversation });
    const viewer = await cluster.tab(1, { conversation });
    const commandId = await tab.run(stage.chatty(conversation, 1));
    await tab.shows(commandId, 'line 10 ');
    for (let round = 1; round <= 10; round += 1) {
      await tab.drop();
      tab.forget();
      await tab.resume(cluster.node(round % 2).url, { cursors: { [commandId]: 0 } });
      if (round === 5) await viewer.rpc('command.attach', { commandId });
      await tab.shows(commandId, `line ${round * 8} `);
    }
    stage.open(conversation);
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    expect(tab.output(commandId)).toBe(stage.printed(conversation));
    await viewer.waitFor('the end at the viewer', ({ method }) => method === 'command.ended');
    const seqs = viewer.recording
      .filter(({ params }) => params.view === true)
      .map(({ params }) => [params.fromSeq ?? params.seq, params.seq]);
    for (const [i, [from]] of seqs.entries()) expect(from).toBe(i === 0 ? 1 : (seqs[i - 1]?.[1] ?? 0) + 1);
  });
});
