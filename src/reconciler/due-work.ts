/**
 * Timed work: grace ends, closes to go on with, commands queued but not claimed, retention. An item is dropped only when
 * its record says that nothing is left to do; until then it is noted again.
 */
import { jobOf } from '../domain/job.js';
import { type ClockStep, elapsedMs } from '../domain/liveness.js';
import type { CommandRecord, DueItem } from '../domain/ports.js';
import type { EndReason } from '../protocol/entries.js';
import { type CommandId, parseCommandId, parseSessionId, type SessionId } from '../protocol/ids.js';
import type { ReconcilerOptions, ReconcilerPorts } from './reconciler.js';

export async function settleDue(
  ports: ReconcilerPorts,
  options: ReconcilerOptions,
  item: DueItem,
  steps: readonly ClockStep[],
): Promise<void> {
  const { presence, log } = ports;
  const [kind, id] = item.member.split(':', 2);
  const sessionId = parseSessionId(id);
  const commandId = parseCommandId(id);
  let againInMs: number | undefined;
  if (kind === 'grace' && sessionId !== undefined) againInMs = await endGrace(ports, options, sessionId);
  else if (kind === 'close' && sessionId !== undefined) await goOnClosing(ports, options, sessionId);
  else if (kind === 'queued' && commandId !== undefined)
    againInMs = await checkQueued(ports, options, commandId, item.score, steps);
  else if (kind === 'expire' && commandId !== undefined) againInMs = await expire(ports, commandId);
  else if (kind === 'hook' && commandId !== undefined) againInMs = await tellEnd(ports, commandId);
  else log.warn({ member: item.member }, 'dropped a due item that this version does not know');

  if (againInMs === undefined) await presence.dropDue(item);
  else await presence.noteDue(item.member, againInMs);
}

/** Closes a session whose grace is over; a resume that came first wins. */
async function endGrace(ports: ReconcilerPorts, options: ReconcilerOptions, sessionId: SessionId) {
  const answer = await ports.sessions.close(sessionId, { type: 'grace' });
  if (answer.type === 'refused') return answer.dueInMs;
  ports.meter.count('homing_sessions_closed_total', { cause: 'grace' });
  ports.log.info({ sessionId, moved: answer.moved }, 'closed a session whose grace was over');
  await killOwnerless(ports, options, answer.toKill);
  return undefined;
}

/** Finishes a close that another process began (S3). */
async function goOnClosing(ports: ReconcilerPorts, options: ReconcilerOptions, sessionId: SessionId) {
  const answer = await ports.sessions.close(sessionId, { type: 'continue' });
  if (answer.type !== 'closed') return;
  ports.meter.count('homing_reconciler_actions_total', { action: 'closed' });
  await killOwnerless(ports, options, answer.toKill);
}

async function killOwnerless(ports: ReconcilerPorts, options: ReconcilerOptions, commandIds: readonly CommandId[]) {
  for (const commandId of commandIds) {
    await ports.commands.requestKill(commandId, {
      signal: 'SIGTERM',
      graceMs: options.killGraceMs,
      reason: 'owner_gone',
    });
  }
}

/** Q1: until a command is claimed, its job is looked after; at its deadline it ends as expired. */
async function checkQueued(
  ports: ReconcilerPorts,
  options: ReconcilerOptions,
  commandId: CommandId,
  redisNowMs: number,
  steps: readonly ClockStep[],
) {
  const { commands, queue, meter, log } = ports;
  /** Only who takes the claim has ended it. */
  const end = async (reason: EndReason, error: string) => {
    const { type } = await commands.endWithoutWorker(commandId, '', reason, error);
    if (type === 'ended') meter.count('homing_commands_ended_total', { reason });
  };
  const record = await commands.get(commandId);
  if (record === undefined || record.snapshot.state !== 'queued') return undefined;
  const { pool, createdAt } = record.snapshot;
  if (record.kill !== undefined) {
    await end(record.kill.reason, 'It was cancelled before it started.');
    await queue.remove(pool, commandId);
    return undefined;
  }
  const waitedMs = elapsedMs(createdAt, redisNowMs, steps);
  const leftMs = record.delayMs + (record.queueMs ?? options.queueMs) - waitedMs;
  if (leftMs <= 0) {
    await end('expired', 'No worker took it in the time it may wait in the queue.');
    await queue.remove(pool, commandId);
    return undefined;
  }
  const turn = record.line === undefined ? undefined : await ports.turns?.ask(commandId);
  if (turn?.ready === false) return Math.min(options.leaseMs, leftMs, turn.waitMs ?? leftMs);
  await ensureJob(ports, record, commandId, redisNowMs);
  log.debug({ commandId }, 'a queued command waits for a worker');
  return Math.min(options.leaseMs, leftMs);
}

async function ensureJob(ports: ReconcilerPorts, record: CommandRecord, commandId: CommandId, redisNowMs: number) {
  const { queue, meter, log } = ports;
  const { pool, createdAt } = record.snapshot;
  const state = await queue.state(pool, commandId);
  if (state === 'waiting' || state === 'active') return;
  // A finished job of a command that nobody claimed: a re-added id would stay finished, so it goes first.
  if (state === 'finished') await queue.remove(pool, commandId);
  await queue.add(pool, jobOf(record, record.snapshot), {
    priority: record.priority,
    // With a limit the delay is over when its turn has come.
    delayMs: record.line === undefined ? Math.max(0, createdAt + record.delayMs - redisNowMs) : 0,
  });
  meter.count('homing_reconciler_actions_total', { action: 'requeued' });
  log.warn({ commandId, state }, 'added the missing job of a queued command');
}

/** Noted just before the end is stored; the end may take longer, or fail and be told by another. */
const END_WITHIN_MS = 2_000;

async function tellEnd(ports: ReconcilerPorts, commandId: CommandId) {
  const record = await ports.commands.get(commandId);
  if (record?.webhook === undefined) return undefined;
  if (record.snapshot.state !== 'ended') return END_WITHIN_MS;
  await ports.webhooks.add(commandId);
  return undefined;
}

async function expire(ports: ReconcilerPorts, commandId: CommandId) {
  const answer = await ports.commands.expire(commandId);
  if (answer.type === 'expired') ports.meter.count('homing_reconciler_actions_total', { action: 'expired' });
  return answer.type === 'refused' ? answer.dueInMs : undefined;
}
