/** The cluster of docker-compose.yml as processes: nodes behind a real balancer that sends every tab anywhere. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Balancer, HAPROXY, startBalancer } from '../support/balancer.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectOnly } from '../support/expect-tab.js';
import { startProgram } from '../support/household.js';
import { stablePort } from '../support/ports.js';
import { MARKER, markerFor } from '../support/processes.js';
import { createStage, type Stage } from '../support/programs.js';
import { openTab, type Tab } from '../support/tab.js';
import { until, within } from '../support/wait.js';

const NODES = 3;
const TABS = 9;
/** Below HOMING_IDLE of the tests of silence, as 15 s are below 50. */
const HEARTBEAT_MS = 300;
const IDLE_MS = 1_000;

type Place = { readonly port: number; readonly opsPort: number };

/** A node that starts again does so where it was, as a container does. */
async function placesFor(count: number): Promise<Place[]> {
  const places: Place[] = [];
  for (let n = 0; n < count; n += 1) places.push({ port: await stablePort(), opsPort: await stablePort() });
  return places;
}

const settingsOf = ({ port, opsPort }: Place) => ({ HOMING_PORT: String(port), HOMING_OPS_PORT: String(opsPort) });

/** What every client does: whenever the socket goes, it comes back through the balancer. @returns stops that */
function keepComingBack(tab: Tab, url: string): { readonly returns: number; stop(): void } {
  let wanted = true;
  let returns = 0;
  const back = async () => {
    while (wanted) {
      await tab.socket.closed;
      if (!wanted) return;
      // A node that was just taken away may still be chosen for a moment.
      await until(`${tab.name} to be back`, () => tab.resume(url).then(() => true));
      returns += 1;
    }
  };
  void back().catch(() => undefined); // A tab that can not come back fails the test by what it lacks.
  return {
    get returns() {
      return returns;
    },
    stop() {
      wanted = false;
    },
  };
}

describe.skipIf(HAPROXY === undefined)('three nodes behind a balancer without sticky sessions', () => {
  let cluster: Cluster;
  let balancer: Balancer;
  let stage: Stage;

  beforeAll(async () => {
    stage = await createStage();
    const places = await placesFor(NODES);
    cluster = await startCluster({
      nodes: NODES,
      workers: 2,
      nodeEnv: (i) => settingsOf(places[i] as Place),
    });
    const ready = cluster.nodes.map(({ opsUrl }) =>
      until('a node that is ready', async () => (await fetch(`${opsUrl}/readyz`)).ok),
    );
    await Promise.all(ready);
    balancer = await startBalancer(places);
  });
  afterAll(async () => {
    await balancer?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  it('[SE3][SE6][DE1][IS2] a node is drained and started again, and another killed, under load: nothing is lost, nothing comes twice', {
    timeout: 60_000,
  }, async () => {
    const tabs: Tab[] = [];
    for (let n = 0; n < TABS; n += 1) {
      const conversation = `shared-${n % 3}`;
      tabs.push(await openTab(balancer.url, { token: cluster.token(), name: `tab ${n}`, conversation }));
    }
    expect(new Set(tabs.map(({ opened }) => opened.nodeId)).size).toBe(NODES);

    const before = tabs.map((tab) => tab.opened.nodeId);
    const commands = await Promise.all(tabs.map((tab, n) => tab.run(stage.chatty(`tab-${n}`, 20))));
    const clients = tabs.map((tab) => keepComingBack(tab, balancer.url));
    const seen = (line: number) =>
      Promise.all(tabs.map((tab, n) => tab.shows(commands[n] as string, `line ${line} `, 30_000)));

    await seen(20);
    await cluster.node(0).kill('SIGTERM');
    expect(cluster.node(0).exitCode).toBe(0);
    await seen(60);
    await cluster.node(0).restart();
    await seen(90);
    await cluster.node(1).kill('SIGKILL');
    await until('all of its tabs to be elsewhere', () =>
      clients.every(({ returns }, n) => returns > 0 || before[n] === cluster.node(2).id),
    );
    await seen(130);

    for (let n = 0; n < TABS; n += 1) stage.open(`tab-${n}`);
    for (const [n, tab] of tabs.entries()) {
      const commandId = commands[n] as string;
      await tab.ended(commandId);
      expectComplete(tab, commandId);
      expectOnly(tab, [commandId]);
      expect(tab.output(commandId)).toBe(stage.printed(`tab-${n}`));
    }
    for (const client of clients) client.stop();
    for (const tab of tabs) await tab[Symbol.asyncDispose]();
    for (const node of [0, 2]) expect(await cluster.metric(node, 'homing_misdelivered_total')).toBe(0);
    await cluster.node(1).restart();
  });

  it('[SE3] homing run through the balancer goes on when its node is killed, and says so', {
    timeout: 40_000,
  }, async () => {
    const env = {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      HOMING_URL: balancer.url,
      HOMING_TOKEN: cluster.token(),
      [MARKER]: markerFor('balanced'),
    };
    const run = startProgram(['run', '-c', 'cli', '--', ...stage.chatty('cli', 10).argv], env);
    await until('first lines', () => run.stdout().includes('line 5 '));
    const { sessions } = (await (
      await fetch(`${balancer.url}/v1/conversations/cli/sessions`, {
        headers: { authorization: `Bearer ${cluster.token()}` },
      })
    ).json()) as { sessions: { nodeId: string }[] };
    const node = cluster.nodes.find(({ id }) => id === sessions[0]?.nodeId);
    await node?.kill('SIGKILL');
    await until('more lines', () => run.stdout().split('\n').length > 60, 20_000);
    stage.open('cli');
    expect(await within('the end', run.ended, 20_000)).toBe(0);
    expect(run.stdout()).toBe(stage.printed('cli'));
    expect(run.stderr()).toMatch(
      /^homing: The connection to \S+ is lost \(.+\); .*\nhoming: Connected again after [\d.]+ s/,
    );
    await node?.restart();
  });
});

describe.skipIf(HAPROXY === undefined)('a balancer that cuts what is idle', () => {
  const idleFor = async (heartbeatMs: number) => {
    const [place] = (await placesFor(1)) as [Place];
    await using cluster = await startCluster({
      workers: 0,
      nodeEnv: () => settingsOf(place),
      env: { HOMING_HEARTBEAT_MS: String(heartbeatMs) },
    });
    await using balancer = await startBalancer([place, place], { idle: `${IDLE_MS}ms` });
    await using tab = await openTab(balancer.url, { token: cluster.token() });
    const openedMs = performance.now();
    const heard = tab.waitFor('heartbeats', () => performance.now() - openedMs > 4 * IDLE_MS);
    return await Promise.race([heard.catch(() => undefined).then(() => 'open'), tab.socket.closed.then(() => 'cut')]);
  };

  it('leaves a silent tab alone, since its socket has heartbeats in both directions', async () => {
    expect(await idleFor(HEARTBEAT_MS)).toBe('open');
  });

  it('would cut it without them', async () => {
    expect(await idleFor(60_000)).toBe('cut');
  });
});
