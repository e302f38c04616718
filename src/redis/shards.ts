/**
 * One plain connection to each master: for what must know which socket it uses. Subscriptions have to be acknowledged by
 * the master of their slot and proved there (FAULTS R1), a claim and its WAIT have to share a socket (W1). A single server
 * is one shard.
 */
import { Cluster, Command, type Redis } from 'ioredis';
import type { Log } from '../domain/ports.js';
import { createMember, type RedisRole } from './connections.js';

export interface Shard {
  /** Address of the master; another one after a failover. */
  readonly id: string;
  readonly redis: Redis;
}

export interface Shards {
  /** Whether more than one slot may not share a call. */
  readonly slotted: boolean;
  /** Who serves this key or channel, as far as is known; undefined while nobody does. */
  of(name: string): Shard | undefined;
  all(): readonly Shard[];
  /** Called when a master came or went or slots have moved. */
  onChange(handler: () => void): void;
  /** What is known turned out to be wrong: asks the cluster. Cheap, and idempotent. */
  refresh(): void;
  /** Ends the connections that were made here. */
  close(): void;
}

/** Again after this long while something is known to be wrong: a failover takes a few seconds. */
const REFRESH_AGAIN_MS = 250;
const SLOTS = 16_384;

export interface ShardsOptions {
  /** A single server's connection, used as it is; or a Cluster, which tells who serves what. Stays the caller's. */
  readonly redis: Redis | Cluster;
  /** Of the connections made to the members of a Cluster. */
  readonly role: RedisRole;
  readonly log: Log;
}

export function createShards(options: ShardsOptions): Shards {
  return options.redis instanceof Cluster ? clusterShards(options.redis, options) : oneShard(options.redis);
}

function oneShard(redis: Redis): Shards {
  const shard: Shard = { id: '', redis };
  return {
    slotted: false,
    of: () => shard,
    all: () => [shard],
    onChange() {},
    refresh() {},
    close() {},
  };
}

function clusterShards(cluster: Cluster, { role, log }: ShardsOptions): Shards {
  const shards = new Map<string, Shard>();
  const handlers: (() => void)[] = [];
  let known = '';
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  const masterOf = (slot: number): string | undefined => cluster.slots[slot]?.[0];

  /** Who serves what, in a few words: the runs of slots and their masters. */
  function tableOf(): string {
    const runs: string[] = [];
    let last: string | undefined;
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const master = masterOf(slot);
      if (master === last) continue;
      last = master;
      runs.push(`${slot}=${master}`);
    }
    return runs.join(' ');
  }

  function look(): void {
    if (closed) return;
    const table = tableOf();
    if (table === known) return;
    known = table;
    const masters = new Set(cluster.slots.map((nodes) => nodes?.[0]).filter((id) => id !== undefined));
    for (const [id, { redis }] of shards) {
      if (masters.has(id)) continue;
      shards.delete(id);
      redis.disconnect();
    }
    for (const id of masters) if (!shards.has(id)) shards.set(id, open(id));
    for (const handler of handlers) handler();
  }

  function open(id: string): Shard {
    const at = id.lastIndexOf(':');
    const redis = createMember(cluster, id.slice(0, at), Number(id.slice(at + 1)), role, log);
    // A redirected or taken-away subscription, or a lost master: somebody else serves its slots, now or soon.
    redis.on('moved', refresh);
    redis.on('close', refresh);
    return { id, redis };
  }

  function refresh(): void {
    if (closed || timer !== undefined) return;
    cluster.refreshSlotsCache();
    timer = setTimeout(() => {
      timer = undefined;
      look();
      if ([...shards.values()].some(({ redis }) => redis.status !== 'ready')) refresh();
    }, REFRESH_AGAIN_MS);
    timer.unref();
  }

  cluster.on('refresh', look);
  look();

  return {
    slotted: true,
    of(name) {
      const id = masterOf(new Command('get', [name]).getSlot() as number);
      return id === undefined ? undefined : shards.get(id);
    },
    all: () => [...shards.values()],
    onChange: (handler) => void handlers.push(handler),
    refresh,
    close() {
      closed = true;
      clearTimeout(timer);
      cluster.off('refresh', look);
      for (const { redis } of shards.values()) redis.disconnect();
      shards.clear();
    },
  };
}
