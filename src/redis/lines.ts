/** The port Lines: the queue knows the order of jobs, and who waits for a limit stands in the zsets of scripts/_turns.lua and tenant-place.lua. */
import type { Cluster, Redis } from 'ioredis';
import type { Lines, QueueProducer } from '../domain/ports.js';
import { parseSessionId } from '../protocol/ids.js';
import { answerOf } from './connections.js';
import type { Keys } from './keys.js';

export function createLines(options: {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly queue: Pick<QueueProducer, 'position'>;
}): Lines {
  const { redis, keys, queue } = options;

  async function rankIn(line: string | undefined, commandId: string): Promise<number | undefined> {
    const rank = line === undefined ? null : await answerOf(redis.zrank(line, commandId));
    return rank === null ? undefined : rank + 1;
  }

  return {
    async position({ commandId, tenant, pool, originSessionId, held }) {
      switch (held) {
        case 'delayed':
          return undefined;
        case 'session': {
          const sessionId = parseSessionId(originSessionId ?? '');
          return rankIn(sessionId && keys.heldBySession(sessionId), commandId);
        }
        case 'tenant':
          return rankIn(keys.tenantPlaces(tenant)[1], commandId);
        default:
          return queue.position(pool, commandId);
      }
    },
  };
}
