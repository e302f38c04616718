/** Ends commands on request: a running one through its worker, a queued one here (CO5). */
import type { CommandStore, KillRequest, Log, QueueProducer } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import type { CommandId } from '../protocol/ids.js';
import { unknownCommand } from './access.js';

export interface KillPorts {
  readonly commands: CommandStore;
  readonly queue: QueueProducer;
  readonly log: Log;
}

/** `ended` also for what was over before, so that a repeat of a call whose answer was lost is no error. @throws AppError UNKNOWN_COMMAND */
export async function killCommand(
  ports: KillPorts,
  commandId: CommandId,
  pool: string,
  kill: KillRequest,
): Promise<{ state: 'requested' | 'ended' }> {
  const result = await ports.commands.requestKill(commandId, kill);
  if (result.type === 'unknown') throw unknownCommand();
  if (result.type === 'ended') return { state: 'ended' };
  ports.log.info({ commandId, reason: kill.reason, signal: kill.signal, state: result.state }, 'a command is to end');
  if (result.state === 'running') return { state: 'requested' };
  // Claimed in this moment: refused, and the worker finds the wish in the record.
  const ended = await ports.commands.endWithoutWorker(commandId, '', kill.reason, 'ended before it was started');
  if (ended.type === 'refused') return { state: 'requested' };
  try {
    await ports.queue.remove(pool, commandId);
  } catch (error) {
    // A job without a command to run does nothing: the claim is refused.
    ports.log.debug({ commandId, fault: messageOf(error) }, 'could not remove the job of an ended command');
  }
  return { state: 'ended' };
}

/** What the policy `kill` of a closed session asks for; a command that is over by itself is as good (OW11). */
export async function killOwnerless(ports: KillPorts, ids: readonly CommandId[], graceMs: number): Promise<void> {
  for (const id of ids) {
    try {
      const record = await ports.commands.get(id);
      if (record === undefined) continue;
      await killCommand(ports, id, record.snapshot.pool, { signal: 'SIGTERM', graceMs, reason: 'owner_gone' });
    } catch (error) {
      if (error instanceof AppError && error.code !== 'REDIS_UNAVAILABLE') continue;
      ports.log.warn({ commandId: id, fault: messageOf(error) }, 'could not end a command whose owner is gone');
    }
  }
}
