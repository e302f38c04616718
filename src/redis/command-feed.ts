/** The port CommandFeed on Redis: plain reads of the conversation's index and of some fields of the records. */
import type { Cluster, Redis } from 'ioredis';
import type { CommandFeed } from '../domain/command-feed.js';
import { type CommandId, parseCommandId } from '../protocol/ids.js';
import { answerOf } from './connections.js';
import type { Keys } from './keys.js';
import { readFields } from './pipelines.js';

export function createCommandFeed(options: { readonly redis: Redis | Cluster; readonly keys: Keys }): CommandFeed {
  const { redis, keys } = options;

  return {
    async nowMs() {
      const [seconds, micros] = await answerOf(redis.time());
      return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
    },

    async after({ tag, principal }, mark, limit) {
      const flat = await answerOf(
        redis.zrangebyscore(keys.commands(tag), `(${mark}`, '+inf', 'WITHSCORES', 'LIMIT', 0, limit),
      );
      const rows: { commandId: CommandId; mark: number }[] = [];
      let nextMark = mark;
      for (let i = 0; i + 1 < flat.length; i += 2) {
        nextMark = Number(flat[i + 1]);
        const commandId = parseCommandId(flat[i]);
        if (commandId !== undefined) rows.push({ commandId, mark: nextMark });
      }
      const facts = await readFields(
        redis,
        rows.map(({ commandId }) => keys.command(commandId)),
        ['principal', 'ended'],
      );
      const items = rows.flatMap((row, index) => {
        const [owner, endedAt] = facts[index] ?? [];
        if (typeof owner !== 'string' || (principal !== undefined && owner !== principal)) return [];
        return [{ ...row, ...(endedAt ? { endedAt: Number(endedAt) } : {}) }];
      });
      return { items, nextMark, more: flat.length / 2 === limit };
    },

    async heads(ids) {
      const rows = await readFields(
        redis,
        ids.map((id) => keys.command(id)),
        ['head', 'state'],
      );
      return rows.map(([head, state]) =>
        typeof head === 'string' ? { headSeq: Number(head), ended: state === 'ended' } : undefined,
      );
    },
  };
}
