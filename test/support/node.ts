/** A real node in this process on a real Redis. Its queue only records what was added; a hand-driven writer is the worker. */
import { randomBytes } from 'node:crypto';
import type { EventBus, Meter, QueueProducer } from '../../src/domain/ports.js';
import { createGateway, type Gateway } from '../../src/gateway/gateway.js';
import type { GatewayOptions, GatewayPorts } from '../../src/gateway/options.js';
import { createPatterns } from '../../src/ops/patterns.js';
import { makeNodeId } from '../../src/protocol/ids.js';
import { createCommandFeed } from '../../src/redis/command-feed.js';
import { createRedis, parseRedisUrl } from '../../src/redis/connections.js';
import { createEventBus } from '../../src/redis/event-bus.js';
import { createLines } from '../../src/redis/lines.js';
import { checkPing } from '../../src/redis/ping.js';
import { createReassertion } from '../../src/redis/reassertion.js';
import type { TestRedis } from './redis.js';
import { chance, type Stores, silentLog } from './stores.js';
import { until } from './wait.js';

export interface TestNode {
  readonly gateway: Gateway;
  readonly url: string;
  readonly opsUrl: string;
  /** The node hears nothing of its sessions while `deaf`, and believes the bus silent while `silent`. */
  readonly faults: {
    deaf: boolean;
    silent: boolean;
    slowAdd: Promise<void> | undefined;
    position: number | Promise<number | undefined> | undefined;
  };
  /** Messages of sessions that reached the node. */
  heard(): number;
  readonly added: Parameters<QueueProducer['add']>[];
  readonly removed: string[];
  count(name: string): number;
  close(): Promise<void>;
}

/** @param world what several nodes of one cluster share @param over settings of this one @param ports what it sees in place of the real things */
export async function startTestNode(
  world: { readonly redis: TestRedis; readonly stores: Stores; readonly secret: string },
  over: Partial<GatewayOptions> = {},
  ports: Partial<GatewayPorts> = {},
): Promise<TestNode> {
  const { redis, stores, secret } = world;
  const nodeId = makeNodeId(randomBytes(16));
  const subscriber = createRedis(parseRedisUrl(redis.url), 'subscriber', silentLog);
  /** Figures by name, summed over their labels; the last value of a gauge. */
  const figures = new Map<string, number>();
  const meter = {
    count: (name, _labels, by = 1) => void figures.set(name, (figures.get(name) ?? 0) + by),
    gauge: (name, value) => void figures.set(name, value),
    observe: () => undefined,
    dump: () => [...figures].map((figure) => figure.join(' ')).join('\n'),
  } satisfies Meter & { dump(): string };
  const faults: TestNode['faults'] = { deaf: false, silent: false, slowAdd: undefined, position: undefined };
  let heard = 0;
  const real = createEventBus({
    commands: stores.redis,
    subscriber,
    keys: stores.keys,
    selfId: nodeId,
    log: silentLog,
    meter,
    chance,
  });
  const bus: EventBus = {
    ...real,
    subscribeSession: (id, handler) =>
      real.subscribeSession(id, (message) => {
        if (faults.deaf) return;
        heard += 1;
        handler(message);
      }),
    probeAgeMs: () => (faults.silent ? 60_000 : real.probeAgeMs()),
  };
  const added: TestNode['added'] = [];
  const removed: string[] = [];
  const queue: QueueProducer = {
    async add(...args) {
      added.push(args);
      await faults.slowAdd;
    },
    state: async () => 'missing',
    position: async () => faults.position,
    async remove(_pool, id) {
      removed.push(id);
    },
    async close() {},
  };
  const { sessions, commands, presence } = stores;
  const feed = createCommandFeed(stores);
  const gateway = createGateway(
    {
      sessions,
      commands,
      feed,
      presence,
      bus,
      reassertion: createReassertion(stores),
      queue,
      lines: createLines({ ...stores, queue }),
      log: silentLog,
      meter,
      chance,
      patterns: createPatterns(),
      now: Date.now,
      ...ports,
    },
    {
      nodeId,
      version: 'test',
      host: '127.0.0.1',
      port: 0,
      opsHost: '127.0.0.1',
      opsPort: 0,
      heartbeatMs: 1_000,
      leaseMs: 2_000,
      graceMs: 30_000,
      queueMs: 60_000,
      drainMs: 1_000,
      killGraceMs: 100,
      outboxBytes: 256 * 1024,
      maxFrameBytes: 64 * 1024,
      jwtSecrets: [secret],
      publicOrigins: ['https://app.example'],
      checkRedis: () => checkPing(() => stores.redis.ping()),
      ...over,
    },
  );
  const { url, opsUrl } = await gateway.listen().catch(async (error) => {
    await gateway.close();
    await real.close();
    subscriber.disconnect();
    throw error;
  });
  await until('the first probe', () => bus.probeAgeMs() < 5_000);
  return {
    gateway,
    url,
    opsUrl,
    faults,
    heard: () => heard,
    added,
    removed,
    count: (name) => figures.get(name) ?? 0,
    async close() {
      await gateway.close();
      await real.close();
      subscriber.disconnect();
    },
  };
}
