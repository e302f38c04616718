/** One worker on a test's own Redis, whose jobs the test hands over itself, and what its commands left in their logs. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import type { JobData, QueueConsumer } from '../../src/domain/ports.js';
import type { Outcome, StoredEntry } from '../../src/protocol/entries.js';
import { type CommandId, makeWorkerId } from '../../src/protocol/ids.js';
import type { CommandSpecInput } from '../../src/protocol/methods.js';
import { createRedis, parseRedisUrl } from '../../src/redis/connections.js';
import { createEventBus } from '../../src/redis/event-bus.js';
import { createReassertion } from '../../src/redis/reassertion.js';
import type { ContainmentLevel } from '../../src/worker/containment.js';
import { type HostOptions, openHost } from '../../src/worker/host.js';
import { createWorker, type WorkerOptions, type WorkerPorts } from '../../src/worker/worker.js';
import { MARKER } from './processes.js';
import { chance, openTab, type Stores, silentLog, submit } from './stores.js';
import { within } from './wait.js';

const MIB = 1024 * 1024;
const programs = fileURLToPath(new URL('../programs/', import.meta.url));

export type Spec = Partial<CommandSpecInput>;

/** One of test/programs, executable. */
export const program = (name: string, ...args: string[]) => ({ argv: [programs + name, ...args] });
/** One of test/programs, run by Node. */
export const nodeProgram = (name: string, ...args: string[]) => ({
  argv: [process.execPath, programs + name, ...args],
});
/** A command line for the shell. */
export const script = (text: string): Spec => ({ argv: undefined, script: text });

/** What a host offers; `level` is the strongest containment that is tried. */
export interface TestHost extends Partial<HostOptions> {
  readonly level?: ContainmentLevel;
}

/** The host of a test's worker, with a ledger of its own. */
async function openTestHost(id: string, { level = 'pidns', ...options }: TestHost) {
  const dataDir = await mkdtemp(join(tmpdir(), 'homing-host-'));
  const host = await openHost({
    id,
    floor: 'auto',
    without: level === 'group' ? ['unshare', 'bwrap'] : [],
    dataDir,
    keepMs: 3_600_000,
    path: process.env.PATH ?? '',
    log: silentLog,
    ...options,
  });
  return {
    ...host,
    async close() {
      await host.close();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** What further a worker may have. */
type MorePorts = Pick<WorkerPorts, 'secrets' | 'shim' | 'patterns' | 'noticeCounts'>;

export async function startWorkerOn(
  stores: Stores,
  url: string,
  options: Partial<WorkerOptions> = {},
  hostOptions: TestHost = {},
  more: MorePorts = {},
) {
  const workerId = makeWorkerId(randomBytes(16));
  const host = await openTestHost(workerId, hostOptions);
  const { containment, cgroups, ledger, spoolFiles, runAs, workRoot, sandbox } = host;
  const subscriber = createRedis(parseRedisUrl(url), 'subscriber', silentLog) as Redis;
  const meter = { count() {}, gauge() {}, observe() {} };
  const bus = createEventBus({
    commands: stores.redis,
    subscriber,
    keys: stores.keys,
    selfId: workerId,
    log: silentLog,
    meter,
    chance,
  });
  let run!: (commandId: CommandId, job: JobData) => Promise<void>;
  const consumer: QueueConsumer = { pause: async () => {}, close: async () => {} };
  const worker = createWorker(
    {
      containment,
      cgroups,
      ledger,
      spoolFiles,
      store: stores.commands,
      presence: stores.presence,
      reassertion: createReassertion(stores),
      bus,
      consume: (taken) => {
        run = taken;
        return consumer;
      },
      log: silentLog,
      meter,
      chance,
      ...more,
    },
    {
      workerId,
      runAs,
      workRoot,
      sandbox,
      pool: 'default',
      concurrency: 8,
      version: '0',
      leaseMs: 2_000,
      killGraceMs: 300,
      spoolBytes: 32 * MIB,
      logFirstBytes: MIB,
      logLastBytes: 7 * MIB,
      outputBytesPerSec: 64 * MIB,
      envAllow: `PATH ${MARKER}`,
      hostEnv: { PATH: process.env.PATH, [MARKER]: String(process.pid), HIDDEN: 'no' },
      defaultCwd: '/',
      ...options,
    },
  );
  await worker.start();
  return {
    worker,
    run: (commandId: CommandId) => run(commandId, {} as JobData),
    async [Symbol.asyncDispose]() {
      await worker.close();
      await host.close();
      await bus.close();
      subscriber.disconnect();
    },
  };
}

export interface Logged {
  readonly entries: readonly StoredEntry[];
  /** Names and params, in order. */
  // biome-ignore lint/suspicious/noExplicitAny: entries of every kind, each test looks at what it needs
  readonly said: readonly { method: string; params: any }[];
  readonly output: Buffer;
  readonly outcome: Outcome;
}

/** Everything that is in the log now. */
export async function readWholeLog(stores: Stores, commandId: CommandId): Promise<Logged> {
  const entries: StoredEntry[] = [];
  for (let after = 0; ; ) {
    const page = await stores.commands.readLog(commandId, { type: 'viewer' }, after, MIB);
    if (page.type !== 'page') throw new Error(page.type);
    entries.push(...page.entries);
    if (page.entries.length === 0) break;
    after = page.entries.at(-1)!.seq;
  }
  const said = entries.map((entry) => JSON.parse(entry.text));
  const output = Buffer.concat(
    said
      .filter(({ method }) => method === 'command.output')
      .map(({ params }) => Buffer.from(params.data ?? params.base64, params.data === undefined ? 'base64' : 'utf8')),
  );
  return { entries, said, output, outcome: said.at(-1)?.params.outcome };
}

/** Submits as a new tab. */
export async function submitFromTab(stores: Stores, spec: Spec): Promise<CommandId> {
  const tab = await openTab(stores);
  const { commandId, answer } = await submit(stores, { tab }, spec);
  expect(answer.type).toBe('accepted');
  return commandId;
}

/** Submits, runs to the end on a worker of its own and reads the log. */
export async function runOnce(
  stores: Stores,
  url: string,
  spec: Spec,
  options: Partial<WorkerOptions> = {},
  host: TestHost = {},
): Promise<Logged & { commandId: CommandId }> {
  await using test = await startWorkerOn(stores, url, options, host);
  const commandId = await submitFromTab(stores, spec);
  await within('the end of the command', test.run(commandId));
  const logged = await readWholeLog(stores, commandId);
  expect(logged.said.filter(({ method }) => method === 'command.ended')).toHaveLength(1);
  expect(logged.said.at(-1)?.method).toBe('command.ended');
  expect(await stores.presence.workerCommands(test.worker.workerId)).toEqual([]);
  return { ...logged, commandId };
}
