/** A tab that lost its socket, its node or its memory comes back anywhere, and nothing is missing or twice. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectOnly } from '../support/expect-tab.js';
import { createStage, type Stage } from '../support/programs.js';
import { lateFaults } from '../support/recording.js';
import { never, until, within } from '../support/wait.js';

/** What the old node had given to its socket when the takeover was answered may still arrive. */
const UNDER_WAY_MS = 100;

describe('resume', () => {
  let cluster: Cluster;
  let stage: Stage;
  let count = 0;
  const fresh = () => {
    count += 1;
    return `resume-${count}`;
  };

  beforeAll(async () => {
    stage = await createStage();
    cluster = await startCluster({ nodes: 2, workers: 1 });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  it('[SE3] a tab that drops its socket resumes on the other node while output flows: no seq missing, none twice', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.chatty(gate, 2));
    for (const [round, node] of [1, 0, 1].entries()) {
      await a.shows(commandId, `line ${(round + 1) * 25} `);
      await a.drop();
      const opened = await a.resume(cluster.node(node).url);
      expect(opened.commands).toMatchObject([{ commandId, state: 'running', recovered: true }]);
      expect(opened.sessionId).toBe(a.sessionId);
    }
    await a.shows(commandId, 'line 120 ');
    stage.open(gate);
    await a.ended(commandId);
    expectComplete(a, commandId);
    expectOnly(a, [commandId]);
    expect(a.output(commandId)).toBe(stage.printed(gate));
  });

  it('[SE3] after kill -9 of its node it resumes on the other one', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.chatty(gate, 2));
    await a.shows(commandId, 'line 20 ');
    await cluster.node(0).kill('SIGKILL');
    await a.socket.closed;
    await a.resume(cluster.node(1).url);
    await a.shows(commandId, 'line 60 ');
    stage.open(gate);
    await a.ended(commandId);
    expectComplete(a, commandId);
    expect(a.output(commandId)).toBe(stage.printed(gate));
    await cluster.node(0).restart();
  });

  it('[SE5] a session of a killed node goes away by itself, and its command to the heir when its grace is over', async () => {
    await using short = await startCluster({
      nodes: 2,
      workers: 1,
      env: { HOMING_GRACE_MS: '500', HOMING_LEASE_MS: '1000' },
    });
    const gate = fresh();
    const a = await short.tab(0, { name: 'A', conversation: gate });
    const b = await short.tab(1, { name: 'B', conversation: gate });
    const commandId = await a.run(stage.gated(gate, 'before', 'after'));
    await a.shows(commandId, 'before');
    await short.node(0).kill('SIGKILL');
    await b.waitFor(
      'command.owner',
      (entry) => entry.method === 'command.owner' && entry.params.commandId === commandId,
    );
    stage.open(gate);
    await b.ended(commandId);
    expectComplete(b, commandId);
  });

  it('[DE6] a reload without cursors starts after what was acknowledged', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.chatty(gate, 5));
    await a.shows(commandId, 'line 20 ');
    const middle = a.cursors()[commandId] as number;
    a.ack({ [commandId]: middle });
    await until('the acknowledgement stored', async () => {
      return (await a.rpc('command.get', { commandId })).ackedSeq === middle;
    });
    // Acknowledgements only rise, and nothing beyond the head counts.
    a.ack({ [commandId]: 1 });
    a.ack({ [commandId]: 1_000_000 });
    await a.drop();
    a.forget();
    const opened = await a.resume(cluster.node(1).url, { cursors: {} });
    expect(opened.commands).toMatchObject([{ commandId, ackedSeq: middle, fromSeq: middle + 1 }]);
    stage.open(gate);
    await a.ended(commandId);
    expectComplete(a, commandId, { fromSeq: middle + 1 });
    expect(stage.printed(gate).endsWith(a.output(commandId))).toBe(true);
  });

  it('[DE6] a cursor of 0 means from the beginning, whatever was acknowledged', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.chatty(gate, 5));
    await a.shows(commandId, 'line 10 ');
    a.ack({ [commandId]: 5 });
    await a.drop();
    a.forget();
    await a.resume(cluster.node(0).url, { cursors: { [commandId]: 0 } });
    stage.open(gate);
    await a.ended(commandId);
    expectComplete(a, commandId);
    expect(a.output(commandId)).toBe(stage.printed(gate));
  });

  it('[OW7] what a tab that is away would have got waits for it, also when it has ended meanwhile', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.gated(gate, 'before', 'after'));
    await a.shows(commandId, 'before');
    await a.drop();
    stage.open(gate);
    const ended = await cluster.http('GET', `/v1/commands/${commandId}?waitMs=10000`);
    expect(ended.json).toMatchObject({ state: 'ended', ownerSessionId: a.sessionId });
    await a.resume(cluster.node(1).url);
    await a.ended(commandId);
    expectComplete(a, commandId);
  });

  it('[SE1] a second attach of the same page takes over: the first connection gets 4500 and not one more event', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.chatty(gate, 2));
    await a.shows(commandId, 'line 20 ');
    const first = a.socket;
    await a.resume(cluster.node(1).url);
    const attachedAt = performance.now();
    const { code, timeMs } = await within('the close of the first connection', first.closed, 5_000);
    expect(code).toBe(4500);
    expect(timeMs - attachedAt).toBeLessThan(3_000);
    await a.shows(commandId, 'line 80 ');
    stage.open(gate);
    await a.ended(commandId);
    // Everything the new connection needed came over it; the old one sent nothing after the takeover was answered,
    // apart from what was under way in that moment.
    expect(lateFaults(a.recording, first.number, attachedAt + UNDER_WAY_MS)).toEqual([]);
    expectComplete({ ...a, recording: uniqueBySeq(a.recording, first.number, attachedAt) } as typeof a, commandId);
    expect(await cluster.metric(0, 'homing_misdelivered_total')).toBe(0);
  });

  it('[SE1] a page that loses its session on the same node hears nothing more either', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.chatty(gate, 2));
    await a.shows(commandId, 'line 10 ');
    const first = a.socket;
    await a.resume(cluster.node(0).url);
    const attachedAt = performance.now();
    expect((await within('the close of the first connection', first.closed, 5_000)).code).toBe(4500);
    stage.open(gate);
    await a.ended(commandId);
    expect(lateFaults(a.recording, first.number, attachedAt + UNDER_WAY_MS)).toEqual([]);
  });

  it('[SE4] a duplicated browser tab is refused while the first one answers, on either node, and may take over when it does not', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.gated(gate, 'before', 'after'));
    await a.shows(commandId, 'before');
    const { socket } = a;
    for (const node of [0, 1]) {
      await expect(a.resume(cluster.node(node).url, { pageNonce: 'another page' })).rejects.toMatchObject({
        code: 'SESSION_IN_USE',
      });
    }
    await never('the first page closed', () => socket.ws.readyState !== 1 && 'closed', 500);
    // A page that is gone without a word does not answer the probe.
    socket.ws.pause();
    const opened = await a.resume(cluster.node(1).url, { pageNonce: 'another page' });
    expect(opened.sessionId).toBe(a.sessionId);
    stage.open(gate);
    await a.ended(commandId);
    expectComplete(a, commandId);
    socket.ws.terminate();
  });

  it('[SE1] an acknowledgement of a connection that lost its session changes nothing', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.gated(gate, 'before', 'after'));
    await a.shows(commandId, 'before');
    const first = a.socket;
    await a.resume(cluster.node(1).url);
    const late = { jsonrpc: '2.0', method: 'output.ack', params: { cursors: { [commandId]: 2 } } };
    if (first.ws.readyState === 1) first.ws.send(JSON.stringify(late));
    await first.closed;
    expect((await a.rpc('command.get', { commandId })).ackedSeq).toBe(0);
    stage.open(gate);
    await a.ended(commandId);
  });

  it('[SE6] a node that is told to stop says so, and its tabs go on at the other one', async () => {
    const gate = fresh();
    const a = await cluster.tab(0, { conversation: gate });
    const commandId = await a.run(stage.chatty(gate, 5));
    await a.shows(commandId, 'line 10 ');
    cluster.node(0).signal('SIGTERM');
    const draining = await a.waitFor('session.draining', (entry) => entry.method === 'session.draining');
    expect(draining.params.reconnectWithinMs).toBeGreaterThanOrEqual(0);
    expect((await within('the close', a.socket.closed)).code).toBe(4001);
    await a.resume(cluster.node(1).url);
    stage.open(gate);
    await a.ended(commandId);
    expectComplete(a, commandId);
    await until('the node to end by itself', () => cluster.node(0).exitCode !== null);
    expect(cluster.node(0).exitCode).toBe(0);
    await cluster.node(0).restart();
  });
});

/**
 * The moment of a takeover: the page asked the new node for everything after its cursors, and the old node may have had
 * some of that under way. Those copies are dropped here as the application drops them, by seq; later ones are faults.
 */
function uniqueBySeq<T extends { connection: number; timeMs: number; params: { commandId?: string; seq?: number } }>(
  recording: readonly T[],
  firstConnection: number,
  attachedAt: number,
): T[] {
  return recording
    .filter((entry) => entry.connection !== firstConnection || entry.timeMs <= attachedAt + UNDER_WAY_MS)
    .filter(
      (entry) =>
        entry.connection !== firstConnection ||
        entry.params.seq === undefined ||
        !recording.some(
          (other) =>
            other.connection > firstConnection &&
            other.params.seq === entry.params.seq &&
            other.params.commandId === entry.params.commandId,
        ),
    );
}
