/** A real Redis of one test's own: on a free port, in a folder that goes with it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stablePort } from './ports.js';
import { testServer } from './server.js';

export interface TestRedis extends AsyncDisposable {
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly folder: string;
  readonly pid: number | undefined;
  /** Starts it again on the same data and port; resolves when it takes commands. */
  start(): Promise<void>;
  /** A clean SHUTDOWN; resolves when the process is gone. */
  stop(): Promise<void>;
  /** SIGKILL; what the kernel was given of the append-only file stays. */
  kill(): Promise<void>;
  /** Stops its process from running, as a machine that hangs: connections stay open, nothing answers. */
  suspend(): void;
  resume(): void;
}

export interface TestRedisOptions {
  /** Lines of redis.conf, for example `maxmemory 8mb`. */
  readonly config?: readonly string[];
  /** Of the process, such as a library that makes its clock wrong. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A prefix no other test uses, legal as HOMING_PREFIX. */
export const uniquePrefix = (): string => `t${randomBytes(6).toString('hex')}`;

export async function startRedis(options: TestRedisOptions = {}): Promise<TestRedis> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-redis-'));
  const host = '127.0.0.1';
  let port = 0;
  let child: ChildProcess | undefined;

  const stopWith = async (signal: NodeJS.Signals) => {
    const running = child;
    child = undefined;
    await endServer(running, signal);
  };

  const redis: TestRedis = {
    get url() {
      return `redis://${host}:${port}`;
    },
    host,
    get port() {
      return port;
    },
    folder,
    get pid() {
      return child?.pid;
    },
    async start() {
      if (child !== undefined) return;
      child = await launch(folder, host, port, options);
    },
    // Redis answers SIGTERM with the steps of SHUTDOWN.
    stop: () => stopWith('SIGTERM'),
    kill: () => stopWith('SIGKILL'),
    suspend: () => void child?.kill('SIGSTOP'),
    resume: () => void child?.kill('SIGCONT'),
    async [Symbol.asyncDispose]() {
      await stopWith('SIGKILL');
      await rm(folder, { recursive: true, force: true });
    },
  };

  return whereverPortsAreFree(async () => {
    port = await stablePort();
    await redis.start();
    return redis;
  }).catch(async (error) => {
    await redis[Symbol.asyncDispose]();
    throw error;
  });
}

/** Another process may take a free port before a server does: then once more, with others. */
export async function whereverPortsAreFree<T>(start: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await start();
    } catch (error) {
      if (attempt === 5 || !/address already in use/i.test(String(error))) throw error;
    }
  }
}

function launch(folder: string, host: string, port: number, options: TestRedisOptions): Promise<ChildProcess> {
  const lines = [
    `bind ${host}`,
    `port ${port}`,
    `dir ${folder}`,
    'save ""',
    'appendonly yes',
    'appendfsync everysec',
    'maxmemory-policy noeviction',
    ...(options.config ?? []),
  ];
  return launchServer(lines, options.env === undefined ? {} : { env: options.env });
}

export interface LaunchOptions {
  /** Instead of lines on stdin: arguments, such as the file of a sentinel, which it writes to itself. */
  readonly args?: readonly string[];
  /** Beside what the server itself needs, such as a library that makes its clock wrong. */
  readonly env?: Readonly<Record<string, string>>;
  /** What it prints when it takes commands. */
  readonly readyText?: string;
}

/** A server process that ends with this one; resolves when it takes commands. */
export async function launchServer(lines: readonly string[], options: LaunchOptions = {}): Promise<ChildProcess> {
  const { args = ['-'], readyText = 'Ready to accept connections' } = options;
  const { file, libraryPath } = await testServer();
  const env = { ...(libraryPath === undefined ? {} : { LD_LIBRARY_PATH: libraryPath }), ...options.env };
  const child = spawn(file, args, { stdio: ['pipe', 'pipe', 'inherit'], env });
  child.stdin.end(lines.join('\n'));
  const killWithTest = () => void child.kill('SIGKILL');
  process.once('exit', killWithTest);
  child.once('exit', () => process.off('exit', killWithTest));
  await ready(child, readyText);
  return child;
}

/** Sends a signal and waits for the end; also a stopped process gets it. */
export async function endServer(child: ChildProcess | undefined, signal: NodeJS.Signals): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGCONT');
  child.kill(signal);
  await gone;
}

function ready(child: ChildProcess, readyText: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let said = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      if (said.length < 10_000) said += text;
      if (said.includes(readyText)) resolve();
    });
    child.once('error', reject);
    child.once('exit', () => reject(new Error(`redis-server ended: ${said}`)));
  });
}
