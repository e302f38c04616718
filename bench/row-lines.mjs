/**
 * Row 1b: 40 programs, which have been started and are told to, print lines of 256 B as fast as they can for 40 tabs, through
 * worker and node, limits lifted: lines a second from the first to the last that arrives. Against the bare relay, which is
 * handed the lines one by one.
 */
import { relay } from './contenders.mjs';
import {
  cpuMs,
  inTurns,
  many,
  openTab,
  PAIRS,
  pause,
  range,
  ratios,
  short,
  sized,
  spread,
  startHoming,
  startProgram,
  startRedis,
} from './harness.mjs';

const TABS = 40;
const BYTES = 256;
/** Of one window. */
const LINES_EACH = sized(3_000);
const TOTAL = TABS * LINES_EACH;
const GOAL = 3;
const PROGRAM = `$| = 1; my $line = 'x' x ${BYTES - 1} . "\\n"; while (<STDIN>) { print $line x $_ }`;

async function ours(scope) {
  const redis = await startRedis(scope);
  const lifted = {
    HOMING_CONCURRENCY: String(TABS),
    HOMING_OUTPUT_BYTES_PER_SEC: String(8 * 1024 ** 3),
    HOMING_LOG_LAST_BYTES: String(64 * 1024 ** 2),
  };
  const homing = await startHoming(scope, { redis, nodes: 1, workers: 1, env: lifted });
  const token = await homing.token();
  let bytes;
  let inGaps;
  let beganMs;
  let lastMs;
  let finish;
  const tabs = await many(TABS, 10, async (n) => {
    const tab = await openTab(homing.nodes[0], token, { conversation: `c${n}` });
    scope.defer(() => tab.close());
    tab.on((method, params) => {
      if (method === 'command.gap') inGaps += params.bytes;
      if (method !== 'command.output') return;
      lastMs = performance.now();
      beganMs ??= lastMs;
      bytes += params.data.length;
      if (bytes + inGaps >= TOTAL * BYTES) finish();
    });
    return { ...tab, ...(await startProgram(tab, ['perl', '-e', PROGRAM])) };
  });
  const pids = [homing.nodes[0].pid, homing.workers[0].pid, redis.pid];
  return async () => {
    bytes = 0;
    inGaps = 0;
    beganMs = undefined;
    const all = new Promise((resolve) => {
      finish = resolve;
    });
    const before = pids.map(cpuMs);
    await Promise.all(tabs.map(({ tell }) => tell(LINES_EACH)));
    await Promise.race([all, ...tabs.map(({ failed }) => failed)]);
    const lines = bytes / BYTES;
    const micros = pids.map((pid, n) => ((cpuMs(pid) - before[n]) * 1_000) / lines);
    for (const { acknowledge } of tabs) acknowledge();
    return {
      perSecond: lines / ((lastMs - beganMs) / 1_000),
      lost: inGaps / BYTES,
      micros: { node: micros[0], worker: micros[1], redis: micros[2] },
    };
  };
}

async function bareRelay(scope) {
  const started = await relay.start(scope, await startRedis(scope));
  let got;
  let beganMs;
  let lastMs;
  await many(TABS, 10, (n) =>
    started.open(n, () => {
      lastMs = performance.now();
      beganMs ??= lastMs;
      got += 1;
    }),
  );
  const publish = await started.publisher();
  return async () => {
    got = 0;
    beganMs = undefined;
    const published = publish(TOTAL, BYTES);
    while (got < TOTAL) await pause(20);
    await published;
    return { perSecond: got / ((lastMs - beganMs) / 1_000) };
  };
}

export default {
  id: '1b',
  title: 'lines of 256 B printed by 40 programs for 40 tabs, limits lifted: per second',
  pairs: PAIRS,
  async run(pairs) {
    const figures = await inTurns(pairs, { homing: ours, relay: bareRelay });
    const of = (name) => figures[name].map(({ perSecond }) => perSecond);
    const ratio = ratios(of('homing'), of('relay'));
    const lost = Math.max(...figures.homing.map((figure) => figure.lost));
    const cpu = (name) => short(range(figures.homing.map(({ micros }) => micros[name])).median);
    const verdict = {
      work: 'lines of 256 B printed by 40 programs as fast as they can, for 40 tabs, limits lifted',
      goal: `≥ ${GOAL} × bare relay fed line by line`,
      measured: `${spread(ratio)} ×; ${spread(range(of('homing')))} lines a second${lost === 0 ? ', none lost' : `, up to ${short(lost)} in gaps`}; µs of CPU a line: node ${cpu('node')}, worker ${cpu('worker')}, Redis ${cpu('redis')}`,
      reached: ratio.median >= GOAL,
    };
    return { figures, ratio, verdicts: [verdict] };
  },
};
