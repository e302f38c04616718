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
import { createEndRace, decideEnding, type EndCause, type Ending, type Exit } from '../domain/outcome.js';
import type { Log } from '../domain/ports.js';
import { unsupportedField } from '../domain/supported.js';
import { messageOf } from '../errors.js';
import { type CommandId, makeClaimId } from '../protocol/ids.js';
import { claimCommand } from './claim-command.js';
import { watchEndings } from './endings.js';
import { commandEnvironment } from './environment.js';
import { createOutput, type Output } from './output.js';
import { type RunningProcess, startProcess } from './process.js';
import { CONTAINMENT, openRun, type Run, type RunControl, type RunOptions, type RunPorts } from './run.js';
import { createTerminator, type Terminator } from './terminator.js';

/** After the leader's exit: output may go on this long without a pause, and a pause this long ends it (CO6). */
const DRAIN_IDLE_MS = 200;
const DRAIN_MAX_MS = 2_000;
/** After the rest of the group was ended its pipes close at once; who holds them longer is outside of the group. */
const LAST_DRAIN_IDLE_MS = 50;
/** A leader that was killed is told by the kernel right away. */
const EXIT_WITHIN_MS = 2_000;

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
      spec,
      cwd: spec.cwd ?? options.defaultCwd,
      env: commandEnvironment({ allow: options.envAllow, hostEnv: options.hostEnv, spec, commandId, originSessionId }),
    },
    ports.pipes,
  );
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
