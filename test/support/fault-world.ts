/**
 * A cluster in which everything can be broken: a proxy before Redis for each process, and a lane of proxies to the nodes
 * for each tab. Carries out a schedule of faults, heals, and keeps the figures.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Cluster, type Handle, startCluster } from './cluster.js';
import { type Fault, type FaultTarget, nameOf, sortOf, type World } from './fault-schedule.js';
import { stablePort } from './ports.js';
import { startRedis } from './redis.js';
import type { Seeded } from './seeded.js';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
import { until } from './wait.js';

export interface Happened {
  readonly fault: Fault;
  /** Of the test's own clock. */
  readonly beganMs: number;
  endedMs: number;
  /** Unix time of the end, to be compared with what entries say. */
  endedAt: number;
}

export interface FaultWorld extends AsyncDisposable {
  readonly cluster: Cluster;
  readonly happened: readonly Happened[];
  readonly active: ReadonlySet<Happened>;
  /** Ids of workers that may have lost what they ran: killed, stopped, ended, or alone cut off for long. */
  readonly harmedWorkers: ReadonlySet<string>;
  /** Where a tab connects: through its own lane, to any node. */
  urlFor(tab: number, seeded: Seeded): string;
  /** Straight to a node. */
  directUrl(node: number): string;
  /** Carries out the schedule; resolves when its last fault was mended. `onEnd` is called when a fault is over. */
  run(schedule: readonly Fault[], onEnd: (happened: Happened) => void): Promise<void>;
  /** Whole again, all of it: nothing frozen, slow, stopped or away. */
  heal(): Promise<void>;
  /** A counter summed over all nodes and all their incarnations, as far as it was seen. */
  counted(name: string): Promise<number>;
  /** What the processes said, for whoever has to find out. */
  logs(): string;
}

const COUNTERS = ['homing_misdelivered_total', 'homing_stale_dropped_total'] as const;
const RESTART_LIMIT_MS = 120_000;

export async function createFaultWorld(size: World, env: Readonly<Record<string, string>>): Promise<FaultWorld> {
  // Killed without a word, Redis must still have what it answered (FAULTS T2): hence the sync before each answer.
  const redis = await startRedis({ config: ['appendfsync always'] });
  const proxies: TcpProxy[] = [];
  const proxyTo = async (port: number, scheme: string): Promise<TcpProxy> => {
    const proxy = await startTcpProxy({ port, scheme });
    proxies.push(proxy);
    return proxy;
  };
  const each = <T>(count: number, make: (index: number) => Promise<T>) =>
    Promise.all(Array.from({ length: count }, (_, index) => make(index)));
  const nodeLinks = await each(size.nodes, () => proxyTo(redis.port, 'redis'));
  const workerLinks = await each(size.workers, () => proxyTo(redis.port, 'redis'));
  const ports = await each(size.nodes, () => stablePort());
  const lanes = await each(size.tabs, () => Promise.all(ports.map((port) => proxyTo(port, 'http'))));
  const closeProxies = () => Promise.all(proxies.map((proxy) => proxy[Symbol.asyncDispose]()));
  const start = () =>
    startCluster({
      ...{ redis, nodes: size.nodes, workers: size.workers, env },
      nodeEnv: (index) => ({ HOMING_REDIS_URL: nodeLinks[index]?.url ?? '', HOMING_PORT: String(ports[index]) }),
      workerEnv: (index) => ({ HOMING_REDIS_URL: workerLinks[index]?.url ?? '' }),
    });
  // Processes give up when Redis seems silent at the start, as on a machine that is too busy; a supervisor tries again.
  const cluster = await start()
    .catch(start)
    .catch(start)
    .catch(async (error) => {
      await closeProxies();
      await redis[Symbol.asyncDispose]();
      throw error;
    });

  const happened: Happened[] = [];
  const active = new Set<Happened>();
  const harmedWorkers = new Set<string>();
  const sums = new Map<string, number>();
  const formerLogs: string[] = [];
  /** Set while Redis is away: a process that starts meanwhile would give up. */
  let redisBack: Promise<void> = Promise.resolve();

  const linksOf = (target: FaultTarget): TcpProxy[] => {
    if (target.part === 'node link') return [nodeLinks[target.index] as TcpProxy];
    if (target.part === 'worker link') return [workerLinks[target.index] as TcpProxy];
    if (target.part === 'tab link') return lanes[target.index] ?? [];
    return [];
  };

  async function noteCounters(node: number): Promise<void> {
    for (const name of COUNTERS) {
      const value = await cluster.metric(node, name).catch(() => 0);
      sums.set(name, (sums.get(name) ?? 0) + value);
    }
  }

  async function breakLink(fault: Fault): Promise<void> {
    const links = linksOf(fault.target);
    switch (fault.kind) {
      case 'cut':
        for (const link of links) link.cut();
        return;
      case 'delay':
        for (const link of links) link.delayMs = fault.delayMs;
        await sleep(fault.forMs);
        for (const link of links) link.delayMs = 0;
        return;
      case 'freeze':
        for (const link of links) link.freeze();
        await sleep(fault.forMs);
        for (const link of links) link.thaw();
        return;
      default:
        // The first request of any of them; a tab has one link in use.
        await Promise.race([...links.map((link) => link.swallowNextReply(() => true)), sleep(fault.forMs)]);
    }
  }

  async function startAgain(handle: Handle): Promise<void> {
    formerLogs.push(`--- ${handle.role} ${handle.id}\n${handle.log.slice(-20_000)}`);
    if (formerLogs.length > 40) formerLogs.shift();
    // As a supervisor does: until it holds. A start fails while Redis can not be reached.
    await until(
      `a ${handle.role} started again`,
      async () => {
        await redisBack;
        await handle.restart();
        return true;
      },
      RESTART_LIMIT_MS,
    );
  }

  async function breakProcess(fault: Fault, handle: Handle, node?: number): Promise<void> {
    if (fault.kind === 'stop') {
      handle.signal('SIGSTOP');
      await sleep(fault.forMs);
      handle.signal('SIGCONT');
      return;
    }
    if (node !== undefined) await Promise.race([noteCounters(node), sleep(300)]);
    await handle.kill(fault.kind === 'kill' ? 'SIGKILL' : 'SIGTERM');
    await sleep(fault.forMs);
    await startAgain(handle);
  }

  async function breakRedis(fault: Fault): Promise<void> {
    if (fault.kind === 'stop') {
      redis.suspend();
      await sleep(fault.forMs);
      redis.resume();
      return;
    }
    let back: () => void = () => {};
    redisBack = new Promise((resolve) => {
      back = resolve;
    });
    await (fault.kind === 'kill' ? redis.kill() : redis.stop());
    await sleep(fault.forMs);
    await redis.start();
    back();
  }

  function noteHarm({ kind, target }: Fault): void {
    if (target.part === 'worker') harmedWorkers.add(cluster.worker(target.index).id);
    if (target.part === 'worker link' && kind === 'freeze') harmedWorkers.add(cluster.worker(target.index).id);
  }

  async function carryOut(fault: Fault, onEnd: (happened: Happened) => void): Promise<void> {
    const one: Happened = { fault, beganMs: performance.now(), endedMs: 0, endedAt: 0 };
    happened.push(one);
    active.add(one);
    noteHarm(fault);
    const { target } = fault;
    try {
      if (target.part === 'redis') await breakRedis(fault);
      else if (target.part === 'node') await breakProcess(fault, cluster.node(target.index), target.index);
      else if (target.part === 'worker') await breakProcess(fault, cluster.worker(target.index));
      else await breakLink(fault);
    } catch (error) {
      throw new Error(`${sortOf(fault)} (${nameOf(target)}) could not be carried out`, { cause: error });
    } finally {
      one.endedMs = performance.now();
      one.endedAt = Date.now();
      active.delete(one);
    }
    onEnd(one);
  }

  return {
    cluster,
    happened,
    active,
    harmedWorkers,
    urlFor: (tab, seeded) => seeded.pick(lanes[tab % lanes.length] ?? []).url,
    directUrl: (node) => cluster.node(node).url,

    async run(schedule, onEnd) {
      const beganMs = performance.now();
      const under: Promise<void>[] = [];
      /** One after the other where they hit the same thing, however long a restart takes here. */
      const tails = new Map<string, Promise<void>>();
      for (const fault of schedule) {
        await sleep(Math.max(0, fault.atMs - (performance.now() - beganMs)));
        const name = nameOf(fault.target);
        const tail = (tails.get(name) ?? Promise.resolve()).then(() => carryOut(fault, onEnd));
        tails.set(name, tail);
        tail.catch(() => {});
        under.push(tail);
      }
      await Promise.all(under);
    },

    async heal() {
      for (const proxy of proxies) {
        proxy.thaw();
        proxy.delayMs = 0;
      }
      redis.resume();
      await redis.start();
      for (const handle of [...cluster.nodes, ...cluster.workers]) handle.signal('SIGCONT');
    },

    async counted(name) {
      let sum = sums.get(name) ?? 0;
      for (const [index] of cluster.nodes.entries()) sum += await cluster.metric(index, name);
      return sum;
    },

    logs: () =>
      [
        ...formerLogs,
        ...[...cluster.nodes, ...cluster.workers].map(
          (handle) => `--- ${handle.role} ${handle.id} (at the end)\n${handle.log.slice(-60_000)}`,
        ),
      ].join('\n'),

    async [Symbol.asyncDispose]() {
      await cluster[Symbol.asyncDispose]();
      await closeProxies();
      await redis[Symbol.asyncDispose]();
    },
  };
}
