/**
 * Makes connections to Redis by role. Every connection reconnects for ever with jitter, notices a silent peer, and says
 * what is wrong at most once a second, never with the password.
 */
import { Cluster, type ClusterOptions, Redis, type RedisOptions } from 'ioredis';
import type { Log } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import { describeTarget, type RedisTarget } from './redis-url.js';
import { batchWrites } from './write-batches.js';

/** For the queue, which is given connections and makes none. */
export type { Cluster, Redis } from 'ioredis';
export { answerOf, asRedisError } from './redis-errors.js';
export { describeTarget, parseRedisUrl, type RedisTarget } from './redis-url.js';

/**
 * - `commands`: short requests. Nothing waits in memory while Redis is away; a call fails instead (CO9, DE5).
 * - `subscriber`: channels only. Subscribes again by hand, since an automatic resubscribe that is refused ends the process.
 * - `claims`: claims and their WAIT. Nothing is sent again by itself, since WAIT on a fresh socket answers for nothing (W1).
 * - `queue-producer`: as `commands`, for BullMQ queues.
 * - `queue-worker`: blocking reads of BullMQ, which wait through an outage.
 */
export type RedisRole = 'commands' | 'subscriber' | 'claims' | 'queue-producer' | 'queue-worker';

/** A silent link is found in this time plus at most one ping interval: 5 s are promised, a busy process needs the rest. */
const SOCKET_TIMEOUT_MS = 2_500;
const PING_INTERVAL_MS = 1_000;
/** A ping may wait behind claims that wait for a replica. */
const CLAIMS_ANSWER_MS = 10_000;
/** A blocking read of BullMQ lasts up to 10 s; less would cut living connections. */
const BLOCKING_SOCKET_TIMEOUT_MS = 20_000;
const COMMAND_TIMEOUT_MS = 5_000;
const CONNECT_TIMEOUT_MS = 3_000;
/** A goodbye that is not answered, as on a half-open link; it comes on top of the time in which that was found. */
const DISCONNECT_TIMEOUT_MS = 250;
const RETRY_FIRST_MS = 50;
/** Small, so that work goes on soon after Redis is back. */
const RETRY_LAST_MS = 1_000;
/** A member that hangs costs this much before the next is asked. */
const SLOTS_REFRESH_MS = 1_000;
const LOG_INTERVAL_MS = 1_000;
/** A server that loads its data is asked again so soon; its own guess of the time left is often ten times too long. */
const LOADING_RETRY_MS = 250;
const LEAST_MAJOR_VERSION = 7;

/** The caller closes it with `disconnect()`. */
export function createRedis(target: RedisTarget, role: RedisRole, log: Log): Redis | Cluster {
  const redis = target.type === 'cluster' ? createCluster(target, role) : new Redis(singleOptions(target, role));
  if (redis instanceof Cluster) redis.on('+node', batchWrites);
  else batchWrites(redis);
  reportFaults(redis, describeTarget(target), role, log);
  // BullMQ watches its own blocking connections; a ping there would only queue behind a blocked read.
  if (role !== 'queue-worker') keepProving(redis, role);
  return redis;
}

/** A plain connection to one member of a Cluster, with the access it was given. The caller closes it. */
export function createMember(cluster: Cluster, host: string, port: number, role: RedisRole, log: Log): Redis {
  const { redisOptions } = cluster.options;
  const redis = new Redis({ ...redisOptions, ...commonOptions(role), host, port, retryStrategy: retryDelayMs });
  batchWrites(redis);
  reportFaults(redis, `redis://${host}:${port}`, role, log);
  keepProving(redis, role);
  return redis;
}

/**
 * Resolves when Redis answers and is new enough.
 * @param signal of a caller who waits no longer: else a wait that nobody needs keeps the process until its time is over
 * @throws AppError REDIS_UNAVAILABLE with a sentence for people after `timeoutMs`
 */
export async function waitForRedis(redis: Redis | Cluster, timeoutMs: number, signal?: AbortSignal): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs;
  let lastFault = 'no answer';
  const noteFault = (error: unknown) => {
    lastFault = messageOf(error);
  };
  redis.on('error', noteFault);
  try {
    for (;;) {
      const leftMs = deadlineMs - performance.now();
      if (leftMs <= 0 || signal?.aborted === true) break;
      if (redis.status === 'ready') {
        try {
          checkVersion(await within(redis.info('server'), leftMs));
          return;
        } catch (error) {
          if (error instanceof AppError) throw error;
          noteFault(error);
        }
      }
      await readyOrTimeout(redis, Math.min(leftMs, 250));
    }
  } finally {
    redis.off('error', noteFault);
  }
  throw new AppError('REDIS_UNAVAILABLE', `Redis at ${addressOf(redis)} does not answer: ${lastFault}`);
}

function commonOptions(role: RedisRole): RedisOptions {
  const common: RedisOptions = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    disconnectTimeout: DISCONNECT_TIMEOUT_MS,
    connectionName: `homing-${role}`,
    keepAlive: 10_000,
    maxLoadingRetryTime: LOADING_RETRY_MS,
  };
  switch (role) {
    case 'commands':
    case 'queue-producer':
      return {
        ...common,
        enableOfflineQueue: false,
        maxRetriesPerRequest: 1,
        commandTimeout: COMMAND_TIMEOUT_MS,
        socketTimeout: SOCKET_TIMEOUT_MS,
      };
    case 'subscriber':
    case 'claims':
      return {
        ...common,
        enableOfflineQueue: false,
        maxRetriesPerRequest: 1,
        autoResubscribe: false,
        // A subscribe that was lost with its socket is made again by the bus, a claim by its worker; not twice by two.
        autoResendUnfulfilledCommands: false,
        commandTimeout: COMMAND_TIMEOUT_MS,
        socketTimeout: SOCKET_TIMEOUT_MS,
      };
    case 'queue-worker':
      return { ...common, maxRetriesPerRequest: null, socketTimeout: BLOCKING_SOCKET_TIMEOUT_MS };
  }
}

function singleOptions(target: Exclude<RedisTarget, { type: 'cluster' }>, role: RedisRole): RedisOptions {
  const access = accessOptions(target);
  const options: RedisOptions = { ...commonOptions(role), retryStrategy: retryDelayMs, db: target.db, ...access };
  switch (target.type) {
    case 'server':
      return { ...options, host: target.host, port: target.port, ...tlsOptions(target) };
    case 'socket':
      return { ...options, path: target.path };
    case 'sentinel':
      return {
        ...options,
        ...tlsOptions(target),
        enableTLSForSentinelMode: target.tls,
        sentinels: target.sentinels.map(({ host, port }) => ({ host, port })),
        name: target.name,
        sentinelRetryStrategy: retryDelayMs,
        ...(target.sentinelPassword === undefined ? {} : { sentinelPassword: target.sentinelPassword }),
      };
  }
}

function createCluster(target: Extract<RedisTarget, { type: 'cluster' }>, role: RedisRole): Cluster {
  const { enableOfflineQueue, ...redisOptions } = commonOptions(role);
  const options: ClusterOptions = {
    clusterRetryStrategy: retryDelayMs,
    clusterNodeRetryStrategy: retryDelayMs,
    // Who serves what is asked again after every redirect; those who only listen or claim meet few (see shards.ts).
    slotsRefreshInterval: SLOTS_REFRESH_MS,
    slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
    redisOptions: { ...redisOptions, ...accessOptions(target), ...tlsOptions(target) },
    ...(enableOfflineQueue === undefined ? {} : { enableOfflineQueue }),
  };
  return new Cluster(
    target.nodes.map(({ host, port }) => ({ host, port })),
    options,
  );
}

function accessOptions(target: RedisTarget): Pick<RedisOptions, 'username' | 'password'> {
  return {
    ...(target.username === undefined ? {} : { username: target.username }),
    ...(target.password === undefined ? {} : { password: target.password }),
  };
}

function tlsOptions(target: { readonly tls: boolean; readonly ca?: string }): Pick<RedisOptions, 'tls'> {
  return target.tls ? { tls: target.ca === undefined ? {} : { ca: target.ca } } : {};
}

/** Never ends. Jitter over half of the delay keeps many processes from coming back in one instant. */
function retryDelayMs(attempt: number): number {
  const fullMs = Math.min(RETRY_FIRST_MS * 2 ** Math.min(attempt - 1, 10), RETRY_LAST_MS);
  return Math.round(fullMs * (0.5 + Math.random() / 2));
}

/**
 * A dead link is only seen while an answer is awaited: so one always is. Where nothing comes any more the socket's own
 * time-out finds it; where only what we send is lost, messages still come, and the missing answer does.
 */
function keepProving(redis: Redis | Cluster, role: RedisRole): void {
  const answerWithinMs = role === 'claims' ? CLAIMS_ANSWER_MS : SOCKET_TIMEOUT_MS;
  const asked = new WeakSet<Redis>();
  const prove = (node: Redis) => {
    if (node.status !== 'ready' || asked.has(node)) return;
    asked.add(node);
    const timer = setTimeout(() => node.disconnect(true), answerWithinMs);
    timer.unref();
    let answered = false;
    // Whatever comes first. A close is the end of the question too: the next connection is not to answer for the one before.
    const over = () => {
      if (answered) return;
      answered = true;
      clearTimeout(timer);
      node.off('close', over);
      asked.delete(node);
    };
    node.once('close', over);
    node.ping().then(over, over);
  };
  const timer = setInterval(() => {
    for (const node of redis instanceof Cluster ? redis.nodes('master') : [redis]) prove(node);
  }, PING_INTERVAL_MS);
  timer.unref();
  redis.on('end', () => clearInterval(timer));
}

function reportFaults(redis: Redis | Cluster, address: string, role: RedisRole, log: Log): void {
  let lastLogMs = Number.NEGATIVE_INFINITY;
  let suppressed = 0;
  let faulty = false;
  redis.on('error', (error: unknown) => {
    faulty = true;
    const nowMs = performance.now();
    if (nowMs - lastLogMs < LOG_INTERVAL_MS) {
      suppressed += 1;
      return;
    }
    log.warn({ redis: address, role, fault: messageOf(error), suppressed }, 'Redis connection failed, trying again');
    lastLogMs = nowMs;
    suppressed = 0;
  });
  redis.on('ready', () => {
    if (faulty) log.info({ redis: address, role }, 'Redis connection is back');
    faulty = false;
  });
}

function checkVersion(info: string): void {
  const version = /^(?:valkey_version|redis_version):(\S+)/m.exec(info)?.[1] ?? '0';
  if (Number.parseInt(version, 10) >= LEAST_MAJOR_VERSION) return;
  throw new AppError('REDIS_UNAVAILABLE', `Redis ${version} is too old: version 7 or later, or Valkey, is needed`);
}

function addressOf(redis: Redis | Cluster): string {
  if (redis instanceof Cluster) return 'the cluster';
  const { path, host, port, sentinels, name } = redis.options;
  if (sentinels) return `master ${name} of the sentinels`;
  return path ? `unix://${path}` : `${host}:${port}`;
}

function readyOrTimeout(redis: Redis | Cluster, timeoutMs: number): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      redis.off('ready', done);
      resolve();
    };
    const timer = setTimeout(done, timeoutMs);
    redis.on('ready', done);
  });
}

function within<T>(promise: Promise<T>, timeoutMs: number): Promise<T> {
  let timer: NodeJS.Timeout;
  const expired = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('no answer')), timeoutMs);
  });
  return Promise.race([promise, expired]).finally(() => clearTimeout(timer));
}
