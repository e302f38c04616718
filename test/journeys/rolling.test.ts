/** Nodes are replaced one after another, or stop without a word, and the tabs go on: nothing lost, no storm. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, type Session, type SessionState } from '../../src/client/node.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';
import { stablePort } from '../support/ports.js';
import { createStage, type Stage } from '../support/programs.js';
import { lateFaults } from '../support/recording.js';
import { createTab } from '../support/tab.js';
import { until, within } from '../support/wait.js';

const NODES = 2;
const TABS = 200;
const DRAIN_MS = 3_000;
/** One of so many tabs runs a command; all of them together would measure the machine and not the drain. */
const BUSY_EVERY = 10;

describe('nodes that come and go', () => {
  let cluster: Cluster;
  let stage: Stage;

  beforeAll(async () => {
    stage = await createStage();
    const ports = await Promise.all(Array.from({ length: NODES }, stablePort));
    cluster = await startCluster({
      ...{ nodes: NODES, workers: 1 },
      // On the same address again, as behind a balancer.
      nodeEnv: (index) => ({ HOMING_PORT: String(ports[index]) }),
      env: { HOMING_DRAIN_MS: String(DRAIN_MS), HOMING_HEARTBEAT_MS: '5000', HOMING_CONCURRENCY: '64' },
    });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  it(`[SE6] all ${NODES} nodes replaced one after another under ${TABS} tabs: nothing lost, nobody reconnects more than twice, and not all at once`, async () => {
    /** As a balancer does that goes by the least connections, a fresh node first: what it sent to a node that left is gone. */
    const open = new Map(cluster.nodes.map((node) => [node, new Set<number>()]));
    const urlFor = (tab: number) => {
      for (const sent of open.values()) sent.delete(tab);
      const [first, ...others] = [...open].reverse();
      if (first === undefined) throw new Error('no node takes connections');
      const [node, sent] = others.reduce((least, one) => (one[1].size < least[1].size ? one : least), first);
      sent.add(tab);
      return node.url;
    };
    const tabs: { session: Session; lost: number[]; output: string; ended: Promise<unknown> | undefined }[] = [];
    try {
      for (let start = 0; start < TABS; start += 25) {
        const some = Array.from({ length: Math.min(25, TABS - start) }, async (_, i) => {
          const lost: number[] = [];
          let was = '';
          const status = ({ state }: SessionState) => {
            if (state !== 'live' && state !== 'catching-up' && was !== '' && isUp(was)) lost.push(performance.now());
            was = state;
          };
          const session = await connect({
            ...{ url: () => urlFor(start + i), token: cluster.token(), conversation: `rolling-${start + i}` },
            listen: { status },
          });
          tabs.push({ session, lost, output: '', ended: undefined });
        });
        await Promise.all(some);
      }
      for (const [i, tab] of tabs.entries()) {
        if (i % BUSY_EVERY !== 0) continue;
        const handle = await tab.session.run(stage.chatty('rolling', 300));
        tab.ended = (async () => {
          for await (const item of handle.output) tab.output += item.type === 'output' ? item.text : `[${item.reason}]`;
          return handle.ended;
        })();
      }
      const windows: { fromMs: number; toMs: number }[] = [];
      for (const node of cluster.nodes) {
        open.delete(node);
        const fromMs = performance.now();
        node.signal('SIGTERM');
        await until('a node to end by itself', () => node.exitCode !== null, DRAIN_MS + 10_000);
        expect(node.exitCode).toBe(0);
        windows.push({ fromMs, toMs: performance.now() });
        await node.restart();
        open.set(node, new Set());
      }
      await until('everybody back', () => tabs.every(({ session }) => session.state.state === 'live'), 30_000);
      stage.open('rolling');
      const busy = tabs.filter(({ ended }) => ended !== undefined);
      const outcomes = await within('every end', Promise.all(busy.map(({ ended }) => ended)), 30_000);
      for (const outcome of outcomes) expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
      for (const { output } of busy) expect(faultOf(output)).toBeUndefined();

      const most = Math.max(...tabs.map(({ lost }) => lost.length));
      expect(most, 'reconnects of the unluckiest tab').toBeLessThanOrEqual(2);
      for (const { fromMs, toMs } of windows) {
        const moments = tabs.flatMap(({ lost }) => lost.filter((atMs) => atMs >= fromMs && atMs <= toMs));
        // Spread: no tenth of the window has more than half of them, which leave in its first six. All tabs of this test are
        // one process: when that stands still for two tenths, what was due then comes at once.
        const tenths = new Map<number, number>();
        for (const atMs of moments) {
          const tenth = Math.floor((10 * (atMs - fromMs)) / DRAIN_MS);
          tenths.set(tenth, (tenths.get(tenth) ?? 0) + 1);
        }
        expect(moments.length).toBeGreaterThan(10);
        expect(Math.max(...tenths.values()), 'reconnects in a tenth of the window').toBeLessThan(moments.length / 2);
      }
      for (const index of cluster.nodes.keys()) {
        expect(await cluster.metric(index, 'homing_misdelivered_total')).toBe(0);
      }
    } finally {
      for (const { session } of tabs) session.leave();
    }
  }, 180_000);

  it.each([
    ['the same page', undefined],
    ['another page', 'another page'],
  ])(
    '[SE3] [SE4] %s resumes while the old node is stopped; when it goes on, it sends nothing and closes with 4500',
    async (which, pageNonce) => {
      const gate = `stopped-${which.length}`;
      await using tab = createTab({ token: cluster.token(), conversation: gate });
      await tab.open(cluster.node(0).url);
      const commandId = await tab.run(stage.chatty(gate, 20));
      await tab.shows(commandId, 'line 5 ');
      const first = tab.socket;
      cluster.node(0).signal('SIGSTOP');
      await tab.resume(cluster.node(1).url, pageNonce === undefined ? {} : { pageNonce });
      const takenMs = performance.now();
      const seen = Number(/line (\d+) /.exec(tab.output(commandId).split('\n').at(-2) ?? '')?.[1]);
      await tab.shows(commandId, `line ${seen + 30} `);
      cluster.node(0).signal('SIGCONT');
      const { code } = await within('the old connection closed', first.closed, 10_000);
      expect(code).toBe(4500);
      stage.open(gate);
      await tab.ended(commandId);
      expect(lateFaults(tab.recording, first.number, takenMs)).toEqual([]);
      expectComplete(tab, commandId);
      expect(tab.output(commandId)).toBe(stage.printed(gate));
    },
    60_000,
  );
});

const isUp = (state: string): boolean => state === 'live' || state === 'catching-up';

/** The chatty program counts its lines: the first one that does not follow. */
function faultOf(output: string): string | undefined {
  return output
    .trimEnd()
    .split('\n')
    .find((line, i) => line !== `line ${i + 1} of output`);
}
