/**
 * Row 7: what a cluster costs that waits: 5,000 attached tabs in 1,000 conversations, 500 running silent commands. Calls of
 * clients to Redis and CPU of the node in a second, and which calls they are.
 */
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { scriptText } from '../dist/redis/scripts.js';
import {
  alternate,
  askRedis,
  cpuMs,
  many,
  mapped,
  median,
  ONCE,
  openTab,
  pause,
  ROOT,
  range,
  short,
  sized,
  spread,
  startHoming,
  startRedis,
} from './harness.mjs';

const TABS = sized(5_000);
const CONVERSATIONS = sized(1_000);
const COMMANDS = sized(500);
/** A whole lease, so that what is done once in each is in it. */
const WINDOW_MS = 16_000;
const CALLS_LIMIT = 700;
const CPU_LIMIT = 4;

/** Names of scripts by their digests, as Redis hears of them. */
function scriptNames() {
  const names = new Map();
  for (const file of readdirSync(join(ROOT, 'dist/redis/scripts'))) {
    if (file.startsWith('_') || !file.endsWith('.lua')) continue;
    const name = file.slice(0, -'.lua'.length);
    names.set(createHash('sha1').update(scriptText(name)).digest('hex'), name);
  }
  return names;
}

/**
 * What clients call, by name; what scripts call inside is left out. Redis tells of each call, which is a small part of its own CPU
 * and none of the node's.
 * @param during what is done meanwhile
 */
async function heardCalls({ redis }, during) {
  const names = scriptNames();
  const calls = {};
  const monitor = await redis.monitor();
  monitor.on('monitor', (_time, args, source) => {
    if (source === 'lua') return;
    const word = args[0].toLowerCase();
    const script = word === 'evalsha' ? `script ${names.get(args[1]) ?? 'of BullMQ'}` : undefined;
    calls[script ?? word] = (calls[script ?? word] ?? 0) + 1;
  });
  const beganMs = performance.now();
  await during();
  const seconds = (performance.now() - beganMs) / 1_000;
  monitor.disconnect();
  return Object.fromEntries(
    Object.entries(calls)
      .map(([name, count]) => [name, count / seconds])
      .sort(([, a], [, b]) => b - a),
  );
}

async function ours(scope) {
  const redis = await startRedis(scope);
  const asking = askRedis(scope, redis.url);
  const env = { HOMING_CONCURRENCY: String(COMMANDS), HOMING_GRACE_MS: '600000' };
  const homing = await startHoming(scope, { redis, nodes: 1, workers: 1, env });
  const token = await homing.token();
  const tabs = await many(TABS, 50, (n) => openTab(homing.nodes[0], token, { conversation: `c${n % CONVERSATIONS}` }));
  for (const tab of tabs) scope.defer(() => tab.close());
  await many(COMMANDS, 16, async (n) => {
    const started = new Promise((resolve) => {
      const stop = tabs[n].on((method) => {
        if (method !== 'command.started') return;
        stop();
        resolve();
      });
    });
    await tabs[n].rpc('command.run', { argv: ['sleep', '600'] });
    await started;
  });
  // The acknowledgements of what was started, and whatever a start leaves to do.
  await pause(3_000);
  const pids = { node: homing.nodes[0].pid, worker: homing.workers[0].pid, redis: redis.pid };
  let percent;
  const calls = await heardCalls(asking, async () => {
    const before = mapped(pids, cpuMs);
    await pause(WINDOW_MS);
    percent = mapped(pids, (pid, name) => (cpuMs(pid) - before[name]) / (WINDOW_MS / 100));
  });
  return { calls, perSecond: Object.values(calls).reduce((sum, count) => sum + count, 0), percent };
}

export default {
  id: '7',
  title: '5,000 idle tabs in 1,000 conversations, 500 silent commands: calls to Redis a second, CPU',
  pairs: ONCE,
  async run(pairs) {
    const figures = await alternate(pairs, { homing: ours });
    const perSecond = range(figures.homing.map((figure) => figure.perSecond));
    const percent = (name) => range(figures.homing.map((figure) => figure.percent[name]));
    const most = Object.entries(figures.homing[0].calls).slice(0, 4);
    const verdicts = [
      {
        work: '5,000 idle tabs in 1,000 conversations, 500 silent commands: calls of clients to Redis',
        goal: `< ${CALLS_LIMIT} a second`,
        measured: `${spread(perSecond)} a second, of them ${most.map(([name, count]) => `${name} ${short(count)}`).join(', ')}`,
        reached: perSecond.median < CALLS_LIMIT,
      },
      {
        work: 'the same, CPU of the node',
        goal: `< ${CPU_LIMIT} % of a core`,
        measured: `${spread(percent('node'))} %; worker ${short(percent('worker').median)}, Redis ${short(percent('redis').median)}`,
        reached: median(figures.homing.map((figure) => figure.percent.node)) < CPU_LIMIT,
      },
    ];
    return { figures, verdicts };
  },
};
