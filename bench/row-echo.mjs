/** Row 5: `echo hi`, from submit to `ended` seen: one at a time, and 8 at a time. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import {
  alternate,
  createScope,
  median,
  openTab,
  quantile,
  range,
  ratios,
  sized,
  spread,
  startHoming,
  startPart,
  startRedis,
} from './harness.mjs';

const ARGV = ['/bin/sh', '-c', 'echo hi'];
const SINGLE = sized(100);
const PARALLEL = sized(200);

async function measure(run) {
  for (let n = 0; n < 20; n += 1) await run();
  const times = [];
  for (let n = 0; n < SINGLE; n += 1) {
    const startedMs = performance.now();
    await run();
    times.push(performance.now() - startedMs);
  }
  const startedMs = performance.now();
  let left = PARALLEL;
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      while (left > 0) {
        left -= 1;
        await run();
      }
    }),
  );
  return {
    p50: median(times),
    p99: quantile(times, 0.99),
    perSecond: PARALLEL / ((performance.now() - startedMs) / 1_000),
  };
}

async function ours() {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const homing = await startHoming(scope, { redis, nodes: 1, workers: 1 });
    const tab = await openTab(homing.nodes[0], await homing.token(), { batch: false });
    scope.defer(() => tab.close());
    const waiting = new Map();
    const early = new Set();
    tab.on((method, params) => {
      if (method !== 'command.ended') return;
      if (waiting.has(params.commandId)) waiting.get(params.commandId)();
      else early.add(params.commandId);
    });
    return await measure(async () => {
      const { commandId } = await tab.rpc('command.run', { argv: ARGV });
      if (early.delete(commandId)) return;
      await new Promise((resolve) => waiting.set(commandId, resolve));
      waiting.delete(commandId);
    });
  } finally {
    await scope.close();
  }
}

async function bareQueue() {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    await startPart(scope, 'bare-queue.mjs', { REDIS_URL: redis.url });
    const connection = new Redis(redis.url);
    const queue = new Queue('bare', { connection });
    const subscriber = new Redis(redis.url);
    scope.defer(async () => {
      await queue.close();
      connection.disconnect();
      subscriber.disconnect();
    });
    let count = 0;
    const waiting = new Map();
    await subscriber.subscribe('bare');
    subscriber.on('message', (_channel, message) => {
      const [word, id] = message.split(' ');
      if (word === 'ended') waiting.get(id)?.();
    });
    return await measure(async () => {
      count += 1;
      const jobId = `job-${count}`;
      const ended = new Promise((resolve) => waiting.set(jobId, resolve));
      await queue.add('bare', { argv: ARGV, channel: 'bare' }, { jobId, removeOnComplete: 1_000 });
      await ended;
      waiting.delete(jobId);
    });
  } finally {
    await scope.close();
  }
}

const bareSpawn = () =>
  measure(async () => {
    const child = spawn(ARGV[0], ARGV.slice(1), { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.resume();
    await once(child, 'close');
  });

export default {
  id: '5',
  title: 'echo hi, submit to ended: ms one at a time; per second 8 at a time',
  pairs: 3,
  async run(pairs) {
    const figures = await alternate(pairs, { homing: ours, queue: bareQueue, spawn: bareSpawn });
    const of = (name, field) => figures[name].map((figure) => figure[field]);
    const p50 = ratios(of('homing', 'p50'), of('queue', 'p50'));
    const p99 = ratios(of('homing', 'p99'), of('queue', 'p99'));
    const toQueue = ratios(of('homing', 'perSecond'), of('queue', 'perSecond'));
    const toSpawn = ratios(of('homing', 'perSecond'), of('spawn', 'perSecond'));
    const verdicts = [
      {
        work: '`echo hi`, submit to `ended`, one at a time, p50',
        goal: '≤ 1.5 × bare queue',
        measured: `${spread(p50)} ×; ${spread(range(of('homing', 'p50')))} ms; p99 ${spread(range(of('homing', 'p99')))} ms`,
        reached: p50.median <= 1.5,
      },
      {
        work: 'the same, 8 at a time, per second',
        goal: '≥ 0.9 × bare queue, ≥ 0.6 × bare spawn',
        measured: `${spread(toQueue)} × and ${spread(toSpawn)} ×; ${spread(range(of('homing', 'perSecond')))} a second`,
        reached: toQueue.median >= 0.9 && toSpawn.median >= 0.6,
      },
    ];
    return { figures, unit: 'ms and per second', ratio: { p50, p99, toQueue, toSpawn }, verdicts };
  },
};
