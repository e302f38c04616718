/**
 * What is done when Redis is nearly full (FAULTS O2): above 85 % of `maxmemory` new commands are refused, and the logs of
 * commands that are over are let go, oldest first, so that those that run can go on.
 */
import type { Cluster, Redis } from 'ioredis';
import type { Relief } from '../domain/ports.js';
import { parseCommandId } from '../protocol/ids.js';
import { DUE_BUCKETS, type Keys } from './keys.js';
import { askMasters } from './masters.js';
import { answerOf } from './redis-errors.js';
import type { Scripts } from './scripts.js';

export interface ReliefPorts {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly scripts: Scripts;
}

const TIGHT_SHARE = 0.85;
const KNOWN_MS = 1_000;
/** Ended commands looked at in each bucket of a step. */
const PAGE = 64;

export function createRelief({ redis, keys, scripts }: ReliefPorts): Relief {
  let share = 0;
  let askedMs = Number.NEGATIVE_INFINITY;
  let asking: Promise<void> | undefined;
  /** How many of each bucket's oldest were let go already. */
  const passed = new Array<number>(DUE_BUCKETS).fill(0);

  async function ask(): Promise<void> {
    const answers = await askMasters(redis, (master) => master.info('memory'));
    share = Math.max(0, ...answers.map(shareOf));
    askedMs = performance.now();
  }

  /** The worst master's, at most a second old. */
  async function current(): Promise<number> {
    if (performance.now() - askedMs < KNOWN_MS) return share;
    asking ??= ask().finally(() => {
      asking = undefined;
    });
    await asking;
    return share;
  }

  /** Ended commands in the order in which their retention ends, which is that of their ends. */
  async function oldest(): Promise<{ member: string; score: number; bucket: number }[]> {
    const pages = await answerOf(
      Promise.all(
        passed.map((from, bucket) =>
          redis.zrange(keys.due(bucket), String(from), String(from + PAGE - 1), 'WITHSCORES'),
        ),
      ),
    );
    const rows = pages.flatMap((flat, bucket) =>
      Array.from({ length: flat.length / 2 }, (_, n) => ({
        member: flat[2 * n] ?? '',
        score: Number(flat[2 * n + 1]),
        bucket,
      })),
    );
    return rows.sort((a, b) => a.score - b.score);
  }

  return {
    isTight: async () => (await current()) > TIGHT_SHARE,

    async trimOldest(limit) {
      if (!(await this.isTight())) {
        passed.fill(0);
        return 0;
      }
      let trimmed = 0;
      for (const { member, bucket } of await oldest()) {
        if (trimmed === limit) break;
        passed[bucket] = (passed[bucket] ?? 0) + 1;
        const id = member.startsWith('expire:') ? parseCommandId(member.slice('expire:'.length)) : undefined;
        if (id === undefined) continue;
        trimmed += (await scripts.run('trim-log', [keys.command(id), keys.first(id), keys.last(id)], [])) as number;
      }
      return trimmed;
    },
  };
}

function shareOf(memory: string): number {
  const field = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(memory)?.[1] ?? 0);
  const most = field('maxmemory');
  return most === 0 ? 0 : field('used_memory') / most;
}
