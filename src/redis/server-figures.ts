/** Memory and round trip of the server, for operators. On a Cluster: the sum of the masters, the worst policy. */
import type { Cluster, Redis } from 'ioredis';
import { askMasters } from './masters.js';

export interface ServerFigures {
  readonly roundTripMs: number;
  readonly usedMemoryBytes: number;
  /** 0: no limit. */
  readonly maxMemoryBytes: number;
  readonly noEviction: boolean;
}

/** @throws AppError REDIS_UNAVAILABLE */
export async function readServerFigures(redis: Redis | Cluster): Promise<ServerFigures> {
  const startedMs = performance.now();
  await askMasters(redis, (master) => master.ping());
  const roundTripMs = performance.now() - startedMs;
  const texts = await askMasters(redis, (master) => master.info('memory'));
  const field = (text: string, name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1] ?? '';
  const sum = (name: string) => texts.reduce((total, text) => total + Number(field(text, name)), 0);
  return {
    roundTripMs,
    usedMemoryBytes: sum('used_memory'),
    maxMemoryBytes: sum('maxmemory'),
    noEviction: texts.every((text) => field(text, 'maxmemory_policy') === 'noeviction'),
  };
}
