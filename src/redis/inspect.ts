/**
 * Gathers what `homing doctor` judges of a Redis: every server that takes writes is asked on a connection of its own, and
 * proved by messages through a sharded channel of a slot it serves. Reads only, but for those messages.
 */
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Cluster, Redis } from 'ioredis';
import type { Log } from '../domain/ports.js';
import type {
  BufferLimit,
  Deployment,
  RedisFacts,
  ReplicaFacts,
  RoundTrips,
  SentinelFacts,
  ServerFacts,
} from '../domain/redis-health.js';
import { messageOf } from '../errors.js';
import { createRedis, type RedisTarget, waitForRedis } from './connections.js';
import type { Keys } from './keys.js';
import { createShards, type Shard } from './shards.js';

const ANSWER_WITHIN_MS = 5_000;
const TRIP_WITHIN_MS = 2_000;
const TRIPS = 5;
const TRIES_FOR_A_SLOT = 20_000;

/** Resolves within seconds, whatever answers. @throws AppError REDIS_UNAVAILABLE with a sentence when nothing does */
export async function inspectRedis(target: RedisTarget, keys: Keys): Promise<RedisFacts> {
  const asking = createRedis(target, 'commands', silent);
  const hearing = createRedis(target, 'subscriber', silent);
  const asked = createShards({ redis: asking, role: 'commands', log: silent });
  const heard = createShards({ redis: hearing, role: 'subscriber', log: silent });
  try {
    await firstAnswer(asking);
    await settled(hearing);
    const servers = await Promise.all(
      asked.all().map(async (shard) => {
        const ears = heard.all().find(({ id }) => id === shard.id);
        await settled(shard.redis);
        return inspectServer(target, shard, () => roundTrips(shard, ears, channelOn(shard, asked.of, keys)));
      }),
    );
    return { deployment: await deploymentOf(target, asking), servers };
  } finally {
    asked.close();
    heard.close();
    asking.disconnect();
    hearing.disconnect();
  }
}

/** An old one answers too: what is wrong with it is a finding, and not that it does not answer. */
async function firstAnswer(redis: Redis | Cluster): Promise<void> {
  try {
    await waitForRedis(redis, ANSWER_WITHIN_MS);
  } catch (error) {
    if (redis.status !== 'ready') throw error;
  }
}

/** Gives a connection its time to be ready; what needs it then says that it is not. */
async function settled(redis: Redis | Cluster): Promise<void> {
  for (let waitedMs = 0; redis.status !== 'ready' && waitedMs < ANSWER_WITHIN_MS; waitedMs += 10) await delay(10);
}

async function inspectServer(target: RedisTarget, { id, redis }: Shard, trips: () => Promise<RoundTrips>) {
  const sentMs = Date.now();
  const [seconds, micros] = await redis.time();
  const midMs = (sentMs + Date.now()) / 2;
  const info = factsOf(await redis.info());
  const number = (name: string) => Number(info.get(name) ?? 0);
  const facts: ServerFacts = {
    address: id || placeOf(redis),
    local: target.type === 'socket' || isLocal((redis.stream as Partial<Socket>).remoteAddress),
    product: info.has('valkey_version') ? 'Valkey' : 'Redis',
    version: info.get('valkey_version') ?? info.get('redis_version') ?? '0',
    evictionPolicy: info.get('maxmemory_policy') ?? 'unknown',
    maxmemoryBytes: number('maxmemory'),
    usedBytes: number('used_memory'),
    systemBytes: number('total_system_memory'),
    appendOnly: info.get('aof_enabled') === '1',
    lastAppendOk: info.get('aof_last_write_status') !== 'err',
    lastSnapshotOk: info.get('rdb_last_bgsave_status') !== 'err',
    ...(await configOf(redis)),
    replicas: replicasOf(info),
    clockAheadMs: Number(seconds) * 1_000 + Number(micros) / 1_000 - midMs,
    trips: await trips(),
  };
  return facts;
}

/** Absent where CONFIG is forbidden or renamed, as by services that manage Redis. */
async function configOf(redis: Redis): Promise<Pick<ServerFacts, 'config'>> {
  try {
    const flat = (await redis.config('GET', 'appendfsync', 'save', 'client-output-buffer-limit')) as string[];
    const value = (name: string) => flat[flat.indexOf(name) + 1] ?? '';
    return {
      config: {
        appendFsync: value('appendfsync'),
        snapshots: value('save') !== '',
        pubsub: bufferLimitOf(value('client-output-buffer-limit')),
      },
    };
  } catch {
    return {};
  }
}

/** `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60` */
function bufferLimitOf(text: string): BufferLimit | undefined {
  const words = text.split(' ');
  const at = words.indexOf('pubsub');
  if (at < 0) return undefined;
  const [hardBytes = 0, softBytes = 0, softSeconds = 0] = words.slice(at + 1, at + 4).map(Number);
  return { hardBytes, softBytes, softSeconds };
}

/** Lines `name:value` of INFO. */
function factsOf(info: string): ReadonlyMap<string, string> {
  const facts = new Map<string, string>();
  for (const line of info.split('\r\n')) {
    const at = line.indexOf(':');
    if (at > 0) facts.set(line.slice(0, at), line.slice(at + 1));
  }
  return facts;
}

/** `slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0` */
function replicasOf(info: ReadonlyMap<string, string>): ReplicaFacts[] {
  const replicas: ReplicaFacts[] = [];
  for (let n = 0; info.has(`slave${n}`); n += 1) {
    const pairs = (info.get(`slave${n}`) ?? '').split(',').map((pair) => pair.split('=') as [string, string]);
    const { ip, port, state, lag } = Object.fromEntries(pairs);
    replicas.push({ address: `${ip}:${port}`, online: state === 'online', lagSeconds: Number(lag ?? 0) });
  }
  return replicas;
}

/** A channel whose slot this server serves. */
function channelOn(shard: Shard, of: (name: string) => Shard | undefined, keys: Keys): string | undefined {
  const name = `doctor-${randomBytes(8).toString('hex')}`;
  for (let n = 0; n < TRIES_FOR_A_SLOT; n += 1) {
    const channel = keys.probeChannel(String(n), name);
    if (of(channel) === shard) return channel;
  }
  return undefined;
}

async function roundTrips(mouth: Shard, ears: Shard | undefined, channel: string | undefined): Promise<RoundTrips> {
  if (ears === undefined || channel === undefined) return { type: 'silent', why: 'it serves no slot' };
  const took: number[] = [];
  try {
    await ears.redis.ssubscribe(channel);
    for (let n = 0; n < TRIPS; n += 1) took.push(await roundTrip(mouth.redis, ears.redis, channel, String(n)));
    await ears.redis.sunsubscribe(channel);
  } catch (error) {
    return { type: 'silent', why: messageOf(error) };
  }
  took.sort((a, b) => a - b);
  return { type: 'heard', medianMs: took[Math.floor(took.length / 2)] ?? 0, count: took.length };
}

function roundTrip(mouth: Redis, ears: Redis, channel: string, message: string): Promise<number> {
  const startedMs = performance.now();
  return new Promise((resolve, reject) => {
    const done = () => {
      clearTimeout(timer);
      ears.off('smessage', hear);
    };
    const hear = (from: string, text: string) => {
      if (from !== channel || text !== message) return;
      done();
      resolve(performance.now() - startedMs);
    };
    const timer = setTimeout(() => {
      done();
      reject(new Error(`nothing within ${TRIP_WITHIN_MS} ms`));
    }, TRIP_WITHIN_MS);
    ears.on('smessage', hear);
    mouth.spublish(channel, message).catch((error: unknown) => {
      done();
      reject(error);
    });
  });
}

async function deploymentOf(target: RedisTarget, redis: Redis | Cluster): Promise<Deployment> {
  if (target.type === 'sentinel') {
    return { type: 'sentinel', asked: await Promise.all(target.sentinels.map((place) => askSentinel(target, place))) };
  }
  if (!(redis instanceof Cluster)) return { type: 'server' };
  const info = factsOf(String(await redis.cluster('INFO')));
  return {
    type: 'cluster',
    ok: info.get('cluster_state') === 'ok',
    slotsServed: Number(info.get('cluster_slots_ok') ?? 0),
  };
}

async function askSentinel(
  target: Extract<RedisTarget, { type: 'sentinel' }>,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<SentinelFacts> {
  const redis = new Redis({
    ...{ host, port, lazyConnect: true, connectTimeout: ANSWER_WITHIN_MS, commandTimeout: ANSWER_WITHIN_MS },
    ...(target.sentinelPassword === undefined ? {} : { password: target.sentinelPassword }),
    ...(target.tls ? { tls: target.ca === undefined ? {} : { ca: target.ca } } : {}),
    retryStrategy: () => null,
  });
  let fault: unknown;
  redis.on('error', (error) => {
    fault = error;
  });
  const address = `${host}:${port}`;
  try {
    await redis.connect();
    return { address, quorum: { ok: true, said: String(await redis.call('SENTINEL', 'CKQUORUM', target.name)) } };
  } catch (error) {
    return { address, quorum: { ok: false, said: messageOf(fault ?? error) } };
  } finally {
    redis.disconnect();
  }
}

/** Behind sentinels the address asked for is not the one that answers. */
function placeOf({ options: { path }, stream }: Redis): string {
  const { remoteAddress = '', remotePort } = stream as Partial<Socket>;
  return path ?? `${remoteAddress.includes(':') ? `[${remoteAddress}]` : remoteAddress}:${remotePort}`;
}

const isLocal = (host: string | undefined): boolean =>
  host === 'localhost' || host === '::1' || /^127\./.test(host ?? '');

/** That it does not answer is told once, at the end. */
const silent: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
