/**
 * Ten thousand connections that never say who they are, at a real node: half of them ask for a WebSocket and then say nothing, half do
 * not even send a request. Who has a session must not notice, and the memory they cost is bounded and given back.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { until } from '../support/wait.js';

const STRANGERS = Number(process.env.HOMING_TEST_STRANGERS ?? 10_000);

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster({ nodes: 1, workers: 1 });
});
afterAll(() => cluster?.[Symbol.asyncDispose]());

const residentMb = (pid: number) =>
  Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024);
const descriptors = (pid: number) => readdirSync(`/proc/${pid}/fd`).length;
const quantile = (values: number[], share: number) => {
  const sorted = [...values].sort((a, b) => a - b);
  return Number((sorted[Math.floor((sorted.length - 1) * share)] ?? 0).toFixed(1));
};

it('[DE5] strangers by the thousand cost a bounded amount and hold up nobody who has a session', async () => {
  const { url, pid } = cluster.node(0);
  const { hostname, port } = new URL(url);
  await using tab = await cluster.tab(0, { conversation: 'strangers' });
  const took: number[] = [];
  let asking = true;
  const asked = (async () => {
    while (asking) {
      const began = performance.now();
      await tab.rpc('session.touch');
      took.push(performance.now() - began);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  })();
  const quiet = await until('figures of a quiet node', () => took.length > 100 && [...took]);
  const before = residentMb(pid);
  const atFirst = descriptors(pid);

  const upgrade =
    `GET /v1/ws HTTP/1.1\r\nHost: ${hostname}:${port}\r\nOrigin: ${url}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
    'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: homing.v1\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n';
  const said = new Map<string, number>();
  let open = 0;
  let ended = 0;
  let peak = 0;
  let mostOpen = 0;
  const sockets: Socket[] = [];
  const began = performance.now();
  took.length = 0;
  for (let i = 0; i < STRANGERS; i += 1) {
    const socket = connect(Number(port), hostname);
    sockets.push(socket);
    socket.on('connect', () => {
      open += 1;
      if (i % 2 === 0) socket.write(upgrade);
    });
    socket.once('data', (data) => {
      const status = data.toString().slice(9, 12);
      said.set(status, (said.get(status) ?? 0) + 1);
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      ended += 1;
    });
    // As fast as one client can, without running into its own backlog.
    if (i % 200 === 199) {
      await until('these to be connected', () => open + ended >= i - 100, 10_000);
      peak = Math.max(peak, residentMb(pid));
      mostOpen = Math.max(mostOpen, descriptors(pid) - atFirst);
    }
  }
  // Looked at from the node: a handshake that its full backlog dropped is open for the client alone.
  await until('every one to be sent away', () => descriptors(pid) <= atFirst + 5, 60_000, 100);
  const seconds = Math.round((performance.now() - began) / 100) / 10;
  asking = false;
  await asked;
  const after = residentMb(pid);
  console.log(
    JSON.stringify({
      strangers: STRANGERS,
      answers: Object.fromEntries(said),
      mostOpen,
      seconds,
      residentMb: { before, peak, after },
      touchMs: {
        quiet: { p50: quantile(quiet, 0.5), p99: quantile(quiet, 0.99) },
        meanwhile: { p50: quantile(took, 0.5), p99: quantile(took, 0.99), worst: quantile(took, 1) },
      },
    }),
  );
  expect(peak - before).toBeLessThan(250);
  expect(quantile(took, 0.99)).toBeLessThan(1_000);
  expect(await tab.rpc('session.touch')).toEqual({});
  const id = await tab.run({ argv: ['/bin/echo', 'fine'] });
  await tab.ended(id);
  // Both kinds were there: those who were let wait, and, above the bound, those who were not.
  expect(said.get('101')).toBeGreaterThan(0);
  for (const socket of sockets) socket.destroy();
}, 180_000);
