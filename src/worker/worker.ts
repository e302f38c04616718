/**
 * One worker process: takes jobs of one pool, runs their commands, proves that it is alive, and ends well.
 *
 * - `starting` → `running`: the first beat is stored, jobs are taken.
 * - `running` → `draining`: no more jobs. Commands may end by themselves for a while, then they are ended as
 *   `worker_drained`, and say so. Beats go on: a draining worker is alive.
 * - `closed`: what still runs is killed without a word; the reconciler finds it.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fullJitterMs } from '../domain/backoff.js';
import type {
  Chance,
  CommandStore,
  EventBus,
  JobData,
  Log,
  Meter,
  NoticeCounts,
  Presence,
  QueueConsumer,
  Reassertion,
} from '../domain/ports.js';

import { messageOf } from '../errors.js';
import { type CommandId, makeWorkerId, type WorkerId } from '../protocol/ids.js';
import { auditCommands } from './audit.js';
import { createBreakers } from './breakers.js';
import { createClaims } from './claims.js';
import type { Containment } from './containment.js';
import { createKeptRuns } from './kept-runs.js';
import type { Ledger } from './ledger.js';
import { closePipe, createPipePool } from './pipes.js';
import { type Publisher, REWIND_LEAST_MS } from './publisher.js';
import type { RunOptions, RunPorts } from './run.js';
import { runCommand } from './run-command.js';

export interface WorkerPorts
  extends Pick<RunPorts, 'secrets' | 'shim' | 'patterns' | 'spoolFiles' | 'cgroups' | 'gapNotes' | 'traces'> {
  readonly store: Pick<CommandStore, 'claim' | 'append' | 'readStdin' | 'checkClaims' | 'get' | 'endWithoutWorker'>;
  readonly presence: Presence;
  readonly reassertion: Pick<Reassertion, 'recordOf' | 'command'>;
  readonly bus: Pick<EventBus, 'subscribeControl' | 'onRestored'>;
  /** Counts the notices of all workers; absent: each counts its own. */
  readonly noticeCounts?: NoticeCounts | undefined;
  /** Begins to take jobs; `run` resolves when the command is over here. */
  readonly consume: (run: (commandId: CommandId, job: JobData) => Promise<void>) => QueueConsumer;
  /** Whoever made them closes them, after this worker. */
  readonly containment: Containment;
  readonly ledger: Pick<Ledger, 'enter'>;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
}

export interface WorkerOptions extends Omit<RunOptions, 'workerId'> {
  /** The id of this incarnation, where it had to be known before; made here otherwise. */
  readonly workerId?: WorkerId;
  readonly pool: string;
  readonly concurrency: number;
  readonly version: string;
}

export interface Worker {
  readonly workerId: WorkerId;
  /** Resolves when the worker is known and takes jobs. @throws AppError REDIS_UNAVAILABLE */
  start(): Promise<void>;
  /** Commands running now. */
  readonly running: number;
  readonly state: 'starting' | 'running' | 'draining' | 'closed';
  /** Takes no more jobs; what still runs after `timeoutMs` is ended with its kill grace. Idempotent. */
  drain(timeoutMs: number): Promise<void>;
  /** Another Redis answers than before, or the same one with older data: says again what runs here (FAULTS R2). */
  serverChanged(): void;
  /** Releases everything; commands still running are killed. Idempotent. */
  close(): Promise<void>;
}

/** After a drain's time is up: kill graces, last output and `ended`. Longer only while Redis is away. */
const DRAIN_TAIL_MS = 10_000;
/** A beat that failed is tried again sooner than the next is due. */
const BEAT_RETRY = { baseMs: 200, capMs: 2_000 };
const CHANGED_ATTEMPTS = 10;
const FORGET_WITHIN_MS = 2_000;
const KILLED_WITHIN_MS = 5_000;

export function createWorker(ports: WorkerPorts, options: WorkerOptions): Worker {
  const { presence, containment, meter, chance } = ports;
  const workerId = options.workerId ?? makeWorkerId(chance.bytes(16));
  const log = ports.log.child({ workerId });
  const startedAt = Date.now();
  const random = () => chance.random();
  const claims = createClaims({ store: ports.store, bus: ports.bus, log, random });
  const pipes = createPipePool();
  const breakers = createBreakers(ports.noticeCounts);
  const kept = createKeptRuns(Math.max(options.leaseMs, REWIND_LEAST_MS), random);
  const drained = new AbortController();
  const abandoned = new AbortController();
  // One listener for each command that runs or is kept for a while: as many as there are.
  setMaxListeners(0, drained.signal, abandoned.signal);
  const running = new Map<CommandId, Promise<void>>();
  const publishers = new Set<Pick<Publisher, 'waiting'>>();
  let state: Worker['state'] = 'starting';
  let consumer: QueueConsumer | undefined;
  let beatTimer: NodeJS.Timeout | undefined;
  let beating: Promise<void> = Promise.resolve();
  let failedBeats = 0;
  let draining: Promise<void> | undefined;
  let closing: Promise<void> | undefined;

  /** A job that comes twice (BullMQ delivers at least once) is refused by the claim; here it only must not be lost track of. */
  function run(commandId: CommandId, job?: Pick<JobData, 'trace'>): Promise<void> {
    const before = running.get(commandId);
    if (before !== undefined) return before;
    const control = { drained: drained.signal, abandoned: abandoned.signal };
    const over = runCommand(
      { ...ports, claims, pipes, kept, publishers, breakers, log },
      { ...options, workerId },
      control,
      commandId,
      job?.trace,
    ).finally(() => {
      running.delete(commandId);
      meter.gauge('homing_commands_running', running.size);
    });
    running.set(commandId, over);
    meter.gauge('homing_commands_running', running.size);
    return over;
  }

  function measure(): void {
    let bytes = 0;
    let memoryBytes = 0;
    for (const { waiting } of publishers) {
      bytes += waiting.bytes;
      memoryBytes += waiting.memoryBytes;
    }
    meter.gauge('homing_spool_bytes', bytes);
    meter.gauge('homing_spool_memory_bytes', memoryBytes);
  }
  meter.beforeDump?.(measure);

  async function beat(): Promise<void> {
    await presence.beatWorker({
      workerId,
      pool: options.pool,
      concurrency: options.concurrency,
      containment: containment.level,
      means: ports.cgroups === undefined ? containment.means : `${containment.means}; control groups`,
      sandboxes: containment.profiles,
      version: options.version,
      startedAt,
      draining: state === 'draining',
    });
  }

  /** What an audit finds: a command that is recorded as running here and is not. */
  async function audit(): Promise<void> {
    const isHere = (commandId: CommandId) => running.has(commandId) || kept.has(commandId);
    await auditCommands({ ...ports, log }, workerId, isHere);
  }

  let changed: Promise<void> | undefined;
  function serverChanged(): void {
    // One at a time; a change while it says everything is seen by what it says next.
    if (changed !== undefined) return;
    changed = sayAllAgain().finally(() => {
      changed = undefined;
    });
  }

  async function sayAllAgain(): Promise<void> {
    log.warn({ running: running.size }, 'another Redis answers, checking claims and logs');
    for (let attempt = 0; attempt < CHANGED_ATTEMPTS && state !== 'closed'; attempt += 1) {
      try {
        await claims.check();
        claims.recheckLogs();
        await kept.recheck();
        return;
      } catch (error) {
        log.debug({ error: messageOf(error) }, 'not everything could be said again yet');
        await sleep(fullJitterMs(attempt, BEAT_RETRY, random()), undefined, { ref: false });
      }
    }
  }

  async function keepBeating(): Promise<void> {
    try {
      beating = beat();
      await beating;
      failedBeats = 0;
      await audit();
    } catch (error) {
      if (failedBeats === 0) log.warn({ error: messageOf(error) }, 'beat failed, trying again');
      failedBeats += 1;
    }
    if (state === 'closed') return;
    const third = options.leaseMs / 3;
    const delayMs =
      failedBeats === 0 ? third * (0.8 + 0.2 * random()) : fullJitterMs(failedBeats, BEAT_RETRY, random());
    beatTimer = setTimeout(() => void keepBeating(), Math.min(delayMs, third));
  }

  /** Resolves when nothing runs any more, or the time is up. */
  async function idle(withinMs: number): Promise<boolean> {
    const limit = new AbortController();
    const allOver = async () => {
      while (running.size > 0 && !limit.signal.aborted) await Promise.allSettled(running.values());
    };
    try {
      await Promise.race([allOver(), sleep(withinMs, undefined, { signal: limit.signal })]);
    } finally {
      limit.abort();
    }
    return running.size === 0;
  }

  async function drain(timeoutMs: number): Promise<void> {
    if (state === 'closed') return;
    state = 'draining';
    log.info({ running: running.size, timeoutMs }, 'draining');
    await Promise.all([consumer?.pause(), beat().catch(() => {})]);
    if (await idle(timeoutMs)) return;
    drained.abort();
    if (!(await idle(DRAIN_TAIL_MS))) log.warn({ running: running.size }, 'commands did not end in time');
  }

  async function close(): Promise<void> {
    const wasIdle = running.size === 0;
    state = 'closed';
    clearTimeout(beatTimer);
    abandoned.abort();
    claims.close();
    kept.close();
    await Promise.all([consumer?.close(), idle(KILLED_WITHIN_MS)]);
    pipes.close();
    // With commands left behind the record stays, so that a judge finds them by it.
    if (wasIdle) await Promise.race([forget(), sleep(FORGET_WITHIN_MS, undefined, { ref: false })]);
  }

  /** After the last beat, which would bring the record back. */
  async function forget(): Promise<void> {
    await beating.catch(() => {});
    await presence.forgetWorker(workerId).catch(() => {});
  }

  return {
    workerId,
    get running() {
      return running.size;
    },
    get state() {
      return state;
    },
    async start() {
      await beat();
      // Proves that this host can make pipes before a job is taken.
      await pipes.take().then(closePipe);
      if (state !== 'starting') return;
      state = 'running';
      meter.gauge('homing_worker_containment', 1, { level: containment.level });
      beatTimer = setTimeout(() => void keepBeating(), (options.leaseMs / 3) * random());
      ports.bus.onRestored(() => void claims.check());
      consumer = ports.consume(run);
      log.info(
        { pool: options.pool, concurrency: options.concurrency, containment: containment.level },
        'worker is ready',
      );
    },
    drain(timeoutMs) {
      draining ??= drain(timeoutMs);
      return draining;
    },
    serverChanged,
    close() {
      closing ??= close();
      return closing;
    },
  };
}
