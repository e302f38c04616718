/** Row 6: what a node needs for an attached tab that does nothing, and how that grows with their number. */
import { bullmqRelay, homing, relay, socketios } from './contenders.mjs';
import {
  alternate,
  many,
  mapped,
  median,
  ONCE,
  pause,
  range,
  rssBytes,
  short,
  sized,
  spread,
  startRedis,
} from './harness.mjs';

const TABS = sized(5_000);
const STEPS = 5;
const AT_ONCE = 50;
const WARM = 200;
const LIMIT_KB = 14;
const SETTLE_MS = 1_500;

/** @returns kB for each after the first, which also pay for what is made once; and what all took after each step */
const run = (contender) => async (scope) => {
  const { pid, open } = await contender.start(scope, await startRedis(scope));
  const nothing = () => {};
  await many(WARM, AT_ONCE, (n) => open(n, nothing));
  await pause(SETTLE_MS);
  const before = rssBytes(pid);
  const curve = [];
  for (let step = 0; step < STEPS; step += 1) {
    const from = WARM + (step * TABS) / STEPS;
    await many(TABS / STEPS, AT_ONCE, (n) => open(from + n, nothing));
    if (step === STEPS - 1) await pause(SETTLE_MS);
    curve.push({ tabs: ((step + 1) * TABS) / STEPS, mb: (rssBytes(pid) - before) / 1e6 });
  }
  return { kB: (rssBytes(pid) - before) / TABS / 1_000, curve };
};

export default {
  id: '6',
  title: 'memory of a node for an idle tab, 5,000 tabs: kB',
  pairs: ONCE,
  async run(pairs) {
    const all = {
      homing: homing({ idle: true, env: { HOMING_GRACE_MS: '600000' } }),
      relay,
      ...socketios,
      bullmqRelay,
    };
    const figures = await alternate(pairs, mapped(all, run));
    const of = (name) => figures[name].map(({ kB }) => kB);
    const said = (name) => short(median(of(name)));
    const verdict = {
      work: 'memory of a node for an idle tab, 5,000 tabs',
      goal: `≤ ${LIMIT_KB} kB`,
      measured: `${spread(range(of('homing')))} kB; bare relay ${said('relay')}, Socket.IO ${said('sioRedis')} (sharded adapter ${said('sioSharded')}, streams ${said('sioStreams')}), BullMQ Relay ${said('bullmqRelay')}`,
      reached: median(of('homing')) <= LIMIT_KB,
    };
    return { figures, verdicts: [verdict] };
  },
};
