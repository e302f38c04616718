/**
 * Row 4: one command prints as fast as it can for one tab that reads: MB/s at the tab with limits lifted, so that all of it arrives;
 * and with the limits as shipped, where most of it becomes a gap, what it costs.
 */
import { once } from 'node:events';
import { Redis } from 'ioredis';
import { WebSocket } from 'ws';
import {
  cpuMs,
  inTurns,
  median,
  openTab,
  PAIRS,
  range,
  ratios,
  short,
  sized,
  spread,
  startHoming,
  startPart,
  startRedis,
} from './harness.mjs';

const MIB = 1024 * 1024;
const BYTES = sized(64) * MIB;
/** As shipped 32 MiB of it wait and go out at 8 MiB a second, so more than that is needed to see what the rest costs. */
const SHIPPED_BYTES = sized(256) * MIB;
const LIFTED = {
  HOMING_OUTPUT_BYTES_PER_SEC: String(8 * 1024 * MIB),
  HOMING_LOG_LAST_BYTES: String(64 * MIB),
  HOMING_SPOOL_BYTES: String(1024 * MIB),
};
const MESSAGE_BYTES = 64 * 1024;

const ours = (bytes, env) => async (scope) => {
  const redis = await startRedis(scope);
  const homing = await startHoming(scope, { redis, nodes: 1, workers: 1, env });
  const tab = await openTab(homing.nodes[0], await homing.token(), {});
  scope.defer(() => tab.close());
  let got;
  let finish;
  tab.on((method, params) => {
    if (method === 'command.output') got += params.data.length;
    if (method === 'command.ended') finish();
  });
  const pids = [homing.nodes[0].pid, homing.workers[0].pid, redis.pid];
  return async () => {
    got = 0;
    const over = new Promise((resolve) => {
      finish = resolve;
    });
    const before = pids.map(cpuMs);
    const startedMs = performance.now();
    await tab.rpc('command.run', { argv: ['/bin/sh', '-c', `yes ${'x'.repeat(62)} | head -c ${bytes}`] });
    await over;
    const seconds = (performance.now() - startedMs) / 1_000;
    const [node, worker, server] = pids.map((pid, n) => ((cpuMs(pid) - before[n]) / bytes) * (1e9 / 1_000));
    return { perSecond: got / 1e6 / seconds, share: got / bytes, cpuSecondsPerGb: { node, worker, redis: server } };
  };
};

async function bareRelay(scope) {
  const redis = await startRedis(scope);
  // Redis drops a subscriber that is slower than its publisher, and the relay does not come back.
  const settings = new Redis(redis.url);
  await settings.config('SET', 'client-output-buffer-limit', 'pubsub 0 0 0');
  settings.disconnect();
  const relay = await startPart(scope, 'relay.mjs', { REDIS_URL: redis.url });
  const publisher = await startPart(scope, 'relay-publisher.mjs', { REDIS_URL: redis.url });
  const channel = '{t}:c';
  const socket = new WebSocket(`${relay.ready.url}/?channel=${channel}`, { perMessageDeflate: false });
  scope.defer(() => socket.terminate());
  await once(socket, 'message');
  let got;
  let finish;
  socket.on('message', (data) => {
    got += data.length;
    if (got >= BYTES) finish();
  });
  return async () => {
    got = 0;
    const all = new Promise((resolve) => {
      finish = resolve;
    });
    const startedMs = performance.now();
    const message = { channels: [channel], total: BYTES / MESSAGE_BYTES, bytes: MESSAGE_BYTES, window: 64 };
    await Promise.all([publisher.tell(message), all]);
    return { perSecond: got / 1e6 / ((performance.now() - startedMs) / 1_000) };
  };
}

export default {
  id: '4',
  title: 'one command printing 64 MB for one tab, limits lifted: MB/s of output at the tab; CPU as shipped',
  pairs: PAIRS,
  async run(pairs) {
    const figures = await inTurns(pairs, { homing: ours(BYTES, LIFTED), relay: bareRelay });
    const { shipped } = await inTurns(1, { shipped: ours(SHIPPED_BYTES, {}) });
    const perSecond = (name) => figures[name].map((figure) => figure.perSecond);
    const ratio = ratios(perSecond('homing'), perSecond('relay'));
    const cpu = (list) => {
      const of = (name) => short(median(list.map(({ cpuSecondsPerGb }) => cpuSecondsPerGb[name])));
      return `worker ${of('worker')}, Redis ${of('redis')}, node ${of('node')}`;
    };
    const percent = (list) => short(100 * Math.min(...list.map(({ share }) => share)));
    const verdicts = [
      {
        work: 'one command printing 64 MB for one tab, limits lifted, MB/s at the tab',
        goal: '≥ 0.6 × bare relay with 64 KiB messages',
        measured: `${spread(ratio)} ×; ${spread(range(perSecond('homing')))} MB/s, ${percent(figures.homing)} % arrives; seconds of CPU for a GB: ${cpu(figures.homing)}`,
        reached: ratio.median >= 0.6,
      },
      {
        work: 'one command printing 256 MB, limits as shipped: seconds of CPU for a GB',
        goal: 'stated',
        measured: `${cpu(shipped)}; ${percent(shipped)} % arrives, the rest is a gap`,
      },
    ];
    return { figures: { ...figures, shipped }, ratio, verdicts };
  },
};
