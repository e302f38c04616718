/**
 * Row 8: the tabs of a node that was killed come back to another one, each with 1 MB to catch up: time until all of them are
 * live again and have everything. Against bare sockets that come back to a process that reads the same bytes from Redis.
 */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { createKeys } from '../dist/redis/keys.js';
import {
  cpuMs,
  inScope,
  inTurns,
  many,
  mapped,
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
  untilCalm,
} from './harness.mjs';

/** The whole table makes do with fewer, which come back as often. */
const ALONE = sized(250);
const IN_TABLE = sized(100);
const ENTRIES = 250;
const ENTRY_BYTES = 4_000;
const GOAL = 2;

/** One tab that comes back. It looks at frames only as far as it has to, so that the client is not what is measured. */
async function comeBack(node, token, { session, commandId }) {
  const socket = new WebSocket(`${node.url.replace('http', 'ws')}/v1/ws`, ['homing.v1'], {
    perMessageDeflate: false,
    headers: { authorization: `Bearer ${token}` },
  });
  await once(socket, 'open');
  const { sessionId, resumeToken } = session;
  const params = { sessionId, resumeToken, batch: true, cursors: { [commandId]: 0 } };
  socket.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.resume', params }));
  const last = `"seq":${ENTRIES},`;
  await new Promise((resolve, reject) => {
    socket.once('close', () => reject(new Error('the node closed a socket')));
    socket.on('message', (data) => {
      // Of a frame's last entry only the beginning tells its seq; the rest is output.
      if (data.lastIndexOf(last) >= 0 && data.lastIndexOf('command.output') >= 0) resolve();
      else if (data.length < 1_000 && data.includes('"error"')) reject(new Error(String(data)));
    });
  });
  return socket;
}

/**
 * Logs written once, to which tabs come back as often as asked: each time to a process that has just begun and knows none of them,
 * while the one that had them is dead. So every time all is read from Redis anew.
 */
async function setUp(scope, count) {
  const redis = await startRedis(scope);
  // Nobody is to be judged dead meanwhile; coming back does not wait for that.
  const env = { HOMING_GRACE_MS: '600000', HOMING_LEASE_MS: '600000' };
  const homing = await startHoming(scope, { redis, nodes: 1, env });
  const [first] = homing.nodes;
  const token = await homing.token();
  const tabs = await many(count, 20, async (n) => {
    const tab = await openTab(first, token, { conversation: `c${n}`, ack: false });
    const { commandId } = await tab.rpc('command.run', { argv: ['true'] });
    return { session: tab.session, commandId, close: tab.close };
  });
  first.kill();
  for (const tab of tabs) tab.close();
  const publisher = await startPart(scope, 'publisher.mjs', { REDIS_URL: redis.url, PREFIX: homing.prefix });
  const commands = tabs.map(({ session, commandId }) => ({ commandId, owner: session.sessionId }));
  await publisher.tell({ commands, total: count * ENTRIES, bytes: ENTRY_BYTES, batch: 10 });

  const ours = () =>
    inScope(async (own) => {
      const node = await homing.startNode(own);
      await untilCalm(scope, own);
      const before = cpuMs(node.pid);
      const clientBefore = process.cpuUsage();
      const beganMs = performance.now();
      const sockets = await Promise.all(tabs.map((tab) => comeBack(node, token, tab)));
      const seconds = (performance.now() - beganMs) / 1_000;
      const { user, system } = process.cpuUsage(clientBefore);
      const nodeCpuSeconds = (cpuMs(node.pid) - before) / 1_000;
      node.kill();
      for (const socket of sockets) socket.terminate();
      return { seconds, nodeCpuSeconds, clientCpuSeconds: (user + system) / 1e6 };
    });

  const { first: streamOf } = createKeys(homing.prefix);
  const bare = (send) => () =>
    inScope(async (own) => {
      const relay = await startPart(own, 'reading-relay.mjs', { REDIS_URL: redis.url, SEND: send ? '1' : '0' });
      await untilCalm(scope, own);
      const before = cpuMs(relay.pid);
      const beganMs = performance.now();
      await Promise.all(
        tabs.map(async ({ commandId }, n) => {
          const query = new URLSearchParams({ channel: `{t${n}}:c`, stream: streamOf(commandId) });
          const socket = new WebSocket(`${relay.ready.url}/?${query}`, { perMessageDeflate: false });
          own.defer(() => socket.terminate());
          await new Promise((resolve) => socket.on('message', (data) => data.length === 4 && resolve()));
        }),
      );
      return { seconds: (performance.now() - beganMs) / 1_000, nodeCpuSeconds: (cpuMs(relay.pid) - before) / 1_000 };
    });
  return { homing: ours, read: bare(false), sent: bare(true) };
}

export default {
  id: '8',
  title: 'tabs of a killed node come back with 1 MB each to catch up: seconds until all have everything',
  pairs: PAIRS,
  async run(pairs, { alone }) {
    const count = alone ? ALONE : IN_TABLE;
    const figures = await inScope(async (scope) => {
      const measures = await setUp(scope, count);
      return inTurns(
        pairs,
        mapped(measures, (measure) => () => measure),
      );
    });
    const of = (name) => figures[name].map(({ seconds }) => seconds);
    const ratio = ratios(of('homing'), of('read'));
    const toSent = ratios(of('homing'), of('sent'));
    const verdict = {
      work: `${count.toLocaleString('en')} tabs of a killed node come back with 1 MB each to catch up`,
      goal: `≤ ${GOAL} × a bare reconnect and reading the same bytes from Redis`,
      measured: `${spread(ratio)} ×; ${spread(range(of('homing')))} s, of it CPU of the node ${short(range(figures.homing.map((figure) => figure.nodeCpuSeconds)).median)} s; ${spread(toSent)} × where the bytes are also sent`,
      reached: ratio.median <= GOAL,
    };
    return { count, figures, ratio: { ratio, toSent }, verdicts: [verdict] };
  },
};
