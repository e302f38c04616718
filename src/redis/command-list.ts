/**
 * Pages of a conversation's commands, newest first. One that fits a filter may lie far back among those that do not, so an
 * answer looks at a bounded number of them, and gives what it found and a cursor.
 */
import type { Cluster, Redis } from 'ioredis';
import type { CommandStore, Log } from '../domain/ports.js';
import { type CommandId, parseCommandId, type Tag } from '../protocol/ids.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import type { Keys } from './keys.js';
import { readHashes } from './pipelines.js';
import type { Scripts } from './scripts.js';
import { readable, readSnapshot } from './snapshot.js';

/** Commands looked at in one round trip of a list, and of one that wants a certain state, which the script itself sees. */
const LIST_CHUNK = 200;
const STATE_CHUNK = 500;
/** Commands looked at for one call; then it answers what it has and a cursor. */
const MAX_LISTED = 1_000;

export function createCommandList(options: {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly scripts: Scripts;
  /** Told of records that are damaged or newer, and left out. */
  readonly log?: Pick<Log, 'error'> | undefined;
}): CommandStore['list'] {
  const { redis, keys, scripts, log } = options;
  return async (place, { cursor, limit, state, label }) => {
    const [labelName, labelValue] = label?.split(/=(.*)/s) ?? [];
    const commands: CommandSnapshot[] = [];
    let before = cursor === undefined ? '+inf' : `(${cursor}`;
    const chunk = state === undefined ? LIST_CHUNK : STATE_CHUNK;
    for (let seen = 0; seen < MAX_LISTED; seen += chunk) {
      // With a label each must be read before it is known whether it fits.
      const enough = labelName === undefined ? limit - commands.length : chunk;
      const [over, last, ...flat] = (await scripts.run(
        'list',
        [keys.commands(place.tag as Tag)],
        [keys.tagPrefix(place.tag as Tag), place.principal, state ?? '', before, chunk, enough],
      )) as [number, string, ...string[]];
      const wanted = Array.from({ length: flat.length / 2 }, (_, i) => ({
        id: parseCommandId(flat[i * 2]),
        score: flat[i * 2 + 1] ?? '',
      })).filter((row): row is { id: CommandId; score: string } => row.id !== undefined);
      const hashes = await readHashes(
        redis,
        wanted.map(({ id }) => keys.command(id)),
      );
      for (const [index, { id, score }] of wanted.entries()) {
        const hash = hashes[index];
        if (hash?.v === undefined) continue;
        const snapshot = readable(() => readSnapshot(keys.command(id), id, hash), log);
        if (snapshot === undefined) continue;
        const value = labelName === undefined ? undefined : snapshot.labels[labelName];
        if (labelName !== undefined && (value === undefined || (labelValue !== undefined && value !== labelValue)))
          continue;
        commands.push(snapshot);
        if (commands.length === limit) return { commands, next: score };
      }
      if (over === 1) return { commands };
      before = `(${last}`;
    }
    return { commands, next: before.slice(1) };
  };
}
