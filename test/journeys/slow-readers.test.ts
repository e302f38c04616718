/** Readers that stop, crawl, or acknowledge nothing or nonsense cost a node a fixed amount, and nobody else anything. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';
import { residentBytes } from '../support/processes.js';
import { flood, floodBytes, lines } from '../support/programs.js';
import { deliveryFaults } from '../support/recording.js';
import type { Tab } from '../support/tab.js';
import { until } from '../support/wait.js';

const MiB = 1024 * 1024;
/** The least that may be set: one entry of control characters is larger. */
const OUTBOX_BYTES = 64 * 1024;
const SLEEPERS = 6;
const FLOOD_BYTES = 2 * MiB;

describe('slow and hostile readers', () => {
  let cluster: Cluster;

  beforeAll(async () => {
    cluster = await startCluster({
      ...{ nodes: 1, workers: 1 },
      env: {
        HOMING_OUTBOX_BYTES: String(OUTBOX_BYTES),
        // Nobody who reads nothing answers a ping: they must outlive a busy machine.
        HOMING_HEARTBEAT_MS: '15000',
        HOMING_CONCURRENCY: '16',
        HOMING_LOG_FIRST_BYTES: String(MiB),
        HOMING_LOG_LAST_BYTES: String(3 * MiB),
      },
    });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
  });

  const ended = async (commandId: string) => {
    let state = '';
    while (state !== 'ended')
      state = (await cluster.http('GET', `/v1/commands/${commandId}?waitMs=20000`)).json.state ?? state;
  };
  /** A neighbour's small command, and how long each of its lines took to come. */
  async function neighbourIsQuick(): Promise<void> {
    const small = lines('small', 20, 20);
    await using neighbour = await cluster.tab(0, { name: 'neighbour', conversation: 'neighbour' });
    const commandId = await neighbour.run({ argv: small.argv });
    await neighbour.ended(commandId, 15_000);
    expectComplete(neighbour, commandId);
    expect(neighbour.output(commandId)).toBe(small.output);
  }

  it(`[DE5] ${SLEEPERS} tabs that stop reading under a flood each cost the node no more than their outboxes, slow nobody, and miss nothing when they wake up`, async () => {
    const { pid } = cluster.node(0);
    const tabs: Tab[] = [];
    for (let i = 0; i < SLEEPERS; i += 1) tabs.push(await cluster.tab(0, { conversation: `sleeper-${i}` }));
    await neighbourIsQuick();
    const before = residentBytes(pid);
    let peak = before;
    const sampling = setInterval(() => {
      peak = Math.max(peak, residentBytes(pid));
    }, 50);
    for (const tab of tabs) tab.pauseReading();
    // The answers do not come either: what was asked for is found by its list.
    const submits = await Promise.all(
      tabs.map((tab, i) => {
        const body = { conversation: `sleeper-${i}`, originSessionId: tab.sessionId, ...flood(FLOOD_BYTES) };
        return cluster.http('POST', '/v1/commands', { body });
      }),
    );
    const ids = submits.map(({ json }) => json.commandId as string);
    const quick = neighbourIsQuick();
    await Promise.all(ids.map(ended));
    await quick;
    clearInterval(sampling);
    // What the kernel holds for a socket is not the node's; its own part is the outbox, a page being read, and garbage.
    expect(peak - before, 'growth of the node').toBeLessThan(SLEEPERS * 8 * OUTBOX_BYTES + 64 * MiB);
    expect(tabs.every((tab) => tab.socket.ws.readyState === 1)).toBe(true);
    for (const tab of tabs) tab.resumeReading();
    for (const [i, tab] of tabs.entries()) {
      const commandId = ids[i] as string;
      await tab.ended(commandId, 30_000);
      expectComplete(tab, commandId);
      expect(tab.outputBytes(commandId).equals(floodBytes(0, FLOOD_BYTES)), tab.name).toBe(true);
    }
  }, 120_000);

  it('[DE3] [DE5] a tab that reads 10 kB/s while more is printed than is kept gets the rest with every gap stated to the byte', async () => {
    const tab = await cluster.tab(0, { conversation: 'crawler' });
    const size = 8 * MiB;
    const commandId = await tab.run(flood(size));
    // What one read brings is paid for with a pause.
    let seen = 0;
    const crawl = setInterval(() => {
      const now = tab.outputBytes(commandId).length;
      if (now > seen) {
        tab.pauseReading();
        setTimeout(tab.resumeReading, Math.min(400, (now - seen) / 10));
      }
      seen = now;
    }, 20);
    await ended(commandId);
    await neighbourIsQuick();
    clearInterval(crawl);
    tab.resumeReading();
    await tab.ended(commandId, 30_000);
    expect(deliveryFaults(tab.recording, { commandId, gaps: true })).toEqual([]);
    for (const entry of tab.entries(commandId)) {
      if (entry.method !== 'command.output') continue;
      const { at, data } = entry.params;
      if (data !== floodBytes(at, at + data.length).toString()) throw new Error(`other bytes at ${at}`);
    }
  }, 120_000);

  it('[DE6] a tab that acknowledges nothing gets everything all the same; nonsense changes nothing and harms nobody', async () => {
    const tab = await cluster.tab(0, { conversation: 'acks' });
    const stranger = await cluster.tab(0, { conversation: 'acks-2' });
    const many = lines('many', 500);
    const commandId = await tab.run({ argv: many.argv });
    const strangers = await stranger.run({ argv: many.argv });
    await tab.ended(commandId);
    await stranger.ended(strangers);
    expect(tab.output(commandId)).toBe(many.output);
    const head = tab.cursors()[commandId] as number;
    const say = (params: unknown) =>
      tab.socket.ws.send(JSON.stringify({ jsonrpc: '2.0', method: 'output.ack', params }));
    for (const seq of [-1, 0, head + 1, 2 ** 53, 1.5, null, 'all', {}, []]) say({ cursors: { [commandId]: seq } });
    for (const params of [undefined, null, 7, 'x', [], {}, { cursors: null }, { cursors: [commandId] }]) say(params);
    say({ cursors: { [strangers]: 1, nothing: 1, '': 1, __proto__: 1, cmd_a_b: 1 } });
    say({ cursors: Object.fromEntries(Array.from({ length: 900 }, (_, i) => [`cmd_${i}`, i])) });
    const ackedSeq = async (of: Tab, id: string) => (await of.rpc('command.get', { commandId: id })).ackedSeq;
    expect(await ackedSeq(tab, commandId)).toBe(0);
    expect(await ackedSeq(stranger, strangers)).toBe(0);
    expect(tab.socket.ws.readyState).toBe(1);
    tab.ack({ [commandId]: head });
    await until('the real one stored', async () => (await ackedSeq(tab, commandId)) === head);
  });

  it('[DE5] an entry larger than the whole outbox is sent, once, over the connection that is there', async () => {
    const tab = await cluster.tab(0, { conversation: 'oversized' });
    // Each of these takes six bytes as JSON.
    const size = 200_000;
    const commandId = await tab.run({ script: `head -c ${size} /dev/zero | tr '\\000' '\\001'` });
    await tab.ended(commandId, 20_000);
    expectComplete(tab, commandId);
    expect(tab.outputBytes(commandId).equals(Buffer.alloc(size, 1))).toBe(true);
    expect(Math.max(...tab.entries(commandId).map(({ params }) => JSON.stringify(params).length))).toBeGreaterThan(
      10_000,
    );
    expect(tab.socket.number).toBe(1);
    await tab.drop();
    tab.forget();
    await tab.resume(cluster.node(0).url, { cursors: { [commandId]: 0 } });
    await tab.ended(commandId, 20_000);
    expectComplete(tab, commandId);
    expect(tab.socket.number).toBe(2);
  });
});
