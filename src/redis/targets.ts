/** From settings to Redis: which one is meant, and whether it answers. */
import type { Settings } from '../config.js';
import type { Log } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import { createRedis, parseRedisUrl, type RedisTarget, waitForRedis } from './connections.js';

/** Where a node or worker looks for Redis that is told nothing. */
const DEFAULT_REDIS_URL = 'redis://127.0.0.1:6379';

/** How long Redis may take to answer at the start before that is a failure. */
const REDIS_START_MS = 5_000;

type RedisSettings = Pick<
  Settings,
  'HOMING_REDIS_URL' | 'HOMING_QUEUE_REDIS_URL' | 'HOMING_REDIS_CA' | 'HOMING_SENTINEL_PASSWORD'
>;

/** @throws AppError INVALID_PARAMS for an address that is none */
export function redisTargets(settings: RedisSettings): {
  readonly target: RedisTarget;
  /** The same unless the queues have their own. */
  readonly queueTarget: RedisTarget;
} {
  const { HOMING_REDIS_CA: ca, HOMING_SENTINEL_PASSWORD: sentinelPassword } = settings;
  const extras = {
    ...(ca === undefined ? {} : { ca }),
    ...(sentinelPassword === undefined ? {} : { sentinelPassword }),
  };
  const url = settings.HOMING_REDIS_URL ?? DEFAULT_REDIS_URL;
  return {
    target: parseRedisUrl(url, extras),
    queueTarget: parseRedisUrl(settings.HOMING_QUEUE_REDIS_URL ?? url, extras),
  };
}

/**
 * Resolves when it answers.
 * @param setting named as what to change
 * @throws AppError REDIS_UNAVAILABLE with a sentence that says what to do
 */
export async function requireRedis(
  redis: ReturnType<typeof createRedis>,
  setting: 'HOMING_REDIS_URL' | 'HOMING_QUEUE_REDIS_URL',
): Promise<void> {
  try {
    await waitForRedis(redis, REDIS_START_MS);
  } catch (error) {
    throw new AppError('REDIS_UNAVAILABLE', `${messageOf(error)}. Start it, or change ${setting}.`, { cause: error });
  }
}

/** Whether the Redis of the records answers. @throws AppError REDIS_UNAVAILABLE with a sentence */
export async function checkRedis(settings: RedisSettings): Promise<void> {
  const redis = createRedis(redisTargets(settings).target, 'commands', silent);
  try {
    await requireRedis(redis, 'HOMING_REDIS_URL');
  } finally {
    redis.disconnect();
  }
}

const silent: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
