/**
 * Row 10: output through a Redis Cluster of one, two and three masters: entries delivered per second, and CPU of each master for
 * an entry. Where the cores of a machine are the limit and not Redis, the CPU says what the masters would carry.
 */
import { homing } from './contenders.mjs';
import {
  alternate,
  cpuMs,
  many,
  median,
  ONCE,
  pause,
  range,
  short,
  sized,
  spread,
  startCluster,
  untilCalm,
} from './harness.mjs';

const MASTERS = [1, 2, 3];
/** Many conversations, each in one slot, so that each master has its share. */
const TABS = 240;
const TOTAL = sized(60_000);
const BYTES = 256;

const run = (masters) => async (scope) => {
  const cluster = await startCluster(scope, masters);
  const started = await homing().start(scope, cluster);
  let got = 0;
  await many(TABS, 20, (n) =>
    started.open(n, () => {
      got += 1;
    }),
  );
  const publish = await started.publisher();
  await untilCalm(scope);
  const pids = [started.pid, ...cluster.pids];
  const before = pids.map(cpuMs);
  const beganMs = performance.now();
  const published = publish(TOTAL, BYTES);
  while (got < TOTAL) await pause(10);
  const seconds = (performance.now() - beganMs) / 1_000;
  const [node, ...redis] = pids.map((pid, n) => ((cpuMs(pid) - before[n]) * 1_000) / TOTAL);
  await published;
  return { perSecond: TOTAL / seconds, nodeMicros: node, redisMicros: redis, carries: 1e6 / Math.max(...redis) };
};

export default {
  id: '10',
  title: 'entries through a Redis Cluster of 1, 2, 3 masters: delivered per second, and what the masters would carry',
  pairs: ONCE,
  async run(pairs) {
    const figures = await alternate(pairs, Object.fromEntries(MASTERS.map((n) => [`masters${n}`, run(n)])));
    const of = (n, field) => figures[`masters${n}`].map((figure) => figure[field]);
    const growth = range(of(3, 'carries').map((value, pair) => value / of(1, 'carries')[pair]));
    const each = (field) => MASTERS.map((n) => short(median(of(n, field)))).join(', ');
    const verdict = {
      work: 'entries of 256 B through a Redis Cluster of 1, 2, 3 masters, from the CPU of the busiest master for an entry',
      // No number: on few cores the masters share them with everything else, and batches get smaller.
      goal: 'grows with the masters; stated',
      measured: `${spread(growth)} × with three: Redis would carry ${each('carries')} a second; delivered on these cores ${each('perSecond')}`,
    };
    return { figures, ratio: { growth }, verdicts: [verdict] };
  },
};
