/**
 * Claims confirmed by replicas (FAULTS W1): the claim and its WAIT go over one socket to the master of the command, used for
 * nothing else, and nothing is sent again by itself. On any break the worker asks again with the same claim id; the script
 * then writes again, so that WAIT on the fresh socket has something to wait for.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster, Redis } from 'ioredis';
import type { Log, Meter } from '../domain/ports.js';
import { AppError } from '../errors.js';
import { asRedisError } from './redis-errors.js';
import type { ScriptArgument } from './scripts.js';
import { createShards, type Shard, type Shards } from './shards.js';

export interface ClaimLaneOptions {
  /** A connection of role `claims`, or a Cluster that tells who serves what. Called at the first claim; stays the caller's. */
  connect(): Redis | Cluster;
  /** The text of claim.lua: sent whole each time, since a second round trip would come after the WAIT. */
  readonly lua: string;
  /** Replicas that have to confirm; `auto`: one where one is connected. */
  readonly replicas: number | 'auto';
  /** What a claim is worth that too few confirmed in time. */
  readonly shortfall: 'spawn' | 'refuse';
  readonly log: Log;
  readonly meter: Meter;
}

export interface ClaimLane {
  /** @throws AppError REDIS_UNAVAILABLE: ask again with the same claim id */
  run(key: string, args: readonly ScriptArgument[]): Promise<unknown>;
  close(): void;
}

/** A replica that is well confirms in a millisecond or two. Claims of one master wait for each other this long. */
const CONFIRM_WITHIN_MS = 500;
const REPLICAS_KNOWN_MS = 2_000;
/** Two members that hang are asked in vain meanwhile. */
const READY_WITHIN_MS = 3_000;
const SERVED_POLL_MS = 50;

export function createClaimLane(options: ClaimLaneOptions): ClaimLane {
  const { connect, lua, replicas, shortfall, log, meter } = options;
  let shards: Shards | undefined;
  /** How many replicas have to confirm at each master, and when that was asked. */
  const wanted = new WeakMap<Redis, { readonly count: number; readonly atMs: number }>();

  async function shardOf(key: string): Promise<Shard> {
    shards ??= createShards({ redis: connect(), role: 'claims', log });
    const shard = shards.of(key) ?? (await served(shards, key));
    if (shard === undefined) throw new AppError('REDIS_UNAVAILABLE', 'nobody serves the slot of this command now');
    if (shard.redis.status !== 'ready') await ready(shard.redis);
    return shard;
  }

  async function wantedAt(redis: Redis): Promise<number> {
    if (replicas !== 'auto') return replicas;
    const known = wanted.get(redis);
    if (known !== undefined && performance.now() - known.atMs < REPLICAS_KNOWN_MS) return known.count;
    const count = /state=online/.test(await redis.info('replication')) ? 1 : 0;
    wanted.set(redis, { count, atMs: performance.now() });
    return count;
  }

  async function claim(key: string, args: readonly ScriptArgument[]): Promise<unknown> {
    const { redis } = await shardOf(key);
    const count = await wantedAt(redis);
    const answer = redis.call('EVAL', lua, 1, key, ...args);
    if (count === 0) return answer;
    // Issued without waiting in between: what breaks the socket fails both.
    const confirmed = redis.wait(count, CONFIRM_WITHIN_MS);
    confirmed.catch(() => undefined);
    const [claimed, confirming] = await Promise.all([answer, confirmed]);
    if (confirming < count && isClaimed(claimed)) tooFew(count, confirming);
    return claimed;
  }

  function tooFew(count: number, confirming: number): void {
    meter.count('homing_claims_short_total');
    if (shortfall === 'spawn') {
      log.warn({ count, confirming }, 'too few replicas confirmed a claim in time');
      return;
    }
    throw new AppError('REDIS_UNAVAILABLE', `${confirming} of ${count} replicas confirmed the claim; asking again`);
  }

  return {
    async run(key, args) {
      try {
        return await claim(key, args);
      } catch (error) {
        shards?.refresh();
        throw asRedisError(error);
      }
    },
    close() {
      shards?.close();
    },
  };
}

const isClaimed = (answer: unknown): boolean => Array.isArray(answer) && answer[0] === 'claimed';

/** A Cluster that has not yet said who serves what, or is failing over. */
async function served(shards: Shards, key: string): Promise<Shard | undefined> {
  const untilMs = performance.now() + READY_WITHIN_MS;
  shards.refresh();
  for (;;) {
    const shard = shards.of(key);
    if (shard !== undefined || performance.now() > untilMs) return shard;
    await sleep(SERVED_POLL_MS);
  }
}

/** A socket that is being made: an outage if it takes long. */
function ready(redis: Redis): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (error?: AppError) => {
      clearTimeout(timer);
      redis.off('ready', isReady);
      if (error === undefined) resolve();
      else reject(error);
    };
    const isReady = () => done();
    const timer = setTimeout(() => done(new AppError('REDIS_UNAVAILABLE', 'Redis does not answer')), READY_WITHIN_MS);
    // As many as commands start at once.
    redis.setMaxListeners(0);
    redis.on('ready', isReady);
  });
}
