/** Row 4: one command prints as fast as it can for one tab that reads: MB/s at the tab with limits lifted. */
import { once } from 'node:events';
import { Redis } from 'ioredis';
import { WebSocket } from 'ws';
import {
  cpuMs,
  inTurns,
  openTab,
  PAIRS,
  range,
  ratios,
  sized,
  spread,
  startHoming,
  startPart,
  startRedis,
} from './harness.mjs';

const BYTES = sized(256) * 1024 * 1024;
const MESSAGE_BYTES = 64 * 1024;

async function ours(scope) {
  const redis = await startRedis(scope);
  const lifted = {
    HOMING_OUTPUT_BYTES_PER_SEC: String(8 * 1024 ** 3),
    HOMING_LOG_LAST_BYTES: String(64 * 1024 ** 2),
  };
  const homing = await startHoming(scope, { redis, nodes: 1, workers: 1, env: lifted });
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
    await tab.rpc('command.run', { argv: ['/bin/sh', '-c', `yes ${'x'.repeat(62)} | head -c ${BYTES}`] });
    await over;
    const seconds = (performance.now() - startedMs) / 1_000;
    const cpu = pids.map((pid, n) => Math.round(cpuMs(pid) - before[n]));
    return {
      perSecond: got / 1e6 / seconds,
      share: got / BYTES,
      cpuMs: { node: cpu[0], worker: cpu[1], redis: cpu[2] },
    };
  };
}

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
  title: 'one command printing 256 MB for one tab, limits lifted: MB/s of output at the tab',
  pairs: PAIRS,
  async run(pairs) {
    const figures = await inTurns(pairs, { homing: ours, relay: bareRelay });
    const perSecond = (name) => figures[name].map((figure) => figure.perSecond);
    const ratio = ratios(perSecond('homing'), perSecond('relay'));
    const verdict = {
      work: 'one command printing 256 MB for one tab, limits lifted, MB/s at the tab',
      goal: '≥ 0.6 × bare relay with 64 KiB messages',
      measured: `${spread(ratio)} ×; ${spread(range(perSecond('homing')))} MB/s`,
      reached: ratio.median >= 0.6,
    };
    return { figures, ratio, verdicts: [verdict] };
  },
};
