/**
 * Row 12: commands that wait in the queue because no worker is there. How fast they are submitted, whether the last cost more
 * than the first, what they cost in Redis, and how long a page of `command.list` takes meanwhile. Against `queue.add` alone.
 */
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import {
  alternate,
  askRedis,
  cpuMs,
  many,
  median,
  ONCE,
  openTab,
  quantile,
  range,
  ratios,
  short,
  sized,
  spread,
  startHoming,
  startRedis,
} from './harness.mjs';

/** What the plan asks for takes minutes, so the whole table makes do with fewer. */
const ALONE = sized(100_000);
const IN_TABLE = sized(20_000);
const TABS = 8;
const AT_ONCE = 128;
const PAGES = 150;
/** Before the first tenth, so that it does not pay for code that is compiled. */
const WARM = 1_000;
const LIST_LIMIT_MS = 50;
/** Of the last tenth against the first: beyond this a submit would not be called flat. */
const FLAT = 1.2;

/** Submits in tenths. @returns for each tenth its rate, and CPU of the processes for each submit */
async function inTenths(count, pids, submit) {
  const tenths = [];
  await many(WARM, AT_ONCE, (n) => submit(count + n));
  for (let n = 0; n < 10; n += 1) {
    const before = pids.map(cpuMs);
    const beganMs = performance.now();
    await many(count / 10, AT_ONCE, (i) => submit((n * count) / 10 + i));
    const ms = performance.now() - beganMs;
    const cpu = pids.reduce((sum, pid, i) => sum + cpuMs(pid) - before[i], 0);
    tenths.push({ perSecond: count / 10 / (ms / 1_000), cpuMs: cpu / (count / 10) });
  }
  return tenths;
}

async function timed(times, ask) {
  const tookMs = [];
  let cursor;
  for (let n = 0; n < times; n += 1) {
    const beganMs = performance.now();
    const { next } = await ask(cursor);
    tookMs.push(performance.now() - beganMs);
    cursor = next;
  }
  return { p50: median(tookMs), p99: quantile(tookMs, 0.99) };
}

const ours = (count) => async (scope) => {
  const redis = await startRedis(scope);
  const asking = askRedis(scope, redis.url);
  const homing = await startHoming(scope, { redis, nodes: 1 });
  const token = await homing.token();
  // All in one conversation, which is the harder case for a list.
  const tabs = await many(TABS, TABS, () => openTab(homing.nodes[0], token, {}));
  for (const tab of tabs) scope.defer(() => tab.close());
  const bytesBefore = await asking.usedBytes();
  const pids = [homing.nodes[0].pid, redis.pid];
  const tenths = await inTenths(count, pids, (n) => tabs[n % TABS].rpc('command.run', { argv: ['echo', String(n)] }));
  const bytes = ((await asking.usedBytes()) - bytesBefore) / (count + WARM);
  const list = (params) =>
    timed(PAGES, (cursor) => tabs[0].rpc('command.list', { ...params, ...(cursor && { cursor }) }));
  return {
    tenths,
    perSecond: median(tenths.map(({ perSecond }) => perSecond)),
    bytes,
    page: await list({ limit: 100 }),
    queued: await list({ limit: 100, state: 'queued' }),
    // Nothing of this kind is there, so each answer looks as far as one may.
    running: await list({ limit: 100, state: 'running' }),
  };
};

const bareQueue = (count) => async (scope) => {
  const redis = await startRedis(scope);
  const asking = askRedis(scope, redis.url);
  const connection = new Redis(redis.url);
  const queue = new Queue('bare', { connection });
  scope.defer(async () => {
    await queue.close();
    connection.disconnect();
  });
  const bytesBefore = await asking.usedBytes();
  const tenths = await inTenths(count, [process.pid, redis.pid], (n) =>
    queue.add('bare', { argv: ['echo', String(n)] }, { jobId: `job-${n}`, priority: 50 }),
  );
  return {
    tenths,
    perSecond: median(tenths.map(({ perSecond }) => perSecond)),
    bytes: ((await asking.usedBytes()) - bytesBefore) / (count + WARM),
  };
};

export default {
  id: '12',
  title: 'commands waiting in the queue: submits, memory, pages of the list',
  pairs: ONCE,
  async run(pairs, { alone }) {
    const count = alone ? ALONE : IN_TABLE;
    const figures = await alternate(pairs, { homing: ours(count), queue: bareQueue(count) });
    const of = (field) => figures.homing.map((figure) => figure[field]);
    const last = (field) => range(of('tenths').map((tenths) => tenths.at(-1)[field] / tenths[0][field]));
    const flat = last('cpuMs');
    const ratio = ratios(
      of('perSecond'),
      figures.queue.map(({ perSecond }) => perSecond),
    );
    const p99 = (field) => range(of(field).map((page) => page.p99));
    const many = count.toLocaleString('en');
    const verdicts = [
      {
        work: `${many} commands are submitted and wait: CPU of node and Redis for a submit, last tenth against first`,
        goal: `flat (≤ ${FLAT} ×)`,
        measured: `${spread(flat)} ×; ${spread(range(of('perSecond')))} a second, ${spread(ratio)} × bare \`queue.add\``,
        reached: flat.median <= FLAT,
      },
      {
        work: 'pages of 100 of `command.list` meanwhile, p99',
        goal: `≤ ${LIST_LIMIT_MS} ms`,
        measured: `${spread(p99('page'))} ms; of queued ones ${spread(p99('queued'))}, of running ones, where there are none, ${spread(p99('running'))}`,
        reached: Math.max(p99('page').median, p99('queued').median, p99('running').median) <= LIST_LIMIT_MS,
      },
      {
        work: 'Redis memory for each that waits',
        goal: 'stated',
        measured: `${short(range(of('bytes')).median)} B; a bare job ${short(range(figures.queue.map(({ bytes }) => bytes)).median)} B`,
      },
    ];
    return { count, figures, ratio: { flat, toQueue: ratio }, verdicts };
  },
};
