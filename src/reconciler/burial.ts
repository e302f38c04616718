/** What is left of a dead process: its commands end as `lost`, its sessions are away. Each step may be repeated. */
import { AppError, messageOf } from '../errors.js';
import type { ClaimId, NodeId, WorkerId } from '../protocol/ids.js';
import type { ReconcilerPorts } from './reconciler.js';

/** Ends what a dead worker ran (CO3). The claim is compared, so a worker that is not dead after all just loses it. */
export async function buryWorker(ports: ReconcilerPorts, workerId: WorkerId): Promise<void> {
  const { commands, presence, log, meter } = ports;
  for (const commandId of await presence.workerCommands(workerId)) {
    const record = await commands.get(commandId).catch((error: unknown) => {
      if (error instanceof AppError) throw error;
      // Who can not be read can not be ended either; the others of the worker can.
      log.error({ commandId, workerId, fault: messageOf(error) }, 'could not read what a dead worker ran');
      return undefined;
    });
    if (record?.snapshot.state === 'running' && record.workerId === workerId) {
      const answer = await commands.endWithoutWorker(
        commandId,
        record.claimId as ClaimId,
        'lost',
        'The worker that ran this command stopped answering.',
      );
      if (answer.type === 'ended') {
        meter.count('homing_reconciler_actions_total', { action: 'lost' });
        meter.count('homing_commands_ended_total', { reason: 'lost' });
        log.warn({ commandId, workerId }, 'ended a command whose worker is dead');
      }
    }
    await presence.dropWorkerCommand(workerId, commandId);
  }
  await presence.forgetWorker(workerId);
  log.warn({ workerId }, 'forgot a dead worker');
}

/** Makes away what a dead node held; resumes elsewhere win, since the node is compared (SE3, SE5). */
export async function buryNode(ports: ReconcilerPorts, nodeId: NodeId): Promise<void> {
  const { sessions, presence, log, meter } = ports;
  for (const sessionId of await presence.nodeSessions(nodeId)) {
    await sessions.detachFromNode(sessionId, nodeId);
    await presence.dropNodeSession(nodeId, sessionId);
    meter.count('homing_reconciler_actions_total', { action: 'detached' });
  }
  await presence.forgetNode(nodeId);
  log.warn({ nodeId }, 'forgot a dead node');
}
