/** Row 5: `echo hi`, from submit to `ended` seen: one at a time, and 8 at a time. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import {
  createRunner,
  inTurns,
  many,
  mapped,
  median,
  openTab,
  PAIRS,
  quantile,
  range,
  ratios,
  short,
  sized,
  spread,
  startHoming,
  startPart,
  startRedis,
} from './harness.mjs';

const ARGV = ['/bin/sh', '-c', 'echo hi'];
/** Of one window; what ours needs for it is by far the most of the row's time. */
const SINGLE = sized(30);
const AT_ONCE = 8;
const PARALLEL = sized(48);

/** One after another, then several at once. @param run resolves when a command was seen to end */
const measured = (run) => async () => {
  const tookMs = [];
  for (let n = 0; n < SINGLE; n += 1) {
    const startedMs = performance.now();
    await run();
    tookMs.push(performance.now() - startedMs);
  }
  const startedMs = performance.now();
  await many(PARALLEL, AT_ONCE, run);
  return { p50: median(tookMs), perSecond: PARALLEL / ((performance.now() - startedMs) / 1_000), tookMs };
};

async function ours(scope) {
  const redis = await startRedis(scope);
  const homing = await startHoming(scope, { redis, nodes: 1, workers: 1 });
  const tab = await openTab(homing.nodes[0], await homing.token(), { batch: false });
  scope.defer(() => tab.close());
  const run = createRunner(tab);
  return measured(() => run({ argv: ARGV }));
}

async function bareQueue(scope) {
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
  return measured(async () => {
    count += 1;
    const jobId = `job-${count}`;
    const ended = new Promise((resolve) => waiting.set(jobId, resolve));
    await queue.add('bare', { argv: ARGV, channel: 'bare' }, { jobId, removeOnComplete: 1_000 });
    await ended;
    waiting.delete(jobId);
  });
}

const bareSpawn = () =>
  measured(async () => {
    const child = spawn(ARGV[0], ARGV.slice(1), { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.resume();
    await once(child, 'close');
  });

export default {
  id: '5',
  title: 'echo hi, submit to ended: ms one at a time; per second 8 at a time',
  pairs: PAIRS,
  async run(pairs) {
    const windows = await inTurns(pairs, { homing: ours, queue: bareQueue, spawn: bareSpawn });
    // The few of one window have no p99: it is that of all windows together.
    const p99 = mapped(windows, (list) =>
      quantile(
        list.flatMap(({ tookMs }) => tookMs),
        0.99,
      ),
    );
    const figures = mapped(windows, (list) => list.map(({ tookMs: _, ...kept }) => kept));
    const of = (name, field) => figures[name].map((figure) => figure[field]);
    const p50 = ratios(of('homing', 'p50'), of('queue', 'p50'));
    const toQueue = ratios(of('homing', 'perSecond'), of('queue', 'perSecond'));
    const toSpawn = ratios(of('homing', 'perSecond'), of('spawn', 'perSecond'));
    const verdicts = [
      {
        work: '`echo hi`, submit to `ended`, one at a time, p50',
        goal: '≤ 1.5 × bare queue',
        measured: `${spread(p50)} ×; ${spread(range(of('homing', 'p50')))} ms; p99 of all ${short(p99.homing)} ms, bare queue ${short(p99.queue)}`,
        reached: p50.median <= 1.5,
      },
      {
        work: 'the same, 8 at a time, per second',
        goal: '≥ 0.9 × bare queue, ≥ 0.6 × bare spawn',
        measured: `${spread(toQueue)} × and ${spread(toSpawn)} ×; ${spread(range(of('homing', 'perSecond')))} a second`,
        reached: toQueue.median >= 0.9 && toSpawn.median >= 0.6,
      },
    ];
    return {
      figures,
      unit: 'ms and per second',
      p99,
      ratio: { p50, p99: p99.homing / p99.queue, toQueue, toSpawn },
      verdicts,
    };
  },
};
