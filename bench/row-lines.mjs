/**
 * Row 1b: 40 programs print lines of 256 B as fast as they can for 40 tabs, through worker and node, limits lifted: lines a
 * second from the first to the last that arrives. Against the bare relay, which is handed the lines one by one.
 */
import { relay } from './contenders.mjs';
import {
  alternate,
  cpuMs,
  createScope,
  many,
  openTab,
  pause,
  range,
  ratios,
  short,
  sized,
  spread,
  startHoming,
  startRedis,
} from './harness.mjs';

const TABS = 40;
const BYTES = 256;
const LINES_EACH = sized(20_000);
const RELAY_TOTAL = sized(120_000);
const GOAL = 3;

async function ours() {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const lifted = {
      HOMING_CONCURRENCY: String(TABS),
      HOMING_OUTPUT_BYTES_PER_SEC: String(8 * 1024 ** 3),
      HOMING_LOG_LAST_BYTES: String(64 * 1024 ** 2),
    };
    const homing = await startHoming(scope, { redis, nodes: 1, workers: 1, env: lifted });
    const token = await homing.token();
    let bytes = 0;
    let beganMs;
    let lastMs;
    const tabs = await many(TABS, 10, (n) => openTab(homing.nodes[0], token, { conversation: `c${n}` }));
    const pids = [homing.nodes[0].pid, homing.workers[0].pid, redis.pid];
    const before = pids.map(cpuMs);
    await Promise.all(
      tabs.map((tab) => {
        scope.defer(() => tab.close());
        const ended = new Promise((resolve) => {
          tab.on((method, params) => {
            if (method === 'command.ended') resolve();
            if (method !== 'command.output') return;
            lastMs = performance.now();
            beganMs ??= lastMs;
            bytes += params.data.length;
          });
        });
        const script = `yes ${'x'.repeat(BYTES - 1)} | head -n ${LINES_EACH}`;
        return tab.rpc('command.run', { script }).then(() => ended);
      }),
    );
    const lines = bytes / BYTES;
    const micros = pids.map((pid, n) => ((cpuMs(pid) - before[n]) * 1_000) / lines);
    return {
      perSecond: lines / ((lastMs - beganMs) / 1_000),
      lost: TABS * LINES_EACH - lines,
      micros: { node: micros[0], worker: micros[1], redis: micros[2] },
    };
  } finally {
    await scope.close();
  }
}

async function bareRelay() {
  const scope = createScope();
  try {
    const started = await relay.start(scope, await startRedis(scope));
    let got = 0;
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
    publish(RELAY_TOTAL, BYTES);
    while (got < RELAY_TOTAL) await pause(20);
    return { perSecond: got / ((lastMs - beganMs) / 1_000) };
  } finally {
    await scope.close();
  }
}

export default {
  id: '1b',
  title: 'lines of 256 B printed by 40 programs for 40 tabs, limits lifted: per second',
  pairs: 2,
  async run(pairs) {
    const figures = await alternate(pairs, { homing: ours, relay: bareRelay });
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
