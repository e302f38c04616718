/** What operators get on a node's ops address: the queue board, the pages of /admin, and the figures that are looked at. */
import type { Chance, CommandStore, EventBus, Log, Meter, Presence } from '../domain/ports.js';
import type { OpsPlugin } from '../gateway/options.js';
import { createBoardQueues } from '../queue/board.js';
import { createCensus } from '../redis/census.js';
import type { Cluster, Redis } from '../redis/connections.js';
import type { Keys } from '../redis/keys.js';
import { readServerFigures } from '../redis/server-figures.js';
import { createAdmin } from './admin.js';
import { createBoard } from './board.js';
import { startSampler } from './sampler.js';

export interface OperatorsPorts {
  readonly redis: Redis | Cluster;
  /** The server of the queues. */
  readonly queueRedis: Redis | Cluster;
  readonly keys: Keys;
  readonly presence: Presence;
  readonly commands: CommandStore;
  readonly bus: EventBus;
  readonly meter: Meter;
  readonly log: Log;
  readonly chance: Chance;
}

export function openOperators(ports: OperatorsPorts): {
  readonly plugins: readonly OpsPlugin[];
  close(): Promise<void>;
} {
  const { redis, queueRedis, keys, presence, commands, bus, meter, log, chance } = ports;
  const queues = createBoardQueues({ redis: queueRedis, keys });
  const board = createBoard(queues);
  const census = createCensus({ redis, keys, presence, commands });
  const sampler = startSampler({
    ...{ presence, queues, meter, log, onPools: board.show },
    figures: () => readServerFigures(redis),
    random: () => chance.random(),
  });
  return {
    plugins: [createAdmin({ census, bus, now: Date.now }), board.plugin],
    async close() {
      sampler.close();
      await queues.close();
    },
  };
}
