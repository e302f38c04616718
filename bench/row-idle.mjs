/** Row 6: what a node needs for an attached tab that does nothing. */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { alternate, createScope, openTab, ratios, rssBytes, startHoming, startPart, startRedis } from './harness.mjs';

const TABS = 5_000;
const AT_ONCE = 50;
const WARM = 200;
const LIMIT_KB = 14;

const settle = () => new Promise((resolve) => setTimeout(resolve, 3_000));

/** @param open makes one connection @returns kB for each after the first, which also pay for what is made once */
async function each(pid, open) {
  const many = async (from, to) => {
    for (let n = from; n < to; n += AT_ONCE) {
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, to - n) }, (_, i) => open(n + i)));
    }
  };
  await many(0, WARM);
  await settle();
  const before = rssBytes(pid);
  await many(WARM, WARM + TABS);
  await settle();
  return (rssBytes(pid) - before) / TABS / 1_000;
}

async function ours() {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const homing = await startHoming(scope, { redis, nodes: 1, env: { HOMING_GRACE_MS: '600000' } });
    const token = await homing.token();
    return await each(homing.nodes[0].pid, async (n) => {
      const tab = await openTab(homing.nodes[0], token, { conversation: `c${n % 1_000}` });
      scope.defer(() => tab.close());
    });
  } finally {
    await scope.close();
  }
}

async function bareRelay() {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const relay = await startPart(scope, 'relay.mjs', { REDIS_URL: redis.url });
    return await each(relay.pid, async (n) => {
      const socket = new WebSocket(`${relay.ready.url}/?channel={t${n}}:c`, { perMessageDeflate: false });
      scope.defer(() => socket.terminate());
      await once(socket, 'message');
    });
  } finally {
    await scope.close();
  }
}

export default {
  id: '6',
  title: 'memory of a node for an idle tab, 5,000 tabs: kB',
  goal: `at most ${LIMIT_KB} kB`,
  async run(pairs) {
    const figures = await alternate(Math.min(pairs, 2), { homing: ours, relay: bareRelay });
    const ratio = ratios(figures.homing, figures.relay);
    return { figures, ratio, reached: Math.max(...figures.homing) <= LIMIT_KB };
  },
};
