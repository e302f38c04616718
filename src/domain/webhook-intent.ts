/**
 * Notes that a webhook is due before the end of its command is stored (intent before record, FAULTS S2), whoever stores
 * it: a worker with its last entry, or who ends a command without one. A note too many is harmless; the reconciler looks
 * at the record and drops it.
 */
import type { CommandId } from '../protocol/ids.js';
import type { CommandStore, Presence } from './ports.js';

export const hookMember = (commandId: CommandId): string => `hook:${commandId}`;

/** The same store; the worker that claims a command with a webhook remembers so until it has stored the end. */
export function withWebhookIntent(store: CommandStore, presence: Pick<Presence, 'noteDue'>): CommandStore {
  const claimed = new Set<CommandId>();

  return {
    ...store,
    async claim(...args) {
      const result = await store.claim(...args);
      const [commandId] = args;
      if (result.type === 'claimed' && result.spec.notify?.webhook !== undefined) claimed.add(commandId);
      return result;
    },
    async append(request) {
      const { commandId, outcome } = request;
      if (outcome !== undefined && claimed.has(commandId)) await presence.noteDue(hookMember(commandId), 0);
      const result = await store.append(request);
      const over = result.type === 'claim_lost' || (outcome !== undefined && result.type === 'appended');
      if (over) claimed.delete(commandId);
      return result;
    },
    async endWithoutWorker(...args) {
      await presence.noteDue(hookMember(args[0]), 0);
      return store.endWithoutWorker(...args);
    },
  };
}
