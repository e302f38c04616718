/** Figures that nobody causes by an event: depth of the pools, memory and round trip of Redis. Looked at every few seconds. */
import type { Log, Meter, Presence } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { BoardQueues } from '../queue/board.js';
import type { ServerFigures } from '../redis/server-figures.js';

const INTERVAL_MS = 5_000;
/** Bounds the label `pool`. */
const MAX_POOLS = 200;

export function startSampler(ports: {
  readonly presence: Presence;
  readonly queues: BoardQueues;
  readonly figures: () => Promise<ServerFigures>;
  readonly meter: Meter;
  readonly log: Log;
  random(): number;
  /** The pools that are known now. */
  onPools(pools: readonly string[]): void;
}): { close(): void } {
  const { presence, queues, figures, meter, log, random, onPools } = ports;
  const known = new Set<string>(['default']);
  let closed = false;
  let timer: NodeJS.Timeout | undefined;

  async function sample(): Promise<void> {
    const workers = new Map<string, number>();
    for (const { facts } of await presence.workers()) {
      // One that drains takes nothing more.
      if (facts?.draining === false) workers.set(facts.pool, (workers.get(facts.pool) ?? 0) + 1);
    }
    for (const pool of [...workers.keys(), ...(await queues.pools())]) if (known.size < MAX_POOLS) known.add(pool);
    onPools([...known]);
    for (const pool of known) {
      const { waiting, oldestWaitMs } = await queues.depth(pool);
      meter.gauge('homing_queue_depth', waiting, { pool });
      meter.gauge('homing_queue_oldest_wait_seconds', oldestWaitMs / 1_000, { pool });
      meter.gauge('homing_pool_workers', workers.get(pool) ?? 0, { pool });
    }
    meter.gauge(
      'homing_workers',
      [...workers.values()].reduce((sum, count) => sum + count, 0),
    );
    const { roundTripMs, usedMemoryBytes, maxMemoryBytes, noEviction } = await figures();
    meter.observe('homing_redis_round_trip_seconds', roundTripMs / 1_000);
    meter.gauge('homing_redis_used_memory_bytes', usedMemoryBytes);
    meter.gauge('homing_redis_max_memory_bytes', maxMemoryBytes);
    meter.gauge('homing_redis_noeviction', noEviction ? 1 : 0);
    meter.gauge('homing_redis_up', 1);
  }

  const turn = () => {
    sample()
      .catch((error) => {
        meter.gauge('homing_redis_up', 0);
        log.debug({ fault: messageOf(error) }, 'could not look at the queues');
      })
      .finally(arm);
  };
  const arm = () => {
    if (closed) return;
    timer = setTimeout(turn, INTERVAL_MS * (0.8 + random() * 0.4));
    timer.unref();
  };
  turn();

  return {
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}
