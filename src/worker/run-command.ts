/**
 * The life of one command on a worker, from its job to its last entry:
 *
 *   claim → admit → note the start on the host → start → read its output, wait for the first of all endings → end what is left of it → flush → `ended` → forget
 *
 * - Only the winner of the claim starts anything (CO2). Only a lost claim makes a worker stop without a word (T3).
 * - What Redis does while the process runs is the publisher's worry, not the process's (CO9).
 * - `ended` is the last entry, once, after all output (DE2), and is delivered however long Redis is away.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { createEndRace, decideEnding, type EndCause, type Ending, type Exit } from '../domain/outcome.js';
import type { Log, Span } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import { type ClaimId, type CommandId, makeClaimId } from '../protocol/ids.js';
import { type Admission, admit } from './admission.js';
import type { CommandGroup } from './cgroups.js';
import { claimCommand } from './claim-command.js';
import { makeCommandToken } from './confidential.js';
import type { Place } from './containment.js';
import { watchEndings } from './endings.js';
import { commandEnvironment } from './environment.js';
import { createOutput, type Output } from './output.js';
import { type RunningProcess, type StartResult, startProcess } from './process.js';
import type { Member } from './process-tree.js';
import type { PublishEnd } from './publisher.js';
import { ulimitsFor, watchMemory } from './resources.js';
import { type Claimed, openRun, type Run, type RunControl, type RunOptions, type RunPorts } from './run.js';
import { createTerminator, type Terminator } from './terminator.js';

/** After the leader's exit: output may go on this long without a pause, and a pause this long ends it (CO6). */
const DRAIN_IDLE_MS = 200;
const DRAIN_MAX_MS = 2_000;
/** After the rest was ended its pipes close at once; who holds them longer is outside of the command. */
const LAST_DRAIN_IDLE_MS = 50;
/** A leader that was killed is told by the kernel right away. */
const EXIT_WITHIN_MS = 2_000;

/** Resolves when the command is over here: ended and stored, refused, lost to another, or abandoned. */
export async function runCommand(
  ports: RunPorts,
  options: RunOptions,
  control: RunControl,
  commandId: CommandId,
  trace?: string,
): Promise<void> {
  const log = ports.log.child({ commandId });
  const claimId = makeClaimId(ports.chance.bytes(16));
  const token = makeCommandToken(commandId, ports.chance);
  const claim = await claimCommand(ports, options, control, commandId, claimId, token.hash, log);
  if (claim === undefined) return;
  if (claim.type === 'refused') {
    log.info({ state: claim.state }, 'command is not ours to run');
    await forget(ports, options, commandId, log);
    return;
  }

  const waitedMs = claim.startedAt - claim.createdAt - (claim.spec.delayMs ?? 0);
  ports.meter.observe('homing_command_wait_seconds', Math.max(0, waitedMs) / 1_000);
  const span = beginSpans(ports, options, commandId, claim, trace ?? claim.spec.trace);
  const run = openRun(ports, options, control, commandId, claimId, token, claim, span);
  let published: PublishEnd = 'closed';
  try {
    const ending = await execute(run);
    await run.notices.end();
    if (ending !== 'claim_lost') {
      run.publisher.add({ type: 'ended', outcome: run.outcomeOf(ending), ...traceOf(run) });
    }
    published = await run.publisher.done;
    endSpan(run, ending);
    const said = ending === 'claim_lost' ? { reason: ending } : { reason: ending.reason, code: ending.code };
    log.info({ published, ...said, sessionId: run.publisher.ownerSessionId }, 'command is over');
    if (ending === 'claim_lost') ports.meter.count('homing_claims_lost_total');
    else ports.meter.count('homing_commands_ended_total', { reason: ending.reason });
    // A command that was abandoned stays listed: the reconciler looks after it.
    if (!control.abandoned.aborted) await forget(ports, options, commandId, log);
  } finally {
    if (published === 'ended') keepEnded(run);
    else run.close();
  }
}

/** The wait in the queue as a span that is over, and one for the run that has begun. */
function beginSpans(
  { traces, containment }: RunPorts,
  { workerId }: RunOptions,
  commandId: CommandId,
  { createdAt, startedAt }: Claimed,
  parent: string | undefined,
): Span | undefined {
  if (traces === undefined) return undefined;
  const attributes = { 'homing.command.id': commandId, 'homing.worker.id': workerId };
  traces.begin('homing queue', { parent, kind: 'consumer', startMs: createdAt, attributes }).end({ endMs: startedAt });
  const run = { ...attributes, 'homing.containment': containment.level };
  return traces.begin('homing run', { parent, kind: 'internal', attributes: run });
}

/** What its entries carry, so that the node that delivers them goes on with the trace. */
const traceOf = ({ span }: Run) => (span === undefined ? {} : { trace: span.traceparent });

function endSpan({ span }: Run, ending: Ending | 'claim_lost'): void {
  const { reason, code } = ending === 'claim_lost' ? { reason: ending, code: null } : ending;
  span?.end({
    attributes: { 'homing.reason': reason, ...(code === null ? {} : { 'homing.exit_code': code }) },
    // A command that ends by itself, however it does, is no failure of ours (CO8).
    error: reason === 'exited' || reason === 'signaled' ? undefined : reason,
  });
}

/** Redis may lose the end of it for a while yet (L3). */
function keepEnded(run: Run): void {
  const { commandId, publisher, record } = run;
  const sayAgain = () => record.sayAgain(publisher.ownerSessionId);
  const isUnfinished = async () => {
    const found = await run.ports.store.get(commandId).catch((error: unknown) => {
      if (error instanceof AppError) throw error;
      // Damaged: nobody can say more of it.
      return undefined;
    });
    return found !== undefined && found.snapshot.state !== 'ended';
  };
  run.ports.kept.keep({ commandId, isUnfinished, sayAgain, recheck: publisher.recheck, close: run.close });
}

/** Starts the process, waits for its end, and ends what is left of it. */
async function execute(run: Run): Promise<Ending | 'claim_lost'> {
  const { meter } = run.ports;
  const claimedAtMs = performance.now();
  const cause = await causeOrPlace(run);
  if (cause.type !== 'placed') return decideEnding(cause, NOT_STARTED, []);
  const { place, cwd } = cause;

  const group = groupFor(run);
  const memory = watchMemory(group);
  const started = await start(run, place, cwd, group);
  if (started.type === 'spawn_failed') {
    group?.close();
    return decideEnding(started, NOT_STARTED, []);
  }
  const { process } = started;
  const startedAtMs = performance.now();
  meter.observe('homing_command_spawn_seconds', (startedAtMs - claimedAtMs) / 1_000);

  run.publisher.add({
    type: 'started',
    pid: process.pid,
    workerId: run.options.workerId,
    containment: run.ports.containment.level,
    ...(run.claim.originClosed ? { originClosed: true } : {}),
    ...traceOf(run),
  });
  run.ports.log.info(
    { commandId: run.commandId, pid: process.pid, sessionId: run.claim.ownerSessionId },
    'command runs',
  );
  const output = createOutput(process.outputs, run.confidential.mask, run.takeOutput, run.allocate);
  const race = createEndRace();
  const terminator = createTerminator(process.tree);
  const endings = watchEndings(run, process, output, race, terminator, memory);
  try {
    const first = await Promise.race([race.first, endings.claimLost]);
    if (first === 'claim_lost') {
      await process.tree.kill();
      return 'claim_lost';
    }
    const ending = await finish(run, first, process, output, terminator);
    meter.observe('homing_command_run_seconds', (performance.now() - startedAtMs) / 1_000);
    if (first.type !== 'exit') meter.count('homing_commands_killed_total', { reason: ending.reason });
    if (ending.leftovers > 0) meter.count('homing_kill_survivors_total', {}, ending.leftovers);
    return ending;
  } finally {
    endings.close();
    output.close();
    place.leave();
    group?.close();
  }
}

/** Without one its limits are held by looking, as on other hosts. */
function groupFor({ ports, commandId, claim }: Run): CommandGroup | undefined {
  try {
    return ports.cgroups?.group(commandId, claim.spec.resources ?? {});
  } catch (error) {
    ports.log.warn({ commandId, error: messageOf(error) }, 'a control group could not be made');
    return undefined;
  }
}

const NOT_STARTED: Exit = { code: null, signal: null };

type Placed = { readonly type: 'placed'; readonly place: Place; readonly cwd: string };

/** Everything that must be settled before a process may be: why it will not be, or where it goes. */
async function causeOrPlace({
  claim,
  claimId,
  commandId,
  confidential,
  options,
  ports,
}: Run): Promise<EndCause | Placed> {
  if (claim.kill !== undefined) return { type: 'kill', request: claim.kill };
  if (confidential.type === 'refused') return { type: 'refused', error: confidential.error };
  const admission: Admission = await admit(claim.spec, { ...options, containment: ports.containment });
  if (admission.type === 'refused') return admission;
  const { cwd, profile } = admission;
  const placing = ports.containment.place(profile, cwd);
  placing.catch(() => {}); // Told below; the ledger is asked meanwhile.
  const cause = await noteStart(ports.ledger, commandId, claimId);
  try {
    const place = await placing;
    if (cause === undefined) return { type: 'placed', place, cwd };
    place.leave();
    return cause;
  } catch (error) {
    return cause ?? { type: 'spawn_failed', error: `the host could not contain it: ${messageOf(error)}`, code: null };
  }
}

/** From here on the host knows that it was started, whatever Redis remembers (CO2). */
async function noteStart(
  ledger: RunPorts['ledger'],
  commandId: CommandId,
  claimId: ClaimId,
): Promise<EndCause | undefined> {
  try {
    if (await ledger.enter(commandId, claimId)) return undefined;
    return {
      type: 'lost',
      error: 'this host had started it before; it is not started twice, and how it ended is not known',
    };
  } catch (error) {
    return { type: 'refused', error: `the start could not be noted on this host: ${messageOf(error)}` };
  }
}

function start(run: Run, place: Place, cwd: string, group: CommandGroup | undefined): Promise<StartResult> {
  const { claim, options, ports, commandId, token, confidential } = run;
  const { spec, originSessionId } = claim;
  const { envAllow: allow, hostEnv, runAs } = options;
  const { mark } = ports.containment;
  const login = runAs?.env;
  const secrets = confidential.type === 'known' ? confidential.secrets : {};
  const inside = { token: token.text, url: options.gatewayUrl, folder: ports.shim?.folder };
  const env = commandEnvironment({ allow, hostEnv, spec, secrets, commandId, originSessionId, inside, mark, login });
  const limits = ulimitsFor(spec.resources ?? {});
  const enterGroup = group?.enter ?? [];
  const request = { spec, cwd, env, place, enterGroup, mark: `HOMING_COMMAND_ID=${commandId}`, limits, runAs };
  return startProcess(request, ports.pipes);
}

/** The first cause is known: waits for the leader, the last output and the end of all others. */
async function finish(
  run: Run,
  cause: EndCause,
  process: RunningProcess,
  output: Output,
  terminator: Terminator,
): Promise<Ending> {
  // After a kill this is the time until all are gone; an exit by itself needs no waiting.
  const left = await terminator.finished();
  const exit = left.length === 0 ? await process.exited : await within(process.exited, EXIT_WITHIN_MS);

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

/** Ends what the leader left behind. @returns who is still there */
async function endRest(
  { tree }: RunningProcess,
  output: Output,
  wish: { signal: string; graceMs: number },
  terminator: Terminator,
): Promise<readonly Member[]> {
  if ((await tree.members()).length === 0) return [];
  terminator.wish(wish);
  await terminator.finished();
  // Whoever was started while the others ended.
  const left = await tree.kill();
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
