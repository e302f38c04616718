/**
 * What Redis says this worker runs, against what it runs: a command that is recorded as running here and is not would look
 * alive for ever, because its worker is (FAULTS L3, S2).
 */
import type { CommandStore, Log, Meter, Presence } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import type { ClaimId, CommandId, WorkerId } from '../protocol/ids.js';

export interface AuditPorts {
  readonly store: Pick<CommandStore, 'get' | 'endWithoutWorker'>;
  readonly presence: Pick<Presence, 'workerCommands' | 'dropWorkerCommand'>;
  readonly log: Log;
  readonly meter: Meter;
}

/** @param isHere whether it runs here, is about to, or has ended a moment ago. @throws AppError REDIS_UNAVAILABLE */
export async function auditCommands(
  { store, presence, log, meter }: AuditPorts,
  workerId: WorkerId,
  isHere: (commandId: CommandId) => boolean,
): Promise<void> {
  for (const commandId of await presence.workerCommands(workerId)) {
    if (isHere(commandId)) continue;
    const record = await store.get(commandId).catch((error: unknown) => {
      if (error instanceof AppError) throw error;
      log.error({ commandId, fault: messageOf(error) }, 'could not read what is recorded as running here');
      return undefined;
    });
    if (isHere(commandId)) continue;
    if (record?.snapshot.state === 'running' && record.workerId === workerId) {
      const error = 'Redis lost how this command ended, and its worker no longer has it.';
      const answer = await store.endWithoutWorker(commandId, record.claimId as ClaimId, 'lost', error);
      if (answer.type === 'ended') {
        meter.count('homing_commands_ended_total', { reason: 'lost' });
        log.warn({ commandId }, 'ended a command that is recorded as running here and is not');
      }
    }
    await presence.dropWorkerCommand(workerId, commandId);
  }
}
