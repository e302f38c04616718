/**
 * Redis fails over, with real nodes and workers: on a Cluster and a Sentinel, with and without the last writes. What was
 * printed arrives in order, once, at its owner and nowhere else; what ran once runs once; what ended ends once (R1–R3, L2, L3).
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectOnly } from '../support/expect-tab.js';
import { createStage, type Stage } from '../support/programs.js';
import { type ClusterMember, slotOf, startRedisCluster, type TestRedisCluster } from '../support/redis-cluster.js';
import { startRedisSentinel, type TestRedisSentinel } from '../support/redis-sentinel.js';
import { placeOf } from '../support/stores.js';
import type { Tab } from '../support/tab.js';
import { until } from '../support/wait.js';

const lastLine = (stage: Stage, gate: string) => stage.printed(gate).trimEnd().split('\n').at(-1) as string;

/** Comes back wherever it is told to, as a client does; terminal codes stay terminal. */
function reconnecting(cluster: Cluster, tab: Tab, node: number) {
  const codes: number[] = [];
  let stopped = false;
  const follow = async () => {
    while (!stopped) {
      const { code } = await tab.socket.closed;
      codes.push(code);
      if (stopped || code >= 4500) return;
      await until('the tab to be back', () => tab.resume(cluster.node(node).url).then(() => true), 30_000, 200);
    }
  };
  const over = follow().catch(() => undefined);
  return {
    codes,
    stop() {
      stopped = true;
      void over;
    },
  };
}

describe('on a Cluster', () => {
  let redis: TestRedisCluster;
  let cluster: Cluster;
  let stage: Stage;
  beforeAll(async () => {
    redis = await startRedisCluster();
    cluster = await startCluster({ redis, nodes: 2, workers: 2, env: { HOMING_LEASE_MS: '5000' } });
  }, 60_000);
  beforeEach(async () => {
    stage = await createStage();
  });
  afterEach(async () => {
    await stage[Symbol.asyncDispose]();
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
  });

  let count = 0;
  /** A conversation whose keys are with this master. */
  async function conversationOn(master: ClusterMember): Promise<string> {
    for (;;) {
      count += 1;
      const name = `failover-${count}`;
      if ((await redis.masterOf(`{${placeOf('ann', name).tag}}`)) === master) return name;
    }
  }
  const healed = async (dead: ClusterMember) => {
    await dead.start();
    await redis.whole();
    await until('the one that was dead to follow', async () =>
      (await dead.direct.info('replication')).includes('master_link_status:up'),
    );
  };

  it('[R1][DE1] a master is killed in mid-output: every tab gets its own, whole and once', async () => {
    const masters = await redis.masters();
    const runs: { tab: Tab; commandId: string; gate: string; watch: ReturnType<typeof reconnecting> }[] = [];
    for (const [m, master] of masters.entries()) {
      for (let n = 0; n < 2; n += 1) {
        const gate = `kill-${m}-${n}`;
        const tab = await cluster.tab(n, { conversation: await conversationOn(master), name: gate });
        const commandId = await tab.run(stage.chatty(gate, 40));
        runs.push({ tab, commandId, gate, watch: reconnecting(cluster, tab, n) });
      }
    }
    for (const { tab, commandId } of runs) await tab.shows(commandId, 'line 5 ');
    const dead = masters[0] as ClusterMember;
    const killedMs = performance.now();
    await redis.failover(dead);
    const answersMs = performance.now();
    for (const { tab, commandId, gate } of runs) await tab.shows(commandId, lastLine(stage, gate), 15_000);
    const caughtUpMs = performance.now();
    console.info(
      `master killed: failover ${Math.round(answersMs - killedMs)} ms, all caught up ${Math.round(caughtUpMs - answersMs)} ms later`,
    );
    for (const { gate } of runs) stage.open(gate);
    for (const { tab, commandId, gate, watch } of runs) {
      await tab.ended(commandId);
      expectComplete(tab, commandId);
      expectOnly(tab, [commandId]);
      expect(tab.output(commandId)).toBe(stage.printed(gate));
      expect(watch.codes).toEqual([]);
      watch.stop();
    }
    expect(caughtUpMs - answersMs).toBeLessThan(8_000);
    await healed(dead);
  }, 90_000);

  it('[R2][L2][L3] a replica that missed the last writes is promoted: sessions, attachments, closes, moves, claims, logs and ends are as if it had not', async () => {
    const [master] = await redis.masters();
    if (master === undefined) throw new Error('no master');
    const conversation = await conversationOn(master);
    const elsewhere = await conversationOn(master);

    // Before: A and B share a conversation, C is in one of its own.
    const a = await cluster.tab(0, { conversation, name: 'A' });
    const b = await cluster.tab(1, { conversation, name: 'B' });
    const c = await cluster.tab(0, { conversation: elsewhere, name: 'C' });
    const closing = await cluster.tab(1, { conversation: elsewhere, name: 'closing' });
    const logged = await a.run(stage.chatty('logged', 30));
    const endsSoon = await b.run(stage.gated('ends-soon', 'begun', 'over'));
    const moves = await closing.run(stage.chatty('moves', 30));
    await a.shows(logged, 'line 5 ');
    await b.shows(endsSoon, 'begun');
    await closing.shows(moves, 'line 5 ');

    // The replica hears nothing of all this.
    await redis.pauseReplication(master);
    const d = await cluster.tab(1, { conversation, name: 'D' });
    const claimed = await d.run(stage.counted('claimed'));
    await d.shows(claimed, 'started');
    await b.drop();
    await b.resume(cluster.node(0).url);
    const late = await b.run(stage.chatty('late', 30));
    await b.shows(late, 'line 5 ');
    await closing.close();
    await c.waitFor('the command of the tab that closed', (x) => x.method === 'command.owner');
    await c.shows(moves, lastLine(stage, 'moves'));
    await a.shows(logged, lastLine(stage, 'logged'));
    // Last, since a worker keeps what ended for a bounded time: what is found gone after it is told as lost.
    const short = await d.run({ argv: ['/bin/echo', 'short'] });
    await d.ended(short);
    stage.open('ends-soon');
    await b.ended(endsSoon);

    const tabs = [a, b, c, d].map((tab, n) => reconnecting(cluster, tab, n % 2));
    await redis.promoteReplicaOf(master);
    const answersMs = performance.now();
    await a.shows(logged, lastLine(stage, 'logged'), 15_000);
    await b.shows(late, lastLine(stage, 'late'), 15_000);
    await c.shows(moves, lastLine(stage, 'moves'), 15_000);
    const caughtUpMs = performance.now() - answersMs;
    console.info(`lost writes: all caught up ${Math.round(caughtUpMs)} ms after the promotion`);
    for (const gate of ['logged', 'late', 'moves', 'claimed']) stage.open(gate);
    await a.ended(logged);
    await b.ended(late);
    await c.ended(moves);
    await d.ended(claimed);

    // Everything whole, once, and at its owner only.
    for (const [tab, id] of [
      [a, logged],
      [b, endsSoon],
      [b, late],
      [d, claimed],
      [d, short],
    ] as const) {
      expectComplete(tab, id);
    }
    expectOnly(a, [logged]);
    expectOnly(b, [endsSoon, late]);
    expectOnly(c, [moves]);
    expectOnly(d, [claimed, short]);
    expect(a.output(logged)).toBe(stage.printed('logged'));
    expect(b.output(late)).toBe(stage.printed('late'));
    expect(b.output(endsSoon)).toBe('begun\nover\n');
    expect(stage.starts('claimed')).toBe(1);
    expect(tabs.map(({ codes }) => codes)).toEqual([[], [], [], []]);
    for (const watch of tabs) watch.stop();
    // C had part of it from the tab that closed.
    const whole = (await cluster.wholeLog(moves)).filter(({ method }) => method === 'command.output');
    expect(whole.map(({ params }) => params.data).join('')).toBe(stage.printed('moves'));
    expect(c.entries(moves).filter(({ method }) => method === 'command.ended')).toHaveLength(1);
    // Closing is final, also when Redis had forgotten it.
    await expect(closing.resume(cluster.node(0).url)).rejects.toMatchObject({ code: 'SESSION_GONE' });
    // What is stored says the same as what was seen.
    for (const id of [logged, endsSoon, late, moves, claimed, short]) {
      const over = async () => {
        const { json } = await cluster.http('GET', `/v1/commands/${id}`);
        return json.state === 'ended' && json;
      };
      expect((await until(`${id} to be over in Redis again`, over)).outcome).toMatchObject({
        reason: 'exited',
        code: 0,
      });
    }
    expect(await cluster.metric(0, 'homing_misdelivered_total')).toBe(0);
    expect(await cluster.metric(1, 'homing_misdelivered_total')).toBe(0);
    await healed(master);
  }, 90_000);

  it('[M1] a slot moves to another master under load: nothing is missing, nothing comes twice', async () => {
    const [master] = await redis.masters();
    if (master === undefined) throw new Error('no master');
    const conversation = await conversationOn(master);
    const tabs = await Promise.all([0, 1, 0].map((n, i) => cluster.tab(n, { conversation, name: `slot-${i}` })));
    const runs = await Promise.all(
      tabs.map(async (tab, n) => ({ tab, gate: `slot-${n}`, commandId: await tab.run(stage.chatty(`slot-${n}`, 10)) })),
    );
    for (const { tab, commandId } of runs) await tab.shows(commandId, 'line 20 ');
    const slot = slotOf(`{${placeOf('ann', conversation).tag}}`);
    for (let times = 0; times < 2; times += 1) await redis.moveSlot(slot);
    const movedMs = performance.now();
    for (const { tab, commandId, gate } of runs) await tab.shows(commandId, lastLine(stage, gate), 15_000);
    console.info(`slot moved twice: all caught up ${Math.round(performance.now() - movedMs)} ms later`);
    for (const { gate } of runs) stage.open(gate);
    for (const { tab, commandId, gate } of runs) {
      await tab.ended(commandId);
      expectComplete(tab, commandId);
      expectOnly(tab, [commandId]);
      expect(tab.output(commandId)).toBe(stage.printed(gate));
    }
  }, 90_000);

  it('[R2][CO9] the whole Cluster is killed and started again: commands run on, and everything arrives', async () => {
    const tabs: { tab: Tab; commandId: string; gate: string }[] = [];
    for (const [n, master] of (await redis.masters()).entries()) {
      const gate = `restart-${n}`;
      const tab = await cluster.tab(n % 2, { conversation: await conversationOn(master), name: gate });
      tabs.push({ tab, gate, commandId: await tab.run(stage.chatty(gate, 40)) });
    }
    for (const { tab, commandId } of tabs) await tab.shows(commandId, 'line 5 ');
    const watches = tabs.map(({ tab }, n) => reconnecting(cluster, tab, n % 2));
    await redis.restart();
    const answersMs = performance.now();
    for (const { tab, commandId, gate } of tabs) await tab.shows(commandId, lastLine(stage, gate), 20_000);
    console.info(`full restart: all caught up ${Math.round(performance.now() - answersMs)} ms after it`);
    for (const { gate } of tabs) stage.open(gate);
    for (const [n, { tab, commandId, gate }] of tabs.entries()) {
      await tab.ended(commandId);
      expectComplete(tab, commandId);
      expectOnly(tab, [commandId]);
      expect(tab.output(commandId)).toBe(stage.printed(gate));
      watches[n]?.stop();
    }
  }, 90_000);
});

describe('on a Sentinel', () => {
  let redis: TestRedisSentinel;
  let cluster: Cluster;
  let stage: Stage;
  beforeAll(async () => {
    redis = await startRedisSentinel();
    cluster = await startCluster({ redis, nodes: 2, workers: 1, env: { HOMING_LEASE_MS: '5000' } });
    stage = await createStage();
  }, 60_000);
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  it('[R2][DE1] the master is lost with its last writes: tabs and commands go on as if it had not been', async () => {
    const a = await cluster.tab(0, { conversation: 'sentinel', name: 'A' });
    const logged = await a.run(stage.chatty('logged', 30));
    await a.shows(logged, 'line 5 ');
    await redis.pauseReplication();
    const b = await cluster.tab(1, { conversation: 'sentinel', name: 'B' });
    const claimed = await b.run(stage.counted('claimed'));
    await b.shows(claimed, 'started');
    const short = await b.run({ argv: ['/bin/echo', 'short'] });
    await b.ended(short);
    const watches = [a, b].map((tab, n) => reconnecting(cluster, tab, n));
    await redis.failover();
    const answersMs = performance.now();
    await a.shows(logged, lastLine(stage, 'logged'), 15_000);
    console.info(`sentinel: caught up ${Math.round(performance.now() - answersMs)} ms after the failover`);
    for (const gate of ['logged', 'claimed']) stage.open(gate);
    await a.ended(logged);
    await b.ended(claimed);
    for (const [tab, id] of [
      [a, logged],
      [b, claimed],
      [b, short],
    ] as const) {
      expectComplete(tab, id);
    }
    expectOnly(a, [logged]);
    expectOnly(b, [claimed, short]);
    expect(a.output(logged)).toBe(stage.printed('logged'));
    expect(stage.starts('claimed')).toBe(1);
    for (const watch of watches) watch.stop();
  }, 60_000);
});
