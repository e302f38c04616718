/**
 * A program that prints 10 GB, with the limits as shipped: what the worker, the node and Redis need for it, and what is in the
 * log afterwards, to the byte. The figures are in docs/containment.md; this prints them anew. HOMING_TEST_FLOOD_BYTES sets
 * another size.
 */
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { startCluster } from '../support/cluster.js';
import { peakResidentBytes, residentBytes } from '../support/processes.js';

const MIB = 1024 * 1024;
const BYTES = Number(process.env.HOMING_TEST_FLOOD_BYTES ?? 10 * 1024 * MIB);
/** As shipped: docs/settings.md. */
const FIRST_BYTES = 1 * MIB;
const LAST_BYTES = 7 * MIB;
const WORKER_BYTES = 150 * MIB;
const SAMPLE_EVERY_MS = 1_000;
const LIMIT_MS = 30 * 60_000;

it('[CO7] 10 GB are printed through a worker of less than 150 MB, and the log is within its bounds, right to the byte', {
  timeout: LIMIT_MS,
}, async () => {
  await using cluster = await startCluster({ env: { HOMING_HEARTBEAT_MS: '15000', HOMING_LEASE_MS: '15000' } });
  const admin = new Redis(cluster.redis.url);
  const idle = residentBytes(cluster.worker(0).pid);
  const seen = { worker: [] as number[], redis: 0 };
  const sampling = setInterval(async () => {
    seen.worker.push(residentBytes(cluster.worker(0).pid));
    const used = /used_memory:(\d+)/.exec(await admin.info('memory').catch(() => ''))?.[1];
    seen.redis = Math.max(seen.redis, Number(used ?? 0));
  }, SAMPLE_EVERY_MS);
  try {
    const tab = await cluster.tab(0, { conversation: 'flood' });
    const beganMs = performance.now();
    const commandId = await tab.run({ script: `yes | head -c ${BYTES}` });
    await tab.ended(commandId, LIMIT_MS);
    const seconds = (performance.now() - beganMs) / 1_000;
    clearInterval(sampling);
    const { json } = await cluster.http('GET', `/v1/commands/${commandId}`);
    expect(json.outcome).toMatchObject({ reason: 'exited', code: 0, outputBytes: BYTES });

    const log = weigh(await cluster.wholeLog(commandId));
    const mib = (bytes: number) => Math.round(bytes / MIB);
    const figures = {
      bytes: BYTES,
      seconds: Math.round(seconds),
      mibPerSecond: Math.round(BYTES / MIB / seconds),
      workerMib: {
        idle: mib(idle),
        median: mib(seen.worker.sort((a, b) => a - b)[Math.floor(seen.worker.length / 2)] ?? 0),
        peak: mib(peakResidentBytes(cluster.worker(0).pid)),
        samples: seen.worker.length,
      },
      nodePeakMib: mib(peakResidentBytes(cluster.node(0).pid)),
      redisPeakMib: mib(seen.redis),
      log,
    };
    process.stdout.write(`${JSON.stringify(figures, undefined, 2)}\n`);

    expect(log.at, 'kept and missing bytes together').toBe(BYTES);
    expect(log.beforeFirstGap).toBeGreaterThanOrEqual(FIRST_BYTES * 0.95);
    expect(log.afterLastGap).toBeGreaterThanOrEqual(LAST_BYTES * 0.9);
    expect(log.kept).toBeLessThan((FIRST_BYTES + LAST_BYTES) * 1.3);
    expect(peakResidentBytes(cluster.worker(0).pid)).toBeLessThan(WORKER_BYTES);
  } finally {
    clearInterval(sampling);
    admin.disconnect();
  }
});

/** What is kept, what is missing, and that each byte is the one that `yes` printed there. */
function weigh(entries: Awaited<ReturnType<Awaited<ReturnType<typeof startCluster>>['wholeLog']>>) {
  let [at, kept, missing, gaps, nextSeq] = [0, 0, 0, 0, 1];
  let beforeFirstGap = -1;
  let lastGapEnd = 0;
  for (const { method, params } of entries) {
    expect(params.fromSeq ?? params.seq).toBe(nextSeq);
    nextSeq = params.seq + 1;
    if (method === 'command.gap') {
      if (gaps === 0) beforeFirstGap = at;
      gaps += 1;
      missing += params.bytes;
      at += params.bytes;
      lastGapEnd = at;
    }
    if (method === 'command.output') {
      expect(params.at).toBe(at);
      const text: string = params.data;
      const wanted = (at % 2 === 0 ? 'y\n' : '\ny').repeat(Math.ceil(text.length / 2)).slice(0, text.length);
      expect(text === wanted, `what stands at ${at}`).toBe(true);
      at += text.length;
      kept += text.length;
    }
  }
  return { at, kept, missing, gaps, beforeFirstGap, afterLastGap: at - lastGapEnd, entries: entries.length };
}
