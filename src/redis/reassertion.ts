/** The port Reassertion on Redis: what a process holds is said again, and a script decides whether it still counts (R2). */
import type { Cluster, Redis } from 'ioredis';
import type { CommandRestored, Presence, Reassertion, SessionRestored } from '../domain/ports.js';
import { tagOf } from '../protocol/ids.js';
import type { Keys } from './keys.js';
import { answerOf } from './redis-errors.js';
import type { Scripts } from './scripts.js';

export interface ReassertionPorts {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly scripts: Scripts;
  readonly presence: Pick<Presence, 'noteNodeSession'>;
}

export function createReassertion({ redis, keys, scripts, presence }: ReassertionPorts): Reassertion {
  return {
    async session(held): Promise<SessionRestored> {
      // Intent before record (S2).
      await presence.noteNodeSession(held.nodeId, held.sessionId);
      const [type] = (await scripts.run(
        'restore-session',
        [keys.session(held.sessionId)],
        [
          keys.tagPrefix(held.tag),
          held.sessionId,
          held.tenant,
          held.conversation,
          held.principal,
          held.generation,
          held.attachmentId,
          held.nodeId,
          held.resumeTokenHash,
          held.pageNonce,
          held.rev,
          Math.max(0, Math.round(held.idleMs)),
        ],
      )) as [SessionRestored['type'], ...unknown[]];
      return { type };
    },

    async recordOf(commandId) {
      const hash = await answerOf(redis.hgetall(keys.command(commandId)));
      return Object.entries(hash).flat();
    },

    async command({ commandId, claimId, ownerSessionId, record }): Promise<CommandRestored> {
      const [type] = (await scripts.run(
        'restore-command',
        [keys.command(commandId), keys.first(commandId), keys.last(commandId)],
        [keys.tagPrefix(tagOf(commandId)), commandId, claimId, ownerSessionId ?? '', ...record],
      )) as [CommandRestored['type'], number];
      return { type };
    },
  };
}
