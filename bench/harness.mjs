/**
 * What every row needs: a Redis of its own, a Homing of real processes, pairs of runs that alternate, and figures with
 * their spread. Absolute figures of a shared machine mean little, so a result is a ratio against a yardstick that ran in
 * the same minute.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { WebSocket } from 'ws';

export const ROOT = fileURLToPath(new URL('../', import.meta.url));
const MAIN = join(ROOT, 'dist/cli/main.js');
/** `--small` sees whether rows work, with a tenth of everything; its figures mean nothing and are not kept. */
export const SMALL = process.argv.includes('--small');
export const sized = (count) => (SMALL ? Math.ceil(count / 10) : count);

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

const openScopes = new Set();

/** Everything started is ended by `close`, in reverse order. */
export function createScope() {
  const closers = [];
  const scope = {
    defer: (close) => closers.push(close),
    async close() {
      openScopes.delete(scope);
      for (const close of closers.splice(0).reverse()) await close();
    },
  };
  openScopes.add(scope);
  return scope;
}

/** What was started also ends when the bench is told to. */
export function endOnSignals() {
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, async () => {
      for (const scope of openScopes) await scope.close().catch(console.error);
      process.exit(1);
    });
  }
}

/** A Redis as the product starts one: append-only, noeviction. */
export async function startRedis(scope) {
  const port = await freePort();
  const dir = mkdtempSync(join(tmpdir(), 'homing-bench-'));
  const options = ['--port', port, '--dir', dir, '--appendonly', 'yes', '--appendfsync', 'everysec', '--save', ''];
  const limits = ['--maxmemory-policy', 'noeviction', '--client-output-buffer-limit', 'pubsub 256mb 128mb 60'];
  const child = spawn('redis-server', [...options, ...limits].map(String), { stdio: ['ignore', 'pipe', 'inherit'] });
  scope.defer(async () => {
    child.kill('SIGKILL');
    await once(child, 'exit');
    rmSync(dir, { recursive: true, force: true });
  });
  for await (const line of createInterface({ input: child.stdout })) if (line.includes('Ready to accept')) break;
  child.stdout.resume();
  return { url: `redis://127.0.0.1:${port}`, pid: child.pid };
}

/** A Redis Cluster of masters alone, who are told of each other in their files instead of meeting. */
export async function startCluster(scope, masters) {
  const dir = mkdtempSync(join(tmpdir(), 'homing-bench-'));
  scope.defer(() => rmSync(dir, { recursive: true, force: true }));
  const members = [];
  for (let n = 0; n < masters; n += 1)
    members.push({ id: randomBytes(20).toString('hex'), port: await freePort(), bus: await freePort() });
  const slot = (n) => Math.floor((16_384 * n) / masters);
  const pids = [];
  for (const [n, { port, bus }] of members.entries()) {
    const own = join(dir, String(n));
    mkdirSync(own);
    const table = members.map(
      (member, other) =>
        `${member.id} 127.0.0.1:${member.port}@${member.bus} ${other === n ? 'myself,' : ''}master - 0 0 ${other + 1} connected ${slot(other)}-${slot(other + 1) - 1}`,
    );
    writeFileSync(join(own, 'nodes.conf'), `${table.join('\n')}\nvars currentEpoch ${masters} lastVoteEpoch 0\n`);
    const options = ['--port', port, '--cluster-port', bus, '--dir', own, '--cluster-enabled', 'yes', '--save', ''];
    const log = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--maxmemory-policy', 'noeviction'];
    const child = spawn('redis-server', [...options, ...log].map(String), { stdio: ['ignore', 'ignore', 'inherit'] });
    scope.defer(async () => {
      child.kill('SIGKILL');
      await once(child, 'exit');
    });
    pids.push(child.pid);
  }
  for (const { port } of members) {
    const asking = new Redis(port, '127.0.0.1', { retryStrategy: () => 50, maxRetriesPerRequest: null });
    asking.on('error', () => {});
    while (!(await asking.cluster('INFO')).includes('cluster_state:ok')) await pause(50);
    asking.disconnect();
  }
  return { url: `redis-cluster://${members.map(({ port }) => `127.0.0.1:${port}`).join(',')}`, pids };
}

/** A Node process of the bench that says one JSON line when it is ready. */
export async function startPart(scope, name, env) {
  const child = spawn(process.execPath, [join(ROOT, 'bench/parts', name)], {
    stdio: ['pipe', 'pipe', 'inherit', 'ipc'],
    env: { PATH: process.env.PATH, ...env },
  });
  scope.defer(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  const [first] = await once(createInterface({ input: child.stdout }), 'line');
  child.stdout.resume();
  return { child, pid: child.pid, ready: JSON.parse(first) };
}

/** Nodes and workers as shipped, each its own process. */
export async function startHoming(scope, { redis, nodes = 1, workers = 0, env = {} }) {
  const secret = randomBytes(32).toString('hex');
  const dir = mkdtempSync(join(tmpdir(), 'homing-bench-'));
  scope.defer(() => rmSync(dir, { recursive: true, force: true }));
  const settings = {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    HOMING_REDIS_URL: redis.url,
    HOMING_JWT_SECRET: secret,
    HOMING_PORT: '0',
    HOMING_OPS_PORT: '0',
    HOMING_DATA_DIR: dir,
    HOMING_LOG_LEVEL: 'error',
    HOMING_PREFIX: `b${randomBytes(4).toString('hex')}`,
    ...env,
  };
  const start = async (role) => {
    const child = spawn(process.execPath, [MAIN, role], { env: settings, stdio: ['pipe', 'pipe', 'inherit'] });
    scope.defer(async () => {
      if (child.signalCode !== null || child.exitCode !== null) return;
      child.kill('SIGKILL');
      await once(child, 'exit');
    });
    for await (const line of createInterface({ input: child.stdout })) {
      const event = line.startsWith('{') ? JSON.parse(line) : {};
      if (event.event === 'ready' || event.url !== undefined) {
        child.stdout.resume();
        return { ...event, pid: child.pid, kill: () => child.kill('SIGKILL') };
      }
    }
    throw new Error(`the ${role} ended before it was ready`);
  };
  const started = { nodes: [], workers: [], prefix: settings.HOMING_PREFIX, dir };
  for (let i = 0; i < nodes; i += 1) started.nodes.push(await start('gateway'));
  for (let i = 0; i < workers; i += 1) started.workers.push(await start('worker'));
  started.token = async (claims = {}) => {
    const { SignJWT } = await import('jose');
    const jwt = new SignJWT({ scope: 'read run kill', ...claims }).setProtectedHeader({ alg: 'HS256' });
    const key = new TextEncoder().encode(secret);
    return jwt.setSubject('bench').setIssuedAt().setExpirationTime('2h').sign(key);
  };
  return started;
}

/** A tab that speaks the protocol and counts; `onEntry(method, params)` sees every notification. */
export async function openTab(node, token, { conversation = 'bench', batch = true, onFrame, ack = true } = {}) {
  const url = `${node.url.replace('http', 'ws')}/v1/ws`;
  const socket = new WebSocket(url, ['homing.v1'], {
    perMessageDeflate: false,
    maxPayload: 64 * 1024 * 1024,
    headers: { authorization: `Bearer ${token}` },
  });
  await once(socket, 'open');
  let id = 0;
  const waiting = new Map();
  const listeners = new Set();
  const cursors = {};
  let acking;
  const handle = (message) => {
    if (message.id !== undefined) {
      const { resolve, reject } = waiting.get(message.id);
      waiting.delete(message.id);
      if (message.error) reject(new Error(JSON.stringify(message.error)));
      else resolve(message.result);
      return;
    }
    if (ack && message.params.seq !== undefined) {
      cursors[message.params.commandId] = message.params.seq;
      acking ??= setTimeout(() => {
        acking = undefined;
        socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'output.ack', params: { cursors } }));
        for (const key of Object.keys(cursors)) delete cursors[key];
      }, 1_000);
    }
    for (const listener of listeners) listener(message.method, message.params);
  };
  socket.on('message', (data) => {
    if (onFrame?.(data)) return;
    const value = JSON.parse(data);
    if (Array.isArray(value)) for (const message of value) handle(message);
    else handle(value);
  });
  const rpc = (method, params) =>
    new Promise((resolve, reject) => {
      id += 1;
      waiting.set(id, { resolve, reject });
      socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    });
  const session = await rpc('session.open', { conversation, batch });
  return {
    session,
    rpc,
    socket,
    on: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close() {
      clearTimeout(acking);
      socket.terminate();
    },
  };
}

/** CPU time of a process so far, ms. */
export function cpuMs(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** Resident memory, bytes. */
export function rssBytes(pid) {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
}

export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
export const median = (values) => quantile(values, 0.5);

/**
 * Runs ours and the yardsticks in turn, `pairs` times.
 * @returns for each name its figures in order
 */
export async function alternate(pairs, runs) {
  const figures = Object.fromEntries(Object.keys(runs).map((name) => [name, []]));
  for (let pair = 0; pair < pairs; pair += 1) {
    for (const [name, run] of Object.entries(runs)) figures[name].push(await run());
  }
  return figures;
}

/** Does `each` for 0 … count - 1, `atOnce` at a time. @returns what they gave, in order */
export async function many(count, atOnce, each) {
  const results = new Array(count);
  let next = 0;
  const lane = async () => {
    while (next < count) {
      const n = next;
      next += 1;
      results[n] = await each(n);
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, count) }, lane));
  return results;
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A connection to ask Redis itself: its memory, and calls by name since it began. */
export function askRedis(scope, url) {
  const redis = new Redis(url);
  scope.defer(() => redis.disconnect());
  return {
    redis,
    usedBytes: async () => Number(/used_memory:(\d+)/.exec(await redis.info('memory'))[1]),
    /** What clients asked for, without what scripts called inside. */
    async calls() {
      const said = await redis.info('commandstats');
      return Object.fromEntries(
        [...said.matchAll(/cmdstat_(\S+?):calls=(\d+)/g)].map(([, name, n]) => [name, Number(n)]),
      );
    },
  };
}

/** How a figure is written in the table: three digits that count, no more. */
export function short(value) {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(Math.abs(value) < 1 ? 2 : 3)));
}
export const spread = ({ median: middle, low, high }) => `${short(middle)} (${short(low)}–${short(high)})`;
/** Median and spread of figures that have no yardstick. */
export const range = (values) => ({ median: median(values), low: Math.min(...values), high: Math.max(...values) });

/** Ratio of each pair, its median and its spread. */
export function ratios(ours, theirs) {
  return range(ours.map((value, index) => value / theirs[index]));
}
