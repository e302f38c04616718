/** A real master with two replicas, watched by three sentinels, of one test's own; a failover takes about two seconds. */
import type { ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { stablePort } from './ports.js';
import { endServer, launchServer, whereverPortsAreFree } from './redis.js';
import { until } from './wait.js';

const NAME = 'main';
const DOWN_AFTER_MS = 1_000;

export interface SentinelMember {
  readonly port: number;
  readonly direct: Redis;
  readonly pid: number | undefined;
  start(): Promise<void>;
  kill(): Promise<void>;
  suspend(): void;
  resume(): void;
}

export interface TestRedisSentinel extends AsyncDisposable {
  readonly url: string;
  readonly members: readonly SentinelMember[];
  /** The master, as the sentinels see it. */
  master(): Promise<SentinelMember>;
  /** From now on no replica gets what the master writes. */
  pauseReplication(): Promise<void>;
  /** Kills the master; resolves when the sentinels have made another one, with what it has. */
  failover(): Promise<SentinelMember>;
}

export const startRedisSentinel = (config: readonly string[] = []): Promise<TestRedisSentinel> =>
  whereverPortsAreFree(() => start(config));

async function start(config: readonly string[]): Promise<TestRedisSentinel> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-sentinel-'));
  const masterPort = await stablePort();
  const ports = [masterPort, await stablePort(), await stablePort()];
  const sentinelPorts = [await stablePort(), await stablePort(), await stablePort()];
  const sentinels: ChildProcess[] = [];
  const asking: Redis[] = [];

  const members = await Promise.all(
    ports.map(async (port, index): Promise<SentinelMember> => {
      const own = join(folder, `redis-${index}`);
      await mkdir(own);
      const lines = [
        'bind 127.0.0.1',
        `port ${port}`,
        `dir ${own}`,
        'save ""',
        'appendonly yes',
        'repl-diskless-sync-delay 0',
        'repl-ping-replica-period 1',
        'maxmemory-policy noeviction',
        ...(index === 0 ? [] : [`replicaof 127.0.0.1 ${masterPort}`]),
        ...config,
      ];
      let child: ChildProcess | undefined;
      const direct = new Redis(port, '127.0.0.1', {
        lazyConnect: true,
        retryStrategy: () => 50,
        maxRetriesPerRequest: 1,
      });
      direct.on('error', () => undefined);
      return {
        port,
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
      };
    }),
  );

  async function startSentinel(port: number): Promise<void> {
    const own = join(folder, `sentinel-${port}`);
    await mkdir(own);
    const file = join(own, 'sentinel.conf');
    await writeFile(
      file,
      [
        'bind 127.0.0.1',
        `port ${port}`,
        `dir ${own}`,
        `sentinel monitor ${NAME} 127.0.0.1 ${masterPort} 2`,
        `sentinel down-after-milliseconds ${NAME} ${DOWN_AFTER_MS}`,
        `sentinel failover-timeout ${NAME} 5000`,
        `sentinel parallel-syncs ${NAME} 2`,
        '',
      ].join('\n'),
    );
    sentinels.push(await launchServer([], { args: [file, '--sentinel'], readyText: '+monitor master' }));
    const redis = new Redis(port, '127.0.0.1', { retryStrategy: () => 50, maxRetriesPerRequest: 1 });
    redis.on('error', () => undefined);
    asking.push(redis);
  }

  const deployment: TestRedisSentinel = {
    url: `redis-sentinel://${sentinelPorts.map((port) => `127.0.0.1:${port}`).join(',')}/${NAME}`,
    members,

    async master() {
      const [, port] = (await (asking[0] as Redis).call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME)) as [
        string,
        string,
      ];
      return members.find((member) => member.port === Number(port)) as SentinelMember;
    },

    async pauseReplication() {
      const master = await deployment.master();
      const replicas = members.filter((member) => member !== master && member.pid !== undefined);
      await until('the replicas to have everything', async () => {
        const mine = /master_repl_offset:(\d+)/.exec(await master.direct.info('replication'))?.[1];
        for (const { direct } of replicas) {
          const info = await direct.info('replication');
          if (/slave_repl_offset:(\d+)/.exec(info)?.[1] !== mine) return false;
        }
        return true;
      });
      for (const replica of replicas) replica.suspend();
      await master.direct.call('CLIENT', 'KILL', 'TYPE', 'replica');
    },

    async failover() {
      const before = await deployment.master();
      await before.kill();
      for (const member of members) member.resume();
      return until(
        'another master',
        async () => {
          const now = await deployment.master();
          if (now === before) return undefined;
          const [role] = (await now.direct.role()) as [string];
          return role === 'master' ? now : undefined;
        },
        30_000,
      );
    },

    async [Symbol.asyncDispose]() {
      for (const redis of asking) redis.disconnect();
      for (const { direct } of members) direct.disconnect();
      await Promise.all(sentinels.map((child) => endServer(child, 'SIGKILL')));
      await Promise.all(members.map((member) => member.kill()));
      await rm(folder, { recursive: true, force: true });
    },
  };

  try {
    await Promise.all(members.map((member) => member.start()));
    await until('the replicas to follow', async () => {
      for (const { direct } of members.slice(1)) {
        if (!(await direct.info('replication')).includes('master_link_status:up')) return false;
      }
      return true;
    });
    await Promise.all(sentinelPorts.map(startSentinel));
    await until(
      'the sentinels to know each other and the replicas',
      async () => {
        for (const redis of asking) {
          const flat = (await redis.call('SENTINEL', 'MASTER', NAME)) as string[];
          const fact = (name: string) => flat[flat.indexOf(name) + 1];
          if (fact('num-other-sentinels') !== '2' || fact('num-slaves') !== '2') return false;
        }
        return true;
      },
      30_000,
    );
    return deployment;
  } catch (error) {
    await deployment[Symbol.asyncDispose]();
    throw error;
  }
}
