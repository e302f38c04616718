/**
 * The life of one command on a worker, from its job to its last entry:
 *
 *   claim → start → read its output, wait for the first of all endings → end what is left of it → flush → `ended` → forget
 *
 * - Only the winner of the claim starts anything (CO2). Only a lost claim makes a worker stop without a word (T3).
 * - What Redis does while the process runs is the publisher's worry, not the process's (CO9).
 * - `ended` is the last entry, once, after all output (DE2), and is delivered however long Redis is away.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fullJitterMs } from '../domain/backoff.js';
import { CHUNK_BYTES } from '../domain/chunker.js';
import { createEndRace, decideEnding, type EndCause, type Ending, type EndRace, type Exit } from '../domain/outcome.js';
import type { Chance, ClaimResult, CommandStore, Log, Meter, Presence } from '../domain/ports.js';
import { unsupportedField } from '../domain/supported.js';
import { createTail } from '../domain/tail.js';
import { AppError, messageOf } from '../errors.js';
import { type ClaimId, type CommandId, makeClaimId, type WorkerId } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import { createBlocks } from './blocks.js';
import type { Claims } from './claims.js';
import { createTerminator, type Terminator } from './ending.js';
import { commandEnvironment } from './environment.js';
import { createOutput, type Output } from './output.js';
import type { PipePool } from './pipes.js';
import { argvOf, type RunningProcess, startProcess } from './process.js';
import { createPublisher, type Publisher } from './publisher.js';

/** After the leader's exit: output may go on this long without a pause, and a pause this long ends it (CO6). */
const DRAIN_IDLE_MS = 200;
const DRAIN_MAX_MS = 2_000;
/** After the rest of the group was ended its pipes close at once; who holds them longer is outside of the group. */
const LAST_DRAIN_IDLE_MS = 50;
/** A leader that was killed is told by the kernel right away. */
const EXIT_WITHIN_MS = 2_000;
const CLAIM_BACKOFF = { baseMs: 100, capMs: 1_000 };

export interface RunPorts {
  readonly store: Pick<CommandStore, 'claim' | 'append'>;
  readonly presence: Pick<Presence, 'noteWorkerCommand' | 'dropWorkerCommand'>;
  readonly claims: Claims;
  readonly pipes: PipePool;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
}

export interface RunOptions {
  readonly workerId: WorkerId;
  readonly leaseMs: number;
  readonly killGraceMs: number;
  readonly spoolBytes: number;
  readonly logLastBytes: number;
  readonly outputBytesPerSec: number;
  /** Variables of `hostEnv` that commands see; see `commandEnvironment`. */
  readonly envAllow: string;
  readonly hostEnv: Readonly<Record<string, string | undefined>>;
  /** Where commands run that do not say where. */
  readonly defaultCwd: string;
}

/** How a worker makes its commands end early. */
export interface RunControl {
  /** Aborted: end the process with reason `worker_drained`, and say so. */
  readonly drained: AbortSignal;
  /** Aborted: kill the process and write nothing more; the reconciler will tell. */
  readonly abandoned: AbortSignal;
}

/** The containment this worker offers; `pidns` is another part's work. */
export const CONTAINMENT = 'group';

type Claimed = Extract<ClaimResult, { type: 'claimed' }>;

/** Resolves when the command is over here: ended and stored, refused, lost to another, or abandoned. */
export async function runCommand(
  ports: RunPorts,
  options: RunOptions,
  control: RunControl,
  commandId: CommandId,
): Promise<void> {
  const log = ports.log.child({ commandId });
  const claimId = makeClaimId(ports.chance.bytes(16));
  const claim = await claimCommand(ports, options, control, commandId, claimId, log);
  if (claim === undefined) return;
  if (claim.type === 'refused') {
    log.info({ state: claim.state }, 'command is not ours to run');
    await forget(ports, options, commandId, log);
    return;
  }

  const run = openRun(ports, options, control, commandId, claimId, claim);
  try {
    const ending = await execute(run);
    if (ending !== 'claim_lost') run.publisher.add({ type: 'ended', outcome: run.outcomeOf(ending) });
    const published = await run.publisher.done;
    log.info({ published, ...(ending === 'claim_lost' ? {} : { reason: ending.reason }) }, 'command is over');
    ports.meter.count('homing_commands_ended_total', {
      reason: ending === 'claim_lost' ? 'claim_lost' : ending.reason,
    });
    // A command that was abandoned stays listed: the reconciler looks after it.
    if (!control.abandoned.aborted) await forget(ports, options, commandId, log);
  } finally {
    run.close();
  }
}

/** Asks with the same claim id until there is an answer; undefined when the worker ends before. */
async function claimCommand(
  { store, presence, chance }: RunPorts,
  { workerId, leaseMs }: RunOptions,
  control: RunControl,
  commandId: CommandId,
  claimId: ClaimId,
  log: Log,
): Promise<ClaimResult | undefined> {
  for (let attempt = 0; ; attempt++) {
    if (control.abandoned.aborted || control.drained.aborted) return undefined;
    const askedAtMs = performance.now();
    try {
      // Intent before record: whoever judges this worker dead must find the command (S2).
      await presence.noteWorkerCommand(workerId, commandId);
      const claim = await store.claim(commandId, claimId, workerId, CONTAINMENT);
      // An answer that took long may be out of date: this worker may have been judged dead meanwhile.
      if (claim.type === 'refused' || performance.now() - askedAtMs < leaseMs / 2) return claim;
    } catch (error) {
      if (!(error instanceof AppError && error.retryable)) throw error;
      if (attempt === 0) log.warn({ error: messageOf(error) }, 'claim has no answer yet, asking again');
    }
    await sleep(fullJitterMs(attempt, CLAIM_BACKOFF, chance.random()));
  }
}

/** What a claimed command has while it is here. */
interface Run {
  readonly ports: RunPorts;
  readonly options: RunOptions;
  readonly control: RunControl;
  readonly commandId: CommandId;
  readonly claimId: ClaimId;
  readonly claim: Claimed;
  readonly publisher: Publisher;
  /** Takes a chunk of output into the tail and the spool. */
  readonly takeOutput: (stream: 'out' | 'err', bytes: Uint8Array) => void;
  readonly allocate: (bytes: number) => Uint8Array;
  readonly outcomeOf: (ending: Ending) => Ending & { durationMs: number; outputBytes: number; tail: string };
  close(): void;
}

function openRun(
  ports: RunPorts,
  options: RunOptions,
  control: RunControl,
  commandId: CommandId,
  claimId: ClaimId,
  claim: Claimed,
): Run {
  const beganAtMs = performance.now();
  const blocks = createBlocks(CHUNK_BYTES, Math.ceil(options.spoolBytes / CHUNK_BYTES));
  const tail = createTail(LIMITS.tailChars);
  const publisher = createPublisher(
    { store: ports.store, log: ports.log, meter: ports.meter, random: ports.chance.random },
    {
      commandId,
      claimId,
      ownerSessionId: claim.ownerSessionId,
      spoolBytes: options.spoolBytes,
      lastBytes: options.logLastBytes,
      outputBytesPerSec: options.outputBytesPerSec,
      leaseMs: options.leaseMs,
      recycle: blocks.recycle,
    },
  );
  const abandon = () => publisher.close();
  control.abandoned.addEventListener('abort', abandon);
  if (control.abandoned.aborted) abandon();
  return {
    ports,
    options,
    control,
    commandId,
    claimId,
    claim,
    publisher,
    takeOutput(stream, bytes) {
      tail.push(bytes);
      publisher.add({ type: 'output', stream, bytes });
    },
    allocate: blocks.allocate,
    outcomeOf: (ending) => ({
      ...ending,
      durationMs: Math.round(performance.now() - beganAtMs),
      outputBytes: publisher.outputBytes,
      tail: tail.text(),
    }),
    close() {
      control.abandoned.removeEventListener('abort', abandon);
      publisher.close();
    },
  };
}

/** Starts the process, waits for its end, and ends what is left of it. */
async function execute(run: Run): Promise<Ending | 'claim_lost'> {
  const cause = causeBeforeStart(run);
  if (cause !== undefined) return decideEnding(cause, NOT_STARTED, 0);

  const started = await start(run);
  if (started.type === 'spawn_failed') return decideEnding(started, NOT_STARTED, 0);
  const { process } = started;

  run.publisher.add({
    type: 'started',
    pid: process.pid,
    workerId: run.options.workerId,
    containment: CONTAINMENT,
    ...(run.claim.originClosed ? { originClosed: true } : {}),
  });
  const output = createOutput(process.outputs, run.takeOutput, run.allocate);
  const race = createEndRace();
  const terminator = createTerminator(process.group);
  const endings = watchEndings(run, process, output, race, terminator);
  try {
    const first = await Promise.race([race.first, endings.claimLost]);
    if (first === 'claim_lost') {
      await process.group.kill();
      return 'claim_lost';
    }
    return await finish(run, first, process, output, terminator);
  } finally {
    endings.close();
    output.close();
  }
}

const NOT_STARTED: Exit = { code: null, signal: null };

function causeBeforeStart({ claim }: Run): EndCause | undefined {
  if (claim.kill !== undefined) return { type: 'kill', request: claim.kill };
  const unsupported = unsupportedField(claim.spec);
  return unsupported === undefined ? undefined : { type: 'refused', error: unsupported.message };
}

function start({ claim, options, ports, commandId }: Run) {
  const { spec, originSessionId } = claim;
  return startProcess(
    {
      argv: argvOf(spec),
      cwd: spec.cwd ?? options.defaultCwd,
      env: commandEnvironment({ allow: options.envAllow, hostEnv: options.hostEnv, spec, commandId, originSessionId }),
      streams: spec.streams,
    },
    ports.pipes,
  );
}

/** Lets every possible ending settle the race. */
function watchEndings(run: Run, process: RunningProcess, output: Output, race: EndRace, terminator: Terminator) {
  const { claim, control, publisher, options } = run;
  const { runMs, idleMs, graceMs = options.killGraceMs } = claim.spec.timeouts;
  const timers: NodeJS.Timeout[] = [];

  /** Ends the process for a cause, unless another came first; a second kill may still be a stronger one. */
  const endFor = (cause: EndCause, wish: { signal: string; graceMs: number }) => {
    const won = race.settle(cause);
    if (won || race.cause?.type !== 'exit') terminator.wish(wish);
  };
  const byDefault = { signal: 'SIGTERM', graceMs };

  void process.exited.then(() => race.settle({ type: 'exit' }));

  if (runMs !== undefined) {
    timers.push(setTimeout(() => endFor({ type: 'timed_out', limitMs: runMs }, byDefault), runMs));
  }
  if (idleMs !== undefined) {
    const lookMs = Math.max(10, Math.min(1_000, idleMs / 4));
    const look = () => {
      if (performance.now() - output.lastByteAtMs >= idleMs)
        endFor({ type: 'idle_timeout', limitMs: idleMs }, byDefault);
    };
    timers.push(setInterval(look, lookMs));
  }

  const drain = () => endFor({ type: 'kill', request: { ...byDefault, reason: 'worker_drained' } }, byDefault);
  control.drained.addEventListener('abort', drain);
  if (control.drained.aborted) drain();

  let loseClaim: (lost: 'claim_lost') => void = () => {};
  const claimLost = new Promise<'claim_lost'>((resolve) => {
    loseClaim = resolve;
  });
  const lose = () => {
    // At once, whatever else is being waited for: somebody may have told the world that this command is lost.
    process.group.signal('SIGKILL');
    publisher.close();
    loseClaim('claim_lost');
  };
  const watch = run.ports.claims.watch(run.commandId, run.claimId, {
    onKill: (request) => endFor({ type: 'kill', request }, request),
    onLost: lose,
    onTick: publisher.tick,
    onServerChanged: publisher.recheck,
  });
  void publisher.done.then((end) => {
    if (end !== 'ended' && !closed) lose();
  });

  let closed = false;
  return {
    claimLost,
    close() {
      closed = true;
      for (const timer of timers) clearTimeout(timer);
      control.drained.removeEventListener('abort', drain);
      watch.close();
    },
  };
}

/** The first cause is known: waits for the leader, the last output and the end of the rest of the group. */
async function finish(
  run: Run,
  cause: EndCause,
  process: RunningProcess,
  output: Output,
  terminator: Terminator,
): Promise<Ending> {
  // After a kill this is the time until the whole group is gone; an exit by itself needs no waiting.
  const left = await terminator.finished();
  const exit = left === 0 ? await process.exited : await within(process.exited, EXIT_WITHIN_MS);

  await output.settled(DRAIN_IDLE_MS, DRAIN_MAX_MS);
  const graceMs = run.claim.spec.timeouts.graceMs ?? run.options.killGraceMs;
  const leftovers = await endRest(process, output, { signal: 'SIGTERM', graceMs }, terminator);
  output.close();
  return decideEnding(cause, exit, leftovers);
}

async function within<T>(promise: Promise<T>, limitMs: number): Promise<T | undefined> {
  const limit = new AbortController();
  try {
    return await Promise.race([promise, sleep(limitMs, undefined, { signal: limit.signal })]);
  } finally {
    limit.abort();
  }
}

/** Ends what the leader left behind in its group. @returns what is still there */
async function endRest(
  { group }: RunningProcess,
  output: Output,
  wish: { signal: string; graceMs: number },
  terminator: Terminator,
): Promise<number> {
  if ((await group.members()) === 0) return 0;
  terminator.wish(wish);
  const left = await terminator.finished();
  await output.settled(LAST_DRAIN_IDLE_MS, DRAIN_IDLE_MS);
  return left;
}

/** The index of what this worker may run; an entry too many is harmless, so a failure is only told. */
async function forget({ presence }: RunPorts, { workerId }: RunOptions, commandId: CommandId, log: Log): Promise<void> {
  try {
    await presence.dropWorkerCommand(workerId, commandId);
  } catch (error) {
    log.debug({ error: messageOf(error) }, 'ended command stays listed for a while');
  }
}
