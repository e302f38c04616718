/** One probe for each master, on a channel of a slot it serves, through the normal path (FAULTS R1). */
import type { Chance, Log, Meter, Subscription } from '../domain/ports.js';
import type { NodeId, WorkerId } from '../protocol/ids.js';
import { type BusProbe, createBusProbe } from './bus-probe.js';
import type { Keys } from './keys.js';
import type { Shard, Shards } from './shards.js';
import type { Subscriptions } from './subscriptions.js';

export interface BusProbes {
  /** The oldest of all masters' proofs, or that of the master which serves a channel. */
  ageMs(channel?: string): number;
  /** As `BusProbe.deafMs`, of the worst master or of the one which serves a channel. */
  deafMs(channel?: string): number;
  close(): void;
}

export interface BusProbesPorts {
  readonly shards: Shards;
  readonly subscriptions: Subscriptions;
  publish(channel: string, message: string): Promise<unknown>;
  readonly keys: Keys;
  readonly selfId: NodeId | WorkerId;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
}

interface Watched {
  readonly channel: string;
  readonly probe: BusProbe;
  readonly subscription: Subscription;
}

/** With a thousand masters a name that falls to a given one is found in a few thousand tries. */
const MAX_TRIES = 20_000;
const GAUGE_EVERY_MS = 1_000;

export function createBusProbes(ports: BusProbesPorts): BusProbes {
  const { shards, subscriptions, publish, keys, selfId, log, meter, chance } = ports;
  const watched = new Map<string, Watched>();

  function open(shard: Shard): void {
    const channel = channelOn(shard);
    if (channel === undefined) return;
    const probe = createBusProbe({
      publish: (message) => publish(channel, message),
      lost() {
        meter.count('homing_bus_probe_lost_total');
        log.warn({ shard: shard.id }, 'Published probes do not come back, connecting the subscriber again');
        shards.refresh();
        if (shard.redis.status === 'ready') shard.redis.disconnect(true);
      },
      meter,
      chance,
    });
    watched.set(shard.id, { channel, probe, subscription: subscriptions.keep(channel, probe.heard) });
  }

  function channelOn(shard: Shard): string | undefined {
    for (let n = 0; n < MAX_TRIES; n += 1) {
      const channel = keys.probeChannel(String(n), selfId);
      if (shards.of(channel) === shard) return channel;
    }
    return undefined;
  }

  function shut(id: string, { probe, subscription }: Watched): void {
    watched.delete(id);
    probe.close();
    // Best effort: a master that is gone took the subscription with it.
    subscription.close().catch(() => undefined);
  }

  /** Masters come and go, and a probe's own slot may have moved to another. */
  function sync(): void {
    const living = new Map(shards.all().map((shard) => [shard.id, shard]));
    for (const [id, one] of watched) {
      const shard = living.get(id);
      if (shard === undefined || shards.of(one.channel) !== shard) shut(id, one);
    }
    for (const shard of living.values()) if (!watched.has(shard.id)) open(shard);
  }

  sync();
  shards.onChange(sync);
  subscriptions.onRestored(() => {
    for (const { probe } of watched.values()) probe.restarted();
  });

  /** Of the master that serves it, or the worst of all; nobody proves anything while there is none. */
  function worst(of: (probe: BusProbe) => number, channel: string | undefined, none: number): number {
    if (channel !== undefined) {
      const shard = shards.of(channel);
      const one = shard === undefined ? undefined : watched.get(shard.id);
      return one === undefined ? none : of(one.probe);
    }
    const all = [...watched.values()].map(({ probe }) => of(probe));
    return all.length === 0 ? none : Math.max(...all);
  }

  const ageMs = (channel?: string) => worst((probe) => probe.ageMs(), channel, Number.POSITIVE_INFINITY);
  const timer = setInterval(() => {
    const age = ageMs();
    if (Number.isFinite(age)) meter.gauge('homing_bus_probe_age_seconds', age / 1_000);
  }, GAUGE_EVERY_MS);
  timer.unref();

  return {
    ageMs,
    deafMs: (channel) => worst((probe) => probe.deafMs(), channel, 0),
    close() {
      clearInterval(timer);
      for (const [id, one] of [...watched]) shut(id, one);
    },
  };
}
