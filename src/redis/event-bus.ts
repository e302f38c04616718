/**
 * The event bus on Redis: sharded channels, one per session, running command and process; exact names, no patterns.
 * A half-open link is found by pings within about 4 s, a subscription that only looks alive by the probe in about the same.
 */
import type { Cluster, Redis } from 'ioredis';
import type { Chance, EventBus, Log, Meter } from '../domain/ports.js';
import type { NodeId, SessionId, WorkerId } from '../protocol/ids.js';
import { createBusProbes } from './bus-probes.js';
import type { Keys } from './keys.js';
import { answerOf } from './redis-errors.js';
import { createShardedSubscriptions } from './sharded-subscriptions.js';
import { createShards } from './shards.js';

export interface EventBusPorts {
  /** Publishes; role `commands`. */
  readonly commands: Redis | Cluster;
  /**
   * Listens, and does nothing else; role `subscriber`. A Cluster only tells who serves what: the bus listens over one
   * connection of its own to each master. Both connections stay the caller's to disconnect.
   */
  readonly subscriber: Redis | Cluster;
  readonly keys: Keys;
  readonly selfId: NodeId | WorkerId;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
}

export function createEventBus({ commands, subscriber, keys, selfId, log, meter, chance }: EventBusPorts): EventBus {
  const shards = createShards({ redis: subscriber, role: 'subscriber', log });
  const subscriptions = createShardedSubscriptions({ shards, log, meter, chance });
  const probes = createBusProbes({
    ...{ shards, subscriptions, keys, selfId, log, meter, chance },
    publish: (channel, message) => commands.spublish(channel, message),
  });
  const channelOf = (sessionId: SessionId | undefined) =>
    sessionId === undefined ? undefined : keys.sessionChannel(sessionId);

  return {
    subscribeSession: (sessionId, handler) => subscriptions.subscribe(keys.sessionChannel(sessionId), handler),
    subscribeControl: (commandId, handler) => subscriptions.subscribe(keys.controlChannel(commandId), handler),
    subscribeAsk: (id, handler) => subscriptions.subscribe(keys.askChannel(id), handler),
    async ask(id, message) {
      await answerOf(commands.spublish(keys.askChannel(id), message));
    },
    onRestored: subscriptions.onRestored,
    probeAgeMs: (sessionId) => probes.ageMs(channelOf(sessionId)),
    deafMs: (sessionId) => probes.deafMs(channelOf(sessionId)),
    async close() {
      probes.close();
      await subscriptions.close();
      shards.close();
    },
  };
}
