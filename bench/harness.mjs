/**
 * What every row needs: a Redis of its own, a Homing of real processes, contenders that are measured in turns, and figures with
 * their spread. Absolute figures of a shared machine mean little, so a result is a ratio against a yardstick that ran in
 * the same minute.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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
    /** Processes started in it, by which is seen whether it rests. */
    children: [],
    defer: (close) => closers.push(close),
    async close() {
      openScopes.delete(scope);
      for (const close of closers.splice(0).reverse()) await close();
    },
  };
  openScopes.add(scope);
  return scope;
}

/** Gives `work` a scope that is closed when it is done. */
export async function inScope(work) {
  const scope = createScope();
  try {
    return await work(scope);
  } finally {
    await scope.close();
  }
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

/** A child that ends with its scope. */
function startChild(scope, program, args, options) {
  const child = spawn(program, args.map(String), options);
  scope.children.push(child);
  scope.defer(async () => {
    if (!isAlive(child)) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  return child;
}
const isAlive = ({ exitCode, signalCode }) => exitCode === null && signalCode === null;

/** A Redis as the product starts one: append-only, noeviction. */
export async function startRedis(scope) {
  const port = await freePort();
  const dir = mkdtempSync(join(tmpdir(), 'homing-bench-'));
  const options = ['--port', port, '--dir', dir, '--appendonly', 'yes', '--appendfsync', 'everysec', '--save', ''];
  const limits = ['--maxmemory-policy', 'noeviction', '--client-output-buffer-limit', 'pubsub 256mb 128mb 60'];
  scope.defer(() => rmSync(dir, { recursive: true, force: true }));
  const child = startChild(scope, 'redis-server', [...options, ...limits], { stdio: ['ignore', 'pipe', 'inherit'] });
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
    const child = startChild(scope, 'redis-server', [...options, ...log], { stdio: ['ignore', 'ignore', 'inherit'] });
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

/** A Node process of the bench that says one JSON line when it is ready; `tell` resolves when it answers a message. */
export async function startPart(scope, name, env) {
  const child = startChild(scope, process.execPath, [join(ROOT, 'bench/parts', name)], {
    stdio: ['pipe', 'pipe', 'inherit', 'ipc'],
    env: { PATH: process.env.PATH, ...env },
  });
  const [first] = await once(createInterface({ input: child.stdout }), 'line');
  child.stdout.resume();
  const tell = (message) => {
    const answered = once(child, 'message');
    child.send(message);
    return answered;
  };
  return { child, tell, pid: child.pid, ready: JSON.parse(first) };
}

/** Nodes and workers as shipped, each its own process; `startNode` adds one, which ends with the scope it is given. */
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
  const start = async (role, own = scope) => {
    const child = startChild(own, process.execPath, [MAIN, role], {
      env: settings,
      stdio: ['pipe', 'pipe', 'inherit'],
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
  const startNode = (own) => start('gateway', own);
  const started = { nodes: [], workers: [], startNode, prefix: settings.HOMING_PREFIX, dir };
  for (let i = 0; i < nodes; i += 1) started.nodes.push(await startNode());
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
  const acknowledge = () => {
    clearTimeout(acking);
    acking = undefined;
    if (Object.keys(cursors).length === 0) return;
    socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'output.ack', params: { cursors } }));
    for (const key of Object.keys(cursors)) delete cursors[key];
  };
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
      acking ??= setTimeout(acknowledge, 1_000);
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
    /** At once instead of within a second, so that it does not fall into what is measured next. */
    acknowledge,
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

/** @returns runs a command in a tab, and resolves when its end was seen */
export function createRunner(tab) {
  const waiting = new Map();
  const early = new Set();
  tab.on((method, { commandId }) => {
    if (method !== 'command.ended') return;
    if (waiting.has(commandId)) waiting.get(commandId)();
    else early.add(commandId);
  });
  return async (spec) => {
    const { commandId } = await tab.rpc('command.run', spec);
    if (early.delete(commandId)) return;
    await new Promise((resolve) => waiting.set(commandId, resolve));
    waiting.delete(commandId);
  };
}

/**
 * A program of a tab that is started once and told by lines on its stdin what to do.
 * @returns `tell(line)`, and `failed`, which rejects when the program ends
 */
export async function startProgram(tab, argv) {
  let fail;
  const failed = new Promise((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  const started = new Promise((resolve) => {
    tab.on((method, params) => {
      if (method === 'command.started') resolve();
      if (method === 'command.ended') fail(new Error(`a program ended early: ${JSON.stringify(params.outcome)}`));
    });
  });
  const { commandId } = await tab.rpc('command.run', { argv, stdin: 'pipe' });
  await Promise.race([started, failed]);
  let written = 0;
  const tell = (line) => {
    const offset = written;
    const data = `${line}\n`;
    written += data.length;
    return tab.rpc('command.write', { commandId, offset, data });
  };
  return { tell, failed };
}

/** CPU time of a process so far, ms: of its threads, since that of the whole is told in steps of 10 ms only. */
export function cpuMs(pid) {
  const threads = `/proc/${pid}/task`;
  const nanos = readdirSync(threads).map((id) =>
    Number(readFileSync(`${threads}/${id}/schedstat`, 'utf8').split(' ')[0]),
  );
  return nanos.reduce((sum, each) => sum + each, 0) / 1e6;
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

/** Pairs of a row whose figures are ratios against a yardstick of the same minute. */
export const PAIRS = 5;
/** A row of counts, memory and CPU of one side alone: what else the machine does hardly changes those, so once is enough in the table. */
export const ONCE = 1;

export const mapped = (object, change) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value, name)]));

/**
 * Calls each once a round, `rounds` times.
 * @returns for each name what it gave, in order
 */
export async function takeTurns(rounds, measures) {
  const figures = mapped(measures, () => []);
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, measure] of Object.entries(measures)) figures[name].push(await measure());
  }
  return figures;
}

/** For what has to be started anew for each figure: every run has a scope of its own. */
export const alternate = (pairs, runs) =>
  takeTurns(
    pairs,
    mapped(runs, (run) => () => inScope(run)),
  );

/**
 * Sets up contenders that stay: a start costs more than what is measured. Each has measured once, not counted, before `use`
 * gets them; before each measure everything of all of them rests.
 * @param contenders by name; each sets itself up in its scope and gives its measure
 * @param options.freeze whether the others stand still meanwhile, since what idle nodes do would be seen in it; not for longer
 *   than a few seconds, or nodes are judged dead
 */
export function prepared(contenders, use, { freeze = false } = {}) {
  return inScope(async (scope) => {
    const scopes = mapped(contenders, () => createScope());
    for (const own of Object.values(scopes)) scope.defer(own.close);
    const measures = {};
    for (const [name, prepare] of Object.entries(contenders)) {
      const measure = await prepare(scopes[name]);
      const others = Object.values(scopes).filter((own) => own !== scopes[name]);
      const send = (signal) => {
        if (freeze) for (const { children } of others) for (const child of children) child.kill(signal);
      };
      measures[name] = async (...args) => {
        await untilCalm(...Object.values(scopes));
        send('SIGSTOP');
        try {
          return await measure(...args);
        } finally {
          send('SIGCONT');
        }
      };
    }
    await takeTurns(1, measures);
    return use(measures);
  });
}
export const inTurns = (pairs, contenders, options) =>
  prepared(contenders, (measures) => takeTurns(pairs, measures), options);

/** Looked at so often; calm is what takes less than a fourth of a core. */
const LOOK_MS = 200;
const CALM_SHARE = 0.25;
const CALM_WITHIN_MS = 15_000;

/** Waits until the processes of scopes have nothing left to do, their children included: Redis writes its log anew in one. */
export async function untilCalm(...scopes) {
  const giveUpAtMs = performance.now() + CALM_WITHIN_MS;
  const used = () =>
    new Map(
      scopes
        .flatMap(({ children }) => children)
        .filter(isAlive)
        .flatMap(({ pid }) => withChildren(pid)),
    );
  for (let before = used(); performance.now() < giveUpAtMs; ) {
    await pause(LOOK_MS);
    const after = used();
    const spent = [...after].reduce((sum, [pid, ms]) => sum + ms - (before.get(pid) ?? 0), 0);
    if (spent < CALM_SHARE * LOOK_MS) return;
    before = after;
  }
  console.log('    what was set up did not come to rest');
}

/** @returns [pid, CPU time in ms] of a process and its children */
function withChildren(parent) {
  const pids = [parent, ...readFileSync(`/proc/${parent}/task/${parent}/children`, 'utf8').split(' ').filter(Boolean)];
  return pids.flatMap((pid) => {
    try {
      return [[pid, cpuMs(pid)]];
    } catch {
      // It has just ended.
      return [];
    }
  });
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
