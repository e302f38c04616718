/**
 * Random faults for a while, among many tabs and commands; then everything is healed and must be as if nothing had been:
 * each log what its program printed, each entry at its own application once, each end once, and nothing left behind.
 *
 * HOMING_TEST_FAULT_SECONDS is how long things break, HOMING_TEST_SEED repeats a run. The schedule is the seed's; what
 * the processes make of it is not, so a failure may need a few repeats.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import type { CommandId } from '../../src/protocol/ids.js';
import { createCommandStore } from '../../src/redis/command-store.js';
import { createKeys } from '../../src/redis/keys.js';
import { createPresence } from '../../src/redis/presence.js';
import { createScripts } from '../../src/redis/scripts.js';
import type { Handle, NodeHandle } from '../support/cluster.js';
import { commandFaults, type Listed, type Tally } from '../support/fault-checks.js';
import { createFaultLoad, type FaultLoad } from '../support/fault-load.js';
import { createSchedule, sortOf } from '../support/fault-schedule.js';
import { createFaultWorld, type FaultWorld, type Happened } from '../support/fault-world.js';
import { commandLine, marked, markerFor } from '../support/processes.js';
import { createSeeded } from '../support/seeded.js';
import { chance } from '../support/stores.js';
import { until } from '../support/wait.js';

const SECONDS = Number(process.env.HOMING_TEST_FAULT_SECONDS ?? 8);
const SEED = Number(process.env.HOMING_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));
const LONG = SECONDS > 30;
const SIZE = LONG ? { nodes: 3, workers: 2, tabs: 12 } : { nodes: 2, workers: 2, tabs: 8 };
const LEASE_MS = 2_000;
const GRACE_MS = LONG ? 15_000 : 5_000;
const ARTIFACTS = fileURLToPath(new URL('../../.artifacts/', import.meta.url));
/** After a change of server nobody is judged for a grace; then a lease; and the last programs take their time. */
const SETTLE_MS = 2 * GRACE_MS + 60_000;
/** Logs read at the same time in the end. */
const READS = 8;

describe(`random faults for ${SECONDS} s, seed ${SEED}`, () => {
  it(
    '[DE1] [DE2] [OW1] [OW2] [SE3] [CO1] [CO2] [CO3] [CO9] [IS2] leave every log whole, every entry at its own application once, and nothing behind',
    async () => {
      const seeded = createSeeded(SEED);
      const folder = await mkdtemp(join(tmpdir(), 'homing-faults-'));
      const world = await createFaultWorld(SIZE, {
        HOMING_LEASE_MS: String(LEASE_MS),
        HOMING_GRACE_MS: String(GRACE_MS),
        HOMING_RETENTION_MS: String(3_600_000),
      });
      const load = createFaultLoad(world, seeded.fork('load'), {
        tabs: SIZE.tabs,
        commands: 16,
        conversations: LONG ? 3 : 2,
        folder,
      });
      const recovery = createRecovery(world, load);
      let faults: string[] = [];
      try {
        await until('something to run', () => load.running().length > 0);
        await world.run(createSchedule(seeded.fork('faults'), SECONDS * 1_000, SIZE), recovery.watch);
        await load.stop();
        await world.heal();
        await load.answered();
        const settled = await settle(world, load);
        const listed = await listAll(world, load, folder);
        const tally: Tally = { delivered: 0, lost: 0, duplicated: 0, misdelivered: 0 };
        const labels = new Set<string>();
        faults = [...settled];
        for (const command of listed) {
          if (labels.has(command.label)) faults.push(`${command.label} is there twice`);
          labels.add(command.label);
          const asked = load.asked.get(command.label);
          faults.push(...commandFaults(command, asked, load.applications, world.harmedWorkers, tally));
        }
        for (const app of load.applications) {
          for (const id of app.seen.keys()) {
            if (!listed.some((command) => command.commandId === id))
              faults.push(`${app.name} saw ${id}, which is nowhere`);
          }
        }
        const misdelivered = await world.counted('homing_misdelivered_total');
        const staleDropped = await world.counted('homing_stale_dropped_total');
        if (misdelivered > 0) faults.push(`the nodes say that they sent ${misdelivered} entries to the wrong place`);
        const figures = {
          seed: SEED,
          seconds: SECONDS,
          commands: listed.length,
          endings: countBy(listed.map(({ reason }) => reason)),
          applications: load.applications.length,
          reloads: load.applications.reduce((sum, app) => sum + app.comings, 0),
          faults: countBy(world.happened.map(({ fault }) => sortOf(fault))),
          ...tally,
          misdelivered: tally.misdelivered + misdelivered,
          staleDropped,
          recoveryMs: recovery.figures(),
          ok: faults.length === 0,
        };
        await load.closeAll();
        faults.push(...(await leftBehind(world)));
        mkdirSync(ARTIFACTS, { recursive: true });
        writeFileSync(
          join(ARTIFACTS, `faults-${SEED}.json`),
          `${JSON.stringify({ ...figures, ok: faults.length === 0 }, undefined, 1)}\n`,
        );
      } catch (error) {
        faults.push(`${error}`, `${(error as Error).cause ?? ''}`);
      } finally {
        if (faults.length > 0) writeFailure(world, load, faults);
        await load[Symbol.asyncDispose]();
        await world[Symbol.asyncDispose]();
        await rm(folder, { recursive: true, force: true });
      }
      expect(faults.slice(0, 20), `HOMING_TEST_SEED=${SEED} HOMING_TEST_FAULT_SECONDS=${SECONDS}`).toEqual([]);
    },
    SECONDS * 1_000 + 3 * SETTLE_MS + 180_000,
  );
});

/** Waits until every command has ended and its end was seen. */
async function settle(world: FaultWorld, load: FaultLoad): Promise<string[]> {
  const waiting = async () => {
    const listed = await listCommands(world, load);
    return listed.filter(
      ({ commandId, state }) => state !== 'ended' || load.newest(commandId) !== Number.POSITIVE_INFINITY,
    );
  };
  const pages = () => load.applications.filter((app) => !app.isSettled());
  const done = until(
    'every page back and every end seen',
    async () => pages().length === 0 && (await waiting()).length === 0,
    SETTLE_MS,
    500,
  );
  return done.then(
    () => [],
    async (error) => [
      `${error}`,
      ...pages().map((app) => `${app.name} is not back`),
      ...(await waiting()).map((c) => `${c.label} (${c.commandId}) waits: ${c.state}`),
    ],
  );
}

type Short = Omit<Listed, 'text' | 'starts'>;

async function listCommands({ cluster }: FaultWorld, load: FaultLoad): Promise<Short[]> {
  const places = new Map(load.applications.map((app) => [`${app.principal} ${app.conversation}`, app]));
  const listed: Short[] = [];
  for (const { principal, conversation } of places.values()) {
    const token = cluster.token({ sub: principal });
    let cursor = '';
    do {
      const path = `/v1/conversations/${conversation}/commands?limit=100${cursor && `&cursor=${encodeURIComponent(cursor)}`}`;
      const { status, json } = await cluster.http('GET', path, { token });
      if (status !== 200) throw new Error(`the list of commands answered ${status}`);
      for (const c of json.commands) {
        listed.push({
          ...{ commandId: c.commandId, label: c.labels?.label ?? '', principal, conversation, state: c.state },
          ...{ reason: c.outcome?.reason ?? '', code: c.outcome?.code ?? null, workerId: c.workerId ?? '' },
          headSeq: c.headSeq,
        });
      }
      cursor = json.next ?? '';
    } while (cursor !== '');
  }
  return listed;
}

async function listAll(world: FaultWorld, load: FaultLoad, folder: string): Promise<Listed[]> {
  const commands = await listCommands(world, load);
  const listed: Listed[] = [];
  const read = async () => {
    for (let command = commands.pop(); command !== undefined; command = commands.pop()) {
      const token = world.cluster.token({ sub: command.principal });
      const log = await world.cluster.http('GET', `/v1/commands/${command.commandId}/log?format=text`, { token });
      const file = join(folder, command.label);
      const starts = existsSync(file) ? readFileSync(file, 'utf8').split('\n').length - 1 : 0;
      listed.push({ ...command, text: log.raw.toString('utf8'), starts });
    }
  };
  await Promise.all(Array.from({ length: READS }, read));
  return listed;
}

/** How long after a fault everything that was running shows something newer than its end; only for faults that came alone. */
function createRecovery(world: FaultWorld, load: FaultLoad) {
  const measured = new Map<string, number[]>();
  return {
    watch(happened: Happened): void {
      const ids = load.running();
      const alone = () =>
        world.happened.every(
          (other) => other === happened || (other.endedMs !== 0 && other.endedMs < happened.beganMs),
        );
      if (ids.length === 0 || !alone()) return;
      const timer = setInterval(() => {
        const waited = performance.now() - happened.endedMs;
        if (!alone() || waited > 60_000) clearInterval(timer);
        else if (ids.every((id) => load.newest(id) >= happened.endedAt)) {
          clearInterval(timer);
          const sort = sortOf(happened.fault);
          measured.set(sort, [...(measured.get(sort) ?? []), Math.round(waited)]);
        }
      }, 10);
      timer.unref();
    },
    figures: () => Object.fromEntries([...measured].sort(([a], [b]) => a.localeCompare(b))),
  };
}

/** Processes that should be gone, and keys that would stay for ever. */
async function leftBehind({ cluster }: FaultWorld): Promise<string[]> {
  const faults: string[] = [];
  const own = new Set([...cluster.nodes, ...cluster.workers].map(({ pid }) => pid));
  const strays = () => marked(markerFor(cluster.prefix)).filter((pid) => !own.has(pid));
  await until('no process of a command left', () => strays().length === 0, 10_000).catch(() => {
    for (const pid of strays()) faults.push(`a process is left: ${commandLine(pid)}`);
  });
  const stop = async (handle: Handle) => {
    const { role, id } = handle;
    await handle.kill('SIGTERM');
    if (handle.exitCode !== 0) faults.push(`the ${role} ${id} ended with ${handle.exitCode} after SIGTERM`);
  };
  const redis = new Redis(cluster.redis.url);
  /** As long as one is left to judge, what a process held and left is cleared away. */
  const cleared = (index: string, ids: readonly string[]) =>
    until(
      `nothing but ${ids.length} left of all ${index}`,
      async () => (await redis.zrange(`${cluster.prefix}:${index}`, '0', '-1')).every((id) => ids.includes(id)),
      SETTLE_MS,
    ).catch((error) => void faults.push(`${error}`));
  try {
    const [last, ...others] = cluster.nodes as [NodeHandle, ...NodeHandle[]];
    for (const handle of [...cluster.workers, ...others]) await stop(handle);
    await cleared('workers', []);
    await cleared('nodes', [last.id]);
    await stop(last);
    faults.push(...(await endlessKeys(redis, cluster.prefix)));
  } finally {
    redis.disconnect();
  }
  return faults;
}

/** Ends the retention of every command, as the reconciler does in its time; then nothing may be left that has no end. */
async function endlessKeys(redis: Redis, prefix: string): Promise<string[]> {
  const keys = createKeys(prefix);
  const scripts = createScripts(redis);
  const presence = createPresence({ redis, keys, scripts, chance, leaseMs: LEASE_MS });
  const limits = { retentionMs: 1, logFirstBytes: 1024, logLastBytes: 1024 };
  const commands = createCommandStore({ ...{ redis, keys, scripts, presence, chance }, ...limits });
  for (const key of await redis.keys(`${prefix}:*:cmd:*`)) {
    await commands.expire(key.slice(key.lastIndexOf(':') + 1) as CommandId);
  }
  const faults: string[] = [];
  for (const key of await redis.keys(`${prefix}:*`)) {
    if ((await redis.pttl(key)) !== -1) continue;
    // What is due goes when its time comes and its record is found to be gone.
    const due = key.startsWith(`${prefix}:due:`) ? await redis.zrange(key, '0', '-1') : undefined;
    if (due?.every((member) => /^(expire|grace|close|queued):/.test(member))) continue;
    faults.push(`a key without an end: ${key}`);
  }
  return faults;
}

function writeFailure(world: FaultWorld, load: FaultLoad, faults: readonly string[]): void {
  mkdirSync(ARTIFACTS, { recursive: true });
  const pages = load.applications.map(({ name, kind, principal, conversation, state, seen, diary }) => ({
    ...{ name, kind, principal, conversation, state, diary: diary() },
    seen: Object.fromEntries(
      [...seen].map(([id, entries]) => [
        id,
        entries.map((e) => `${e.type} ${e.fromSeq}-${e.seq}${e.view ? ' view' : ''} @${Math.round(e.arrivedMs)}`),
      ]),
    ),
  }));
  const happened = world.happened.map(({ fault, beganMs, endedMs }) => ({ ...fault, beganMs, endedMs }));
  writeFileSync(
    join(ARTIFACTS, `faults-${SEED}.failed.json`),
    JSON.stringify({ faults, happened, pages }, undefined, 1),
  );
  writeFileSync(join(ARTIFACTS, `faults-${SEED}.failed.log`), world.logs());
}

function countBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of [...names].sort()) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}
