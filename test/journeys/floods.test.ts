/** A repeated submit runs once; a flood of output stays within fixed bounds everywhere and keeps both its ends. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectOnly } from '../support/expect-tab.js';
import { peakResidentBytes } from '../support/processes.js';
import { createStage, flood, floodBytes, lines, type Stage } from '../support/programs.js';
import { deliveryFaults } from '../support/recording.js';

const MiB = 1024 * 1024;
const FLOOD_BYTES = 200 * MiB;
const FIRST_BYTES = 1 * MiB;
const LAST_BYTES = 2 * MiB;
const SPOOL_BYTES = 4 * MiB;

describe('idempotency', () => {
  let cluster: Cluster;
  let stage: Stage;
  beforeAll(async () => {
    stage = await createStage();
    cluster = await startCluster({ nodes: 2, workers: 2 });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  it('[CO1] the same submit twice with one key, also at once and over another node, is one run; another body a conflict', async () => {
    const tab = await cluster.tab(0, { conversation: 'keys' });
    const spec = { ...stage.counted('key'), idempotencyKey: 'deploy-42' };
    const ids = await Promise.all([tab.run(spec), tab.run(spec), tab.run(spec)]);
    expect(new Set(ids).size).toBe(1);
    const commandId = ids[0] as string;
    await tab.drop();
    await tab.resume(cluster.node(1).url);
    expect(await tab.run(spec)).toBe(commandId);
    await expect(tab.run({ ...spec, argv: ['/bin/echo', 'other'] })).rejects.toMatchObject({
      code: 'IDEMPOTENCY_CONFLICT',
    });
    stage.open('key');
    await tab.ended(commandId);
    // Also when it is over.
    expect(await tab.run(spec)).toBe(commandId);
    expectComplete(tab, commandId);
    expect(stage.starts('key')).toBe(1);
  });

  it('[CO1] over HTTP the header does the same, and another principal’s key is another key', async () => {
    const submit = (argv: string[], token?: string) =>
      cluster.http('POST', '/v1/commands', {
        token,
        headers: { 'idempotency-key': 'k1' },
        body: { conversation: 'http-keys', argv },
      });
    const [first, second] = [await submit(['/bin/echo', '1']), await submit(['/bin/echo', '1'])];
    expect([first.status, second.status]).toEqual([202, 202]);
    expect(second.json.commandId).toBe(first.json.commandId);
    const conflict = await submit(['/bin/echo', '2']);
    expect([conflict.status, conflict.json.code]).toEqual([409, 'IDEMPOTENCY_CONFLICT']);
    const bobs = await submit(['/bin/echo', '2'], cluster.token({ sub: 'bob' }));
    expect(bobs.status).toBe(202);
    expect(bobs.json.commandId).not.toBe(first.json.commandId);
  });
});

describe('floods', () => {
  let cluster: Cluster;
  let admin: Redis;

  beforeAll(async () => {
    cluster = await startCluster({
      nodes: 1,
      workers: 1,
      env: {
        HOMING_LOG_FIRST_BYTES: String(FIRST_BYTES),
        HOMING_LOG_LAST_BYTES: String(LAST_BYTES),
        HOMING_SPOOL_BYTES: String(SPOOL_BYTES),
        // A tab that reads nothing answers no ping either: it must outlive the flood on a busy machine.
        HOMING_HEARTBEAT_MS: '15000',
      },
    });
    admin = new Redis(cluster.redis.url);
  });
  afterAll(async () => {
    admin?.disconnect();
    await cluster?.[Symbol.asyncDispose]();
  });

  it('[CO7] 200 MB without a reader: worker, node and Redis stay within fixed bounds, both ends are kept, and the gap is stated to the byte', async () => {
    const tab = await cluster.tab(0, { name: 'sleeper', conversation: 'flood' });
    const neighbour = await cluster.tab(0, { name: 'neighbour', conversation: 'flood' });
    const before = { worker: peakResidentBytes(cluster.worker(0).pid), node: peakResidentBytes(cluster.node(0).pid) };
    const commandId = await tab.run(flood(FLOOD_BYTES));
    tab.pauseReading();
    let redisPeak = 0;
    const sampling = setInterval(async () => {
      const used = /used_memory:(\d+)/.exec(await admin.info('memory'))?.[1];
      redisPeak = Math.max(redisPeak, Number(used ?? 0));
    }, 100);
    // [DE5] The neighbour on the same node is not held up.
    const small = lines('small', 50, 20);
    const quick = await neighbour.run({ argv: small.argv });
    await neighbour.ended(quick, 10_000);
    expectComplete(neighbour, quick);
    let ended: { json: { state?: string; outcome?: { outputBytes: number; code: number } } };
    do {
      ended = await cluster.http('GET', `/v1/commands/${commandId}?waitMs=20000`);
    } while (ended.json.state !== 'ended');
    clearInterval(sampling);
    expect(ended.json.outcome).toMatchObject({ reason: 'exited', code: 0, outputBytes: FLOOD_BYTES });

    const grown = {
      worker: peakResidentBytes(cluster.worker(0).pid) - before.worker,
      node: peakResidentBytes(cluster.node(0).pid) - before.node,
    };
    expect(grown.worker, 'growth of the worker').toBeLessThan(160 * MiB);
    expect(grown.node, 'growth of the node').toBeLessThan(160 * MiB);
    expect(redisPeak, 'memory of Redis').toBeLessThan(64 * MiB);

    // The log, read over HTTP: first bytes, a gap or more to the byte, last bytes.
    const entries = await cluster.wholeLog(commandId);
    let at = 0;
    let kept = 0;
    let firstGapAt = -1;
    let lastGapEnd = -1;
    let nextSeq = 1;
    for (const { method, params } of entries) {
      expect(params.fromSeq ?? params.seq).toBe(nextSeq);
      nextSeq = params.seq + 1;
      if (method === 'command.gap') {
        expect(['flood', 'trimmed']).toContain(params.reason);
        if (firstGapAt < 0) firstGapAt = at;
        at += params.bytes;
        lastGapEnd = at;
      }
      if (method === 'command.output') {
        expect(params.at).toBe(at);
        const data = Buffer.from(params.data, 'utf8');
        expect(data.equals(floodBytes(at, at + data.length)), `bytes from ${at}`).toBe(true);
        at += data.length;
        kept += data.length;
      }
    }
    expect(at).toBe(FLOOD_BYTES);
    expect(firstGapAt).toBeGreaterThanOrEqual(FIRST_BYTES * 0.95);
    expect(FLOOD_BYTES - lastGapEnd).toBeGreaterThanOrEqual(LAST_BYTES * 0.9);
    expect(kept).toBeLessThan((FIRST_BYTES + LAST_BYTES) * 1.3);

    // [DE3] The sleeper wakes up: no hole unsaid, and the end.
    tab.resumeReading();
    await tab.ended(commandId, 20_000);
    expect(deliveryFaults(tab.recording, { commandId, gaps: true })).toEqual([]);
    expectOnly(neighbour, [quick]);
  }, 120_000);

  it('[DE5] a tab that stops reading is not disconnected, and gets everything once it reads again', async () => {
    const tab = await cluster.tab(0, { conversation: 'slow' });
    const size = 2 * MiB;
    const commandId = await tab.run(flood(size));
    tab.pauseReading();
    const ended = await cluster.http('GET', `/v1/commands/${commandId}?waitMs=20000`);
    expect(ended.json.state).toBe('ended');
    tab.resumeReading();
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    expect(tab.outputBytes(commandId).equals(floodBytes(0, size))).toBe(true);
  });
});
