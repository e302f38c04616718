/** Row 1a: entries of 256 B handed to the bus by one publisher, unpaced, one node, 40 tabs: delivered per second. */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { alternate, createScope, openTab, ratios, startHoming, startPart, startRedis } from './harness.mjs';

const TABS = 40;
const TOTAL = 120_000;
const BYTES = 256;

async function ours(batch) {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const homing = await startHoming(scope, { redis, nodes: 1 });
    const publisher = await startPart(scope, 'publisher.mjs', { REDIS_URL: redis.url, PREFIX: homing.prefix });
    const token = await homing.token();
    let got = 0;
    let finish;
    const all = new Promise((resolve) => {
      finish = resolve;
    });
    const commands = [];
    for (let n = 0; n < TABS; n += 1) {
      const tab = await openTab(homing.nodes[0], token, { conversation: `c${n}` });
      scope.defer(() => tab.close());
      tab.on((method) => {
        if (method !== 'command.output') return;
        got += 1;
        if (got === TOTAL) finish();
      });
      const { commandId } = await tab.rpc('command.run', { argv: ['true'] });
      commands.push({ commandId, owner: tab.session.sessionId });
    }
    const startedMs = performance.now();
    publisher.child.send({ commands, total: TOTAL, bytes: BYTES, batch });
    await all;
    return TOTAL / ((performance.now() - startedMs) / 1_000);
  } finally {
    await scope.close();
  }
}

async function bareRelay() {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const relay = await startPart(scope, 'relay.mjs', { REDIS_URL: redis.url });
    const publisher = await startPart(scope, 'relay-publisher.mjs', { REDIS_URL: redis.url });
    let got = 0;
    let finish;
    const all = new Promise((resolve) => {
      finish = resolve;
    });
    const channels = [];
    for (let n = 0; n < TABS; n += 1) {
      const channel = `{t${n}}:c`;
      const socket = new WebSocket(`${relay.ready.url}/?channel=${channel}`, { perMessageDeflate: false });
      scope.defer(() => socket.terminate());
      await once(socket, 'message');
      socket.on('message', () => {
        got += 1;
        if (got === TOTAL) finish();
      });
      channels.push(channel);
    }
    const startedMs = performance.now();
    publisher.child.send({ channels, total: TOTAL, bytes: BYTES });
    await all;
    return TOTAL / ((performance.now() - startedMs) / 1_000);
  } finally {
    await scope.close();
  }
}

export default {
  id: '1a',
  title: 'entries of 256 B through one node to 40 tabs, per second',
  goal: 'at least 0.9 x bare relay',
  async run(pairs) {
    const figures = await alternate(pairs, { homing: () => ours(50), relay: bareRelay });
    const ratio = ratios(figures.homing, figures.relay);
    return { figures, unit: 'entries/s', ratio, reached: ratio.median >= 0.9 };
  },
};
