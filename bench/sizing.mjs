/**
 * `node bench/sizing.mjs`: what one more of each thing costs, in memory and CPU time, for docs/operating.md. Unlike speed, these
 * figures hardly depend on what else a machine does.
 */
import { once } from 'node:events';
import { cpus } from 'node:os';
import { Redis } from 'ioredis';
import { cpuMs, createRunner, createScope, openTab, rssBytes, startHoming, startRedis } from './harness.mjs';

const TABS = 3_000;
const COMMANDS = 400;
const FLOOD_MIB = 64;
const KIB = 1_024;

const scope = createScope();
const settle = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
try {
  const redis = await startRedis(scope);
  const homing = await startHoming(scope, {
    redis,
    nodes: 1,
    workers: 1,
    env: { HOMING_OUTPUT_BYTES_PER_SEC: String(1024 ** 3), HOMING_GRACE_MS: '600000' },
  });
  const [node] = homing.nodes;
  const [worker] = homing.workers;
  const asking = new Redis(redis.url);
  scope.defer(() => asking.disconnect());
  const redisBytes = async () => Number(/used_memory:(\d+)/.exec(await asking.info('memory'))[1]);
  const token = await homing.token();
  const all = { node: node.pid, worker: worker.pid, redis: redis.pid };
  const cpu = () => Object.fromEntries(Object.entries(all).map(([name, pid]) => [name, Math.round(cpuMs(pid))]));
  const since = (before) => Object.fromEntries(Object.entries(cpu()).map(([name, ms]) => [name, ms - before[name]]));
  const say = (what, figures) => console.log(`${what}: ${JSON.stringify(figures)}`);
  console.log(`${cpus().length} cores (${cpus()[0]?.model}), Node ${process.version}`);

  await settle(2_000);
  say('idle, MiB resident', {
    node: Math.round(rssBytes(node.pid) / KIB ** 2),
    worker: Math.round(rssBytes(worker.pid) / KIB ** 2),
    redis: Math.round((await redisBytes()) / KIB ** 2),
  });
  const idle = cpu();
  await settle(10_000);
  say('idle, CPU ms a second', Object.fromEntries(Object.entries(since(idle)).map(([name, ms]) => [name, ms / 10])));

  // One more tab, attached and idle.
  const before = { node: rssBytes(node.pid), redis: await redisBytes() };
  const opening = cpu();
  const tabs = [];
  for (let n = 0; n < TABS; n += 50) {
    tabs.push(
      ...(await Promise.all(
        Array.from({ length: 50 }, (_, i) => openTab(node, token, { conversation: `tab-${n + i}` })),
      )),
    );
  }
  const opened = since(opening);
  await settle(1_000);
  say(`each of ${TABS} tabs`, {
    nodeKiB: Math.round((rssBytes(node.pid) - before.node) / TABS / KIB),
    redisKiB: Number((((await redisBytes()) - before.redis) / TABS / KIB).toFixed(1)),
    openingNodeMs: Number((opened.node / TABS).toFixed(2)),
    openingRedisMs: Number((opened.redis / TABS).toFixed(2)),
  });
  const waiting = cpu();
  await settle(10_000);
  say(
    `${TABS} idle tabs, CPU ms a second`,
    Object.fromEntries(Object.entries(since(waiting)).map(([name, ms]) => [name, ms / 10])),
  );

  // One more command, run to its end and kept.
  const [tab] = tabs;
  const run = createRunner(tab);
  await run({ argv: ['true'] });
  const kept = await redisBytes();
  const running = cpu();
  for (let n = 0; n < COMMANDS; n += 8)
    await Promise.all(Array.from({ length: 8 }, () => run({ argv: ['echo', 'x'.repeat(200)] })));
  const ran = since(running);
  say(
    `each of ${COMMANDS} commands (echo), CPU ms`,
    Object.fromEntries(Object.entries(ran).map(([name, ms]) => [name, Number((ms / COMMANDS).toFixed(2))])),
  );
  say('each ended command kept', { redisKiB: Number((((await redisBytes()) - kept) / COMMANDS / KIB).toFixed(1)) });

  // Output, as fast as it goes.
  const flood = cpu();
  const beganMs = performance.now();
  await run({ argv: ['sh', '-c', `head -c ${FLOOD_MIB * KIB ** 2} /dev/zero | tr '\\0' x`] });
  const flooded = since(flood);
  say(
    `each MiB of output (${FLOOD_MIB} MiB in ${Math.round(performance.now() - beganMs)} ms), CPU ms`,
    Object.fromEntries(Object.entries(flooded).map(([name, ms]) => [name, Number((ms / FLOOD_MIB).toFixed(2))])),
  );
  say('after a flood, MiB resident', {
    node: Math.round(rssBytes(node.pid) / KIB ** 2),
    worker: Math.round(rssBytes(worker.pid) / KIB ** 2),
  });
  for (const one of tabs) one.close();
  await Promise.all(tabs.map(({ socket }) => (socket.readyState === 3 ? undefined : once(socket, 'close'))));
} finally {
  await scope.close();
}
process.exit(0);
