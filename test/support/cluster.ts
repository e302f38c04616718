/** Real processes of a cluster: `homing gateway` and `homing worker`, each on free ports, under one unique prefix. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Switch, switchOff, takeOut } from './fences.js';
import { isRunning, MARKER, marked, markerFor } from './processes.js';
import { startRedis, type TestRedis, uniquePrefix } from './redis.js';
import { openTab, type Tab, type TabOptions } from './tab.js';
import { type Claims, makeToken } from './tokens.js';
import { until, within } from './wait.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Another build than the one in dist can be tried, for example beside one that is being made. */
export const MAIN = join(process.env.HOMING_TEST_BUILD ?? ROOT, 'dist/cli/main.js');
const START_LIMIT_MS = 60_000;

export type Env = Readonly<Record<string, string>>;

export interface ClusterOptions {
  readonly nodes?: number;
  readonly workers?: number;
  /** One that is there already, of any kind; else the cluster has a single server of its own. */
  readonly redis?: Pick<TestRedis, 'url'>;
  /** Settings of every process. */
  readonly env?: Env;
  /** Rules switched off: fences of the scripts (`attach: principal`) and pieces of code that this cluster runs without. */
  readonly without?: { readonly fences: readonly string[]; readonly switches: readonly Switch[] };
  /** Settings of one process, by its index; for example its own HOMING_REDIS_URL, through a proxy. */
  readonly nodeEnv?: (index: number) => Env;
  readonly workerEnv?: (index: number) => Env;
  /** Folder of another build that this process is of, by its index; undefined: of this one. */
  readonly build?: (role: 'gateway' | 'worker', index: number) => string | undefined;
}

/** One process of the cluster. */
export interface Handle {
  readonly role: 'gateway' | 'worker';
  readonly pid: number;
  /** Of this incarnation, as it says itself. */
  readonly id: string;
  /** Everything it wrote so far, both streams. */
  readonly log: string;
  /** SIGKILL unless said otherwise; resolves when it is gone. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  /** Starts it again with the same settings (a new incarnation, new ports). */
  restart(): Promise<void>;
  readonly exitCode: number | null;
  /** Of a worker: where HOMING_WORKER_OPS_PORT asks for one. */
  readonly opsUrl: string;
}

export interface NodeHandle extends Handle {
  readonly url: string;
}

/** One line of a log in the form of the notification that a socket gets. */
export interface LoggedEntry {
  readonly method: string;
  // biome-ignore lint/suspicious/noExplicitAny: entries are looked at, not trusted
  readonly params: any;
}

/** Runs the product's own program once to its end. */
export async function runHoming(
  args: readonly string[],
  options: { env?: Record<string, string | undefined>; input?: string; limitMs?: number; cwd?: string } = {},
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  requireBuild();
  const child = spawn(process.execPath, [MAIN, ...args], {
    stdio: ['pipe', 'pipe', 'pipe'],
    cwd: options.cwd,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, [MARKER]: markerFor('program'), ...options.env },
  });
  child.stdin.on('error', () => {});
  child.stdin.end(options.input ?? '');
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  child.stdout.on('data', (data: Buffer) => stdout.push(data));
  child.stderr.on('data', (data: Buffer) => stderr.push(data));
  const said = () => `${Buffer.concat(stdout)}\n${Buffer.concat(stderr)}`.trim();
  try {
    await within(`homing ${args.join(' ')}`, once(child, 'close'), options.limitMs);
  } catch (error) {
    child.kill('SIGKILL');
    throw new Error(`${error}; it said: ${said()}`);
  }
  return {
    code: child.exitCode,
    stdout: Buffer.concat(stdout).toString('utf8'),
    stderr: Buffer.concat(stderr).toString('utf8'),
  };
}

function requireBuild(): void {
  if (!existsSync(MAIN)) throw new Error('dist/cli/main.js is missing: run "npm run build" before the journeys');
}

export async function startCluster(options: ClusterOptions = {}) {
  requireBuild();
  const spoilt = options.without === undefined ? undefined : await buildWithout(options.without);
  const main = spoilt === undefined ? MAIN : join(spoilt, 'dist/cli/main.js');
  const ownRedis = options.redis === undefined;
  // Whoever brings another kind of deployment uses that one's own handle.
  const redis = (options.redis as TestRedis | undefined) ?? (await startRedis());
  const secret = randomBytes(32).toString('hex');
  const adminToken = randomBytes(16).toString('hex');
  const prefix = uniquePrefix();
  const marker = markerFor(prefix);
  const dataDir = await mkdtemp(join(tmpdir(), 'homing-data-'));
  const starters: (() => Promise<void>)[] = [];
  const handles: Handle[] = [];

  const settings = (own: Env | undefined): Record<string, string> => ({
    PATH: process.env.PATH ?? '/usr/bin:/bin',
    HOME: process.env.HOME ?? '/tmp',
    [MARKER]: marker,
    HOMING_ENV_ALLOW: `PATH HOME LANG LC_* TZ TERM ${MARKER}`,
    HOMING_REDIS_URL: redis.url,
    HOMING_PREFIX: prefix,
    HOMING_JWT_SECRET: secret,
    HOMING_ADMIN_TOKEN: adminToken,
    HOMING_PORT: '0',
    HOMING_OPS_PORT: '0',
    HOMING_DATA_DIR: dataDir,
    HOMING_LEASE_MS: '2000',
    HOMING_GRACE_MS: '20000',
    HOMING_HEARTBEAT_MS: '2000',
    HOMING_DRAIN_MS: '3000',
    HOMING_KILL_GRACE_MS: '500',
    ...options.env,
    ...own,
  });

  function createHandle(role: 'gateway' | 'worker', index: number, own: Env | undefined) {
    const build = options.build?.(role, index);
    const program = build === undefined ? main : join(build, 'dist/cli/main.js');
    let child: ChildProcess | undefined;
    let log = '';
    let ready: Ready = { url: '', opsUrl: '', id: '' };
    const running = (): ChildProcess => {
      if (child === undefined) throw new Error(`the ${role} was not started`);
      return child;
    };
    const handle = {
      role,
      get pid() {
        return running().pid ?? 0;
      },
      get log() {
        return log;
      },
      get url() {
        return ready.url;
      },
      get opsUrl() {
        return ready.opsUrl;
      },
      get id() {
        return ready.id;
      },
      get exitCode() {
        return running().exitCode;
      },
      signal: (signal: NodeJS.Signals) => void running().kill(signal),
      async kill(signal: NodeJS.Signals = 'SIGKILL') {
        const target = child;
        if (target === undefined || target.exitCode !== null || target.signalCode !== null) return;
        const gone = once(target, 'exit');
        target.kill('SIGCONT');
        target.kill(signal);
        await within(`the end of a ${role} after ${signal}`, gone);
      },
      async restart() {
        await handle.kill();
        log = '';
        const started = spawn(process.execPath, [program, role], {
          stdio: ['ignore', 'pipe', 'pipe'],
          env: settings(own),
        });
        child = started;
        const collect = (text: string) => {
          // The newest part is what a failed test wants to see.
          log = (log + text).slice(-200_000);
        };
        started.stdout?.setEncoding('utf8').on('data', collect);
        started.stderr?.setEncoding('utf8').on('data', collect);
        const said = await until(
          `a ${role} that is ready`,
          () => {
            if (started.exitCode !== null) return { failed: true } as const;
            return readiness(log);
          },
          START_LIMIT_MS,
        ).catch((error: Error) => {
          throw new Error(`${error.message}; it said:\n${log}`);
        });
        if ('failed' in said) throw new Error(`the ${role} ended with ${started.exitCode}; it said:\n${log}`);
        ready = said;
      },
    };
    handles.push(handle);
    starters.push(() => handle.restart());
    return handle;
  }

  const nodes: NodeHandle[] = [];
  const workers: Handle[] = [];
  for (let i = 0; i < (options.nodes ?? 1); i += 1) nodes.push(createHandle('gateway', i, options.nodeEnv?.(i)));
  for (let i = 0; i < (options.workers ?? 1); i += 1) workers.push(createHandle('worker', i, options.workerEnv?.(i)));

  const tabs: Tab[] = [];
  const cluster = {
    redis,
    prefix,
    secret,
    adminToken,
    nodes,
    workers,

    node(index: number): NodeHandle {
      const found = nodes[index];
      if (found === undefined) throw new Error(`there is no node ${index}`);
      return found;
    },
    worker(index: number): Handle {
      const found = workers[index];
      if (found === undefined) throw new Error(`there is no worker ${index}`);
      return found;
    },

    token: (claims: Partial<Claims> = {}) => makeToken(secret, { sub: 'ann', ...claims }),

    /** Opens a session at a node; the tab's sockets end with the cluster. */
    async tab(node: number, given: Partial<TabOptions> & { sub?: string } = {}): Promise<Tab> {
      const { sub = 'ann', ...rest } = given;
      const tab = await openTab(cluster.node(node).url, { token: cluster.token({ sub }), ...rest });
      tabs.push(tab);
      return tab;
    },

    /** A request over HTTP; JSON in and out. `raw` is the body as it came. */
    async http(
      method: string,
      path: string,
      given: { node?: number; token?: string; body?: object; headers?: Record<string, string> } = {},
    ) {
      const response = await fetch(`${cluster.node(given.node ?? 0).url.replace(/\/$/, '')}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${given.token ?? cluster.token()}`,
          ...(given.body === undefined ? {} : { 'content-type': 'application/json' }),
          ...given.headers,
        },
        signal: AbortSignal.timeout(30_000),
        ...(given.body === undefined ? {} : { body: JSON.stringify(given.body) }),
      });
      const raw = Buffer.from(await response.arrayBuffer());
      const isJson = /^application\/json\b(?!l)/.test(response.headers.get('content-type') ?? '');
      // biome-ignore lint/suspicious/noExplicitAny: answers are looked at, not trusted
      const json: any = isJson ? JSON.parse(raw.toString('utf8')) : undefined;
      return { status: response.status, headers: response.headers, raw, json };
    },

    /** One figure of a node's /metrics, summed over its labels; 0 when it was never counted. */
    async metric(node: number, name: string): Promise<number> {
      const response = await fetch(`${cluster.node(node).opsUrl.replace(/\/$/, '')}/metrics`, {
        headers: { authorization: `Bearer ${adminToken}` },
      });
      if (!response.ok) throw new Error(`/metrics answered ${response.status}`);
      return (await response.text())
        .split('\n')
        .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
        .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
    },

    /** The log of a command over HTTP, all pages, whichever way the node cuts them. */
    async wholeLog(commandId: string, token?: string): Promise<LoggedEntry[]> {
      const all: LoggedEntry[] = [];
      for (let fromSeq = 0; ; ) {
        const path = `/v1/commands/${commandId}/log?format=jsonl&fromSeq=${fromSeq}`;
        const { raw } = await cluster.http('GET', path, { token });
        const lines = raw.toString('utf8').split('\n');
        const page = lines.filter((line) => line !== '').map((line) => asNotification(JSON.parse(line)));
        all.push(...page);
        const last = page.at(-1);
        if (last === undefined || last.method === 'command.ended') return all;
        fromSeq = last.params.seq + 1;
      }
    },

    async [Symbol.asyncDispose](): Promise<void> {
      for (const tab of tabs) await tab[Symbol.asyncDispose]();
      await Promise.all(handles.map((handle) => handle.kill().catch(() => {})));
      // Commands of a worker that was killed may survive it at containment "group".
      for (const pid of marked(marker)) {
        try {
          process.kill(pid, 'SIGKILL');
        } catch {
          // Gone by itself.
        }
      }
      await until('the last command to be gone', () => marked(marker).every((pid) => !isRunning(pid)), 5_000);
      if (ownRedis) await redis[Symbol.asyncDispose]();
      await rm(dataDir, { recursive: true, force: true });
      if (spoilt !== undefined) await rm(spoilt, { recursive: true, force: true });
    },
  };

  try {
    await Promise.all(starters.map((start) => start()));
  } catch (error) {
    await cluster[Symbol.asyncDispose]();
    throw error;
  }
  return cluster;
}

export type Cluster = Awaited<ReturnType<typeof startCluster>>;

/** A copy of the build without these rules; inside the project, so that its packages are found. */
async function buildWithout({ fences, switches }: NonNullable<ClusterOptions['without']>): Promise<string> {
  const artifacts = join(ROOT, '.artifacts');
  await mkdir(artifacts, { recursive: true });
  const folder = await mkdtemp(join(artifacts, 'without-'));
  await cp(join(ROOT, 'package.json'), join(folder, 'package.json'));
  await cp(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true });
  await takeOut(join(folder, 'dist/redis/scripts'), fences);
  await switchOff(join(folder, 'dist'), switches);
  return folder;
}

interface Ready {
  readonly url: string;
  readonly opsUrl: string;
  readonly id: string;
}

/** Finds the line by which a process says that it takes work, and where. */
function readiness(log: string): Ready | undefined {
  const line = log.split('\n').find((candidate) => candidate.startsWith('{"event":"ready"'));
  if (line === undefined) return undefined;
  const { url = '', opsUrl = '', nodeId, workerId } = JSON.parse(line);
  return { url: url.replace(/\/$/, ''), opsUrl: opsUrl.replace(/\/$/, ''), id: nodeId ?? workerId };
}

/** A line of a log names its type; a socket names its method. */
function asNotification(entry: { type: string }): LoggedEntry {
  const { type, ...params } = entry;
  return { method: `command.${type}`, params };
}
