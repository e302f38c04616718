/**
 * Subscriptions over all masters of a Cluster: each channel at the master of its slot, moved when the slot moves, over
 * connections of our own (FAULTS R1; the client's own group resubscribes by itself and swallows errors). On a single
 * server there is one master and nothing ever moves.
 */
import type { Redis } from 'ioredis';
import type { Chance, Log, Meter, Subscription } from '../domain/ports.js';
import { AppError } from '../errors.js';
import type { Shard, Shards } from './shards.js';
import { createSubscriptions, SUBSCRIBE_TIMEOUT_MS, type Subscriptions } from './subscriptions.js';

export interface ShardedSubscriptionsPorts {
  readonly shards: Shards;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
}

interface Wanted {
  readonly name: string;
  readonly handle: (message: string) => void;
  /** The connection it was asked of last. */
  at: Redis | undefined;
  /** Acknowledged there, or at the master before. */
  held: Subscription | undefined;
  wake: (() => void) | undefined;
  closed: boolean;
}

const RETRY_MS = 250;

export function createShardedSubscriptions(ports: ShardedSubscriptionsPorts): Subscriptions {
  const { shards, log, meter, chance } = ports;
  const single = shards.all()[0];
  // Most deployments: no slots, no moves, nothing in between.
  if (!shards.slotted && single !== undefined) {
    return createSubscriptions({ subscriber: single.redis, log, meter, chance });
  }

  const perMaster = new Map<Redis, Subscriptions>();
  const wanted = new Set<Wanted>();
  const restoredHandlers: (() => void)[] = [];
  let moving = 0;
  let movedUntold = false;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  const tellRestored = () => {
    for (const handler of restoredHandlers) handler();
  };

  function subscriptionsOf({ redis }: Shard): Subscriptions {
    let found = perMaster.get(redis);
    if (found === undefined) {
      found = createSubscriptions({ subscriber: redis, log, meter, chance, oneChannelPerCall: true });
      found.onRestored(tellRestored);
      perMaster.set(redis, found);
    }
    return found;
  }

  /** Asks the master of its slot, unless it was asked already; the one before is let go after that. Never rejects. */
  async function place(one: Wanted): Promise<void> {
    const shard = shards.of(one.name);
    if (shard === undefined) {
      retryLater();
      return;
    }
    if (one.at === shard.redis || one.closed) return;
    const isMove = one.held !== undefined;
    one.at = shard.redis;
    moving += 1;
    try {
      const held = await subscriptionsOf(shard).subscribe(one.name, one.handle);
      if (one.closed || one.at !== shard.redis) {
        void held.close();
        return;
      }
      const before = one.held;
      one.held = held;
      one.wake?.();
      void before?.close();
      // What was published between the two masters' times is lost.
      if (isMove) movedUntold = true;
    } catch {
      // Not acknowledged in time: the table may be old, or nobody serves the slot for now.
      if (one.at === shard.redis) one.at = undefined;
      shards.refresh();
      retryLater();
    } finally {
      moving -= 1;
      if (moving === 0 && movedUntold && !closed) {
        movedUntold = false;
        meter.count('homing_bus_moved_total');
        tellRestored();
      }
    }
  }

  function placeAll(): void {
    if (closed) return;
    const living = new Set(shards.all().map(({ redis }) => redis));
    for (const [redis, subscriptions] of perMaster) {
      if (living.has(redis)) continue;
      perMaster.delete(redis);
      void subscriptions.close();
    }
    for (const one of wanted) void place(one);
  }

  function retryLater(): void {
    if (closed || timer !== undefined) return;
    timer = setTimeout(
      () => {
        timer = undefined;
        placeAll();
      },
      RETRY_MS * (0.5 + chance.random() / 2),
    );
    timer.unref();
  }

  shards.onChange(placeAll);

  function want(name: string, handle: (message: string) => void): Wanted {
    const one: Wanted = { name, handle, at: undefined, held: undefined, wake: undefined, closed: false };
    wanted.add(one);
    void place(one);
    return one;
  }

  function acknowledged(one: Wanted): Promise<void> {
    return new Promise((resolve, reject) => {
      const timeout = setTimeout(() => {
        one.wake = undefined;
        reject(
          new AppError('REDIS_UNAVAILABLE', `Redis did not acknowledge a subscription in ${SUBSCRIBE_TIMEOUT_MS} ms`),
        );
      }, SUBSCRIBE_TIMEOUT_MS);
      one.wake = () => {
        clearTimeout(timeout);
        one.wake = undefined;
        resolve();
      };
    });
  }

  async function leave(one: Wanted): Promise<void> {
    one.closed = true;
    wanted.delete(one);
    await one.held?.close();
  }

  return {
    async subscribe(name, handle) {
      if (closed) throw new AppError('REDIS_UNAVAILABLE', 'The event bus is closed');
      const one = want(name, handle);
      let leaving: Promise<void> | undefined;
      const close = () => {
        leaving ??= leave(one);
        return leaving;
      };
      try {
        await acknowledged(one);
      } catch (error) {
        void close();
        throw error;
      }
      return { close };
    },
    keep(name, handle) {
      const one = want(name, handle);
      return { close: () => leave(one) };
    },
    onRestored: (handler) => void restoredHandlers.push(handler),
    async close() {
      if (closed) return;
      closed = true;
      clearTimeout(timer);
      for (const one of wanted) one.closed = true;
      wanted.clear();
      await Promise.all([...perMaster.values()].map((subscriptions) => subscriptions.close()));
      perMaster.clear();
    },
  };
}
