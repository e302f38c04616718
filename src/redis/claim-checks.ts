/**
 * The looks of a worker at the commands it runs: one script for many of them, on a Cluster for those of one conversation.
 * A worker with hundreds of silent commands looks at each every two seconds.
 */
import type { Cluster, Redis } from 'ioredis';
import { AppError } from '../errors.js';
import { type CommandId, tagOf } from '../protocol/ids.js';
import type { Keys } from './keys.js';
import { readFields } from './pipelines.js';
import type { Scripts } from './scripts.js';
import { MAX_LOOKED_AT, type SlotGroup, slotGroup } from './slots.js';

const FIELDS = ['claim', 'state', 'kill', 'in', 'inb', 'size'] as const;

/** In the order of FIELDS; null where there is none. */
export type ClaimFields = readonly (string | null)[];

/** @throws AppError REDIS_UNAVAILABLE */
export function createClaimChecks(options: {
  readonly redis: Redis | Cluster;
  readonly scripts: Scripts;
  readonly keys: Keys;
}): (ids: readonly CommandId[]) => Promise<ReadonlyMap<CommandId, ClaimFields>> {
  const { redis, scripts, keys } = options;

  async function look(ids: readonly CommandId[]): Promise<readonly (readonly [CommandId, ClaimFields])[]> {
    const names = ids.map((id) => keys.command(id));
    const rows = (await scripts.run('claims', names, []).catch((error: unknown) => {
      if (error instanceof AppError) throw error;
      // What is damaged in one record, or a server that is a Cluster behind one address, holds up nobody else.
      return readFields(redis, names, FIELDS);
    })) as readonly ClaimFields[];
    return ids.map((id, index) => [id, rows[index] ?? []] as const);
  }

  return async (ids) => {
    const groups = new Map<SlotGroup, CommandId[]>();
    for (const id of ids) {
      const group = slotGroup(redis, tagOf(id));
      const others = groups.get(group);
      if (others === undefined) groups.set(group, [id]);
      else others.push(id);
    }
    const looks: ReturnType<typeof look>[] = [];
    for (const group of groups.values()) {
      for (let at = 0; at < group.length; at += MAX_LOOKED_AT) looks.push(look(group.slice(at, at + MAX_LOOKED_AT)));
    }
    return new Map((await Promise.all(looks)).flat());
  };
}
