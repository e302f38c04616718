/**
 * The event bus on Redis: sharded channels, one per session, running command and process; exact names, no patterns.
 * A half-open link is found by pings within about 4 s, a subscription that only looks alive by the probe within about 6 s.
 */
import type { Cluster, Redis } from 'ioredis';
import type { Chance, EventBus, Log, Meter } from '../domain/ports.js';
import type { NodeId, WorkerId } from '../protocol/ids.js';
import { createBusProbe } from './bus-probe.js';
import type { Keys } from './keys.js';
import { answerOf } from './redis-errors.js';
import { createSubscriptions } from './subscriptions.js';

export interface EventBusPorts {
  /** Publishes; role `commands`. */
  readonly commands: Redis | Cluster;
  /** Listens, and does nothing else; role `subscriber`. Both connections stay the caller's to disconnect. */
  readonly subscriber: Redis | Cluster;
  readonly keys: Keys;
  readonly selfId: NodeId | WorkerId;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
}

/** One shard for now: a single server. A Cluster needs one probe for each of its masters. */
const PROBE_SHARD = '0';

export function createEventBus({ commands, subscriber, keys, selfId, log, meter, chance }: EventBusPorts): EventBus {
  const subscriptions = createSubscriptions({ subscriber, log, meter, chance });
  const probeChannel = keys.probeChannel(PROBE_SHARD, selfId);
  const probe = createBusProbe({
    publish: (message) => commands.spublish(probeChannel, message),
    lost() {
      meter.count('homing_bus_probe_lost_total');
      log.warn({}, 'Published probes do not come back, connecting the subscriber again');
      if (subscriber.status === 'ready') subscriber.disconnect(true);
    },
    meter,
    chance,
  });
  subscriptions.keep(probeChannel, probe.heard);
  subscriptions.onRestored(probe.restarted);

  return {
    subscribeSession: (sessionId, handler) => subscriptions.subscribe(keys.sessionChannel(sessionId), handler),
    subscribeControl: (commandId, handler) => subscriptions.subscribe(keys.controlChannel(commandId), handler),
    subscribeAsk: (id, handler) => subscriptions.subscribe(keys.askChannel(id), handler),
    async ask(id, message) {
      await answerOf(commands.spublish(keys.askChannel(id), message));
    },
    onRestored: subscriptions.onRestored,
    probeAgeMs: probe.ageMs,
    async close() {
      probe.close();
      await subscriptions.close();
    },
  };
}
