/**
 * A real Redis Cluster of one test's own: three masters, each with one replica, as local processes. It comes up in about a
 * second, since the members are told of each other in their files instead of meeting.
 */
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Redis } from 'ioredis';
import { stablePort } from './ports.js';
import { endServer, launchServer, whereverPortsAreFree } from './redis.js';
import { until } from './wait.js';

/** A member is taken for dead after this long; a failover then takes about another second. */
const NODE_TIMEOUT_MS = 2_000;
const SLOTS = 16_384;
const SHARDS = 3;

export interface ClusterMember {
  readonly port: number;
  readonly nodeId: string;
  readonly pid: number | undefined;
  /** A connection past everything, to ask and to command this one member. */
  readonly direct: Redis;
  start(): Promise<void>;
  kill(): Promise<void>;
  suspend(): void;
  resume(): void;
}

export interface TestRedisCluster extends AsyncDisposable {
  readonly url: string;
  readonly members: readonly ClusterMember[];
  /** Who is a master, or a replica, now, as a living member sees it. */
  masters(): Promise<ClusterMember[]>;
  masterOf(key: string): Promise<ClusterMember>;
  replicaOf(master: ClusterMember): Promise<ClusterMember>;
  /** From now on this master's replica gets nothing it writes. What was sent before has arrived. */
  pauseReplication(master: ClusterMember): Promise<void>;
  /** Kills the master; resolves when the Cluster itself has made its replica the master. */
  failover(master: ClusterMember): Promise<ClusterMember>;
  /** Kills the master and makes its replica the master, with what it has. Resolves when the cluster is whole again. */
  promoteReplicaOf(master: ClusterMember): Promise<ClusterMember>;
  /** Moves one slot from its master to another, with its keys, while clients work. */
  moveSlot(slot: number): Promise<{ readonly from: ClusterMember; readonly to: ClusterMember }>;
  /** Tells the master of a slot once more that it has it, as tools do that move slots: its subscriptions end there. */
  sayOwnerAgain(slot: number): Promise<void>;
  /** SIGKILL for every member; then all start again on the same data. */
  restart(): Promise<void>;
  /** Resolves when every slot is served and every member agrees. */
  whole(): Promise<void>;
}

/** The slot of a key or channel. */
export const slotOf = (key: string): number => new Command('get', [key]).getSlot() as number;

export const startRedisCluster = (config: readonly string[] = []): Promise<TestRedisCluster> =>
  whereverPortsAreFree(() => start(config));

async function start(config: readonly string[]): Promise<TestRedisCluster> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-cluster-'));
  const ids = Array.from({ length: 2 * SHARDS }, () => randomBytes(20).toString('hex'));
  const ports: { port: number; bus: number }[] = [];
  for (let n = 0; n < ids.length; n += 1) ports.push({ port: await stablePort(), bus: await stablePort() });
  const members: ClusterMember[] = [];

  /** The first half are masters, each replica has the number of its master in the second half. */
  const line = (index: number, myself: boolean) => {
    const shard = index % SHARDS;
    const { port, bus } = ports[index] as { port: number; bus: number };
    const isMaster = index < SHARDS;
    const from = Math.floor((SLOTS * shard) / SHARDS);
    const to = Math.floor((SLOTS * (shard + 1)) / SHARDS) - 1;
    const flags = `${myself ? 'myself,' : ''}${isMaster ? 'master' : 'slave'}`;
    const above = isMaster ? '-' : ids[shard];
    return `${ids[index]} 127.0.0.1:${port}@${bus} ${flags} ${above} 0 0 ${shard + 1} connected${isMaster ? ` ${from}-${to}` : ''}`;
  };

  for (const [index, nodeId] of ids.entries()) {
    const { port, bus } = ports[index] as { port: number; bus: number };
    const own = join(folder, String(index));
    await mkdir(own);
    const table = ids.map((_, other) => line(other, other === index));
    await writeFile(join(own, 'nodes.conf'), [...table, `vars currentEpoch ${SHARDS} lastVoteEpoch 0`, ''].join('\n'));
    const lines = [
      'bind 127.0.0.1',
      `port ${port}`,
      `cluster-port ${bus}`,
      `dir ${own}`,
      'cluster-enabled yes',
      'cluster-config-file nodes.conf',
      `cluster-node-timeout ${NODE_TIMEOUT_MS}`,
      'cluster-require-full-coverage no',
      'save ""',
      'appendonly yes',
      'appendfsync everysec',
      'repl-diskless-sync-delay 0',
      'repl-ping-replica-period 1',
      'maxmemory-policy noeviction',
      ...config,
    ];
    let child: ChildProcess | undefined;
    const direct = new Redis(port, '127.0.0.1', {
      lazyConnect: true,
      retryStrategy: () => 50,
      maxRetriesPerRequest: 1,
    });
    direct.on('error', () => undefined);
    members.push({
      port,
      nodeId,
      direct,
      get pid() {
        return child?.pid;
      },
      async start() {
        if (child === undefined) child = await launchServer(lines);
      },
      async kill() {
        const running = child;
        child = undefined;
        await endServer(running, 'SIGKILL');
      },
      suspend: () => void child?.kill('SIGSTOP'),
      resume: () => void child?.kill('SIGCONT'),
    });
  }

  const living = () => members.filter(({ pid }) => pid !== undefined);

  /** The table of members as one of them has it. */
  async function table(asked: ClusterMember) {
    const text = (await asked.direct.cluster('NODES')) as string;
    return text
      .trim()
      .split('\n')
      .map((row) => {
        const [nodeId = '', , flags = '', above = '', , , , , ...slots] = row.split(' ');
        return { nodeId, flags: flags.split(','), above, slots };
      });
  }

  const memberOf = (nodeId: string): ClusterMember => {
    const found = members.find((member) => member.nodeId === nodeId);
    if (found === undefined) throw new Error(`no member ${nodeId}`);
    return found;
  };

  async function isWhole(): Promise<boolean> {
    for (const member of living()) {
      const info = (await member.direct.cluster('INFO')) as string;
      if (!info.includes('cluster_state:ok') || !info.includes(`cluster_slots_ok:${SLOTS}`)) return false;
      const role = ((await member.direct.role()) as [string, ...unknown[]])[0];
      const said = (await table(member)).find(({ flags }) => flags.includes('myself'));
      if (said?.flags.includes(role) !== true) return false;
    }
    return true;
  }

  /** Masters whose replica hears nothing, with that replica; the others soon take it for dead. */
  const paused = new Map<ClusterMember, ClusterMember>();

  const holderOf = async (slot: number): Promise<ClusterMember> => {
    const [asked] = living();
    if (asked === undefined) throw new Error('no member lives');
    const shards = (await asked.direct.cluster('SLOTS')) as unknown as [number, number, [string, number, string]][];
    const found = shards.find(([from, to]) => from <= slot && slot <= to);
    if (found === undefined) throw new Error(`nobody serves slot ${slot}`);
    return memberOf(found[2][2]);
  };

  const cluster: TestRedisCluster = {
    get url() {
      return `redis-cluster://${members.map(({ port }) => `127.0.0.1:${port}`).join(',')}`;
    },
    members,

    async masters() {
      const [asked] = living();
      if (asked === undefined) throw new Error('no member lives');
      const rows = await table(asked);
      return rows
        .filter(({ flags, slots }) => flags.includes('master') && slots.length > 0)
        .map(({ nodeId }) => memberOf(nodeId));
    },

    masterOf: (key) => holderOf(slotOf(key)),

    async replicaOf(master) {
      // A master hears of its new replica by gossip, which may come after the cluster is whole.
      const row = await until('a replica of the master', async () =>
        (await table(master)).find(({ above, flags }) => above === master.nodeId && !flags.includes('fail')),
      );
      return memberOf(row.nodeId);
    },

    async pauseReplication(master) {
      const replica = await cluster.replicaOf(master);
      await until('the replica to have everything', async () => {
        const info = await replica.direct.info('replication');
        const mine = /master_repl_offset:(\d+)/.exec(await master.direct.info('replication'))?.[1];
        return info.includes('master_link_status:up') && /slave_repl_offset:(\d+)/.exec(info)?.[1] === mine;
      });
      replica.suspend();
      paused.set(master, replica);
      // A stopped replica would find what waits in its socket's buffer; a link that is closed brings nothing more.
      await master.direct.call('CLIENT', 'KILL', 'TYPE', 'replica');
    },

    async failover(master) {
      const replica = await cluster.replicaOf(master);
      await master.kill();
      await until('the replica to take over', async () => ((await replica.direct.role()) as string[])[0] === 'master');
      await cluster.whole();
      return replica;
    },

    async promoteReplicaOf(master) {
      const replica = paused.get(master) ?? (await cluster.replicaOf(master));
      paused.delete(master);
      await master.kill();
      replica.resume();
      await until('the replica to take over', async () => {
        const [role] = (await replica.direct.role()) as [string];
        if (role === 'master') return true;
        await replica.direct.cluster('FAILOVER', 'TAKEOVER');
        return false;
      });
      await cluster.whole();
      return replica;
    },

    async sayOwnerAgain(slot) {
      const owner = await holderOf(slot);
      await owner.direct.cluster('SETSLOT', slot, 'NODE', owner.nodeId);
    },
    async moveSlot(slot) {
      const masters = await cluster.masters();
      const from = await holderOf(slot);
      const to = masters.find((master) => master !== from) as ClusterMember;
      await to.direct.cluster('SETSLOT', slot, 'IMPORTING', from.nodeId);
      await from.direct.cluster('SETSLOT', slot, 'MIGRATING', to.nodeId);
      for (;;) {
        const keys = (await from.direct.cluster('GETKEYSINSLOT', slot, 20)) as string[];
        if (keys.length === 0) break;
        await from.direct.call('MIGRATE', '127.0.0.1', to.port, '', 0, 5_000, 'KEYS', ...keys);
      }
      await to.direct.cluster('SETSLOT', slot, 'NODE', to.nodeId);
      await from.direct.cluster('SETSLOT', slot, 'NODE', to.nodeId);
      for (const other of masters)
        await other.direct.cluster('SETSLOT', slot, 'NODE', to.nodeId).catch(() => undefined);
      return { from, to };
    },

    async restart() {
      await Promise.all(members.map((member) => member.kill()));
      await Promise.all(members.map((member) => member.start()));
      await cluster.whole();
    },

    async whole() {
      await until('the cluster to be whole', isWhole);
    },

    async [Symbol.asyncDispose]() {
      for (const { direct } of members) direct.disconnect();
      await Promise.all(members.map((member) => member.kill()));
      await rm(folder, { recursive: true, force: true });
    },
  };

  try {
    await Promise.all(members.map((member) => member.start()));
    await cluster.whole();
    await until('the replicas to follow', async () => {
      for (const member of members.slice(SHARDS)) {
        if (!(await member.direct.info('replication')).includes('master_link_status:up')) return false;
      }
      return true;
    });
    return cluster;
  } catch (error) {
    const said = await readFile(join(folder, '0', 'nodes.conf'), 'utf8').catch(() => '');
    await cluster[Symbol.asyncDispose]();
    throw new Error(`no cluster: ${error}\n${said}`);
  }
}
