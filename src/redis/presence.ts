/**
 * Who is there, what they may hold, and what is due, on Redis. These are indexes, not truth: an extra member is harmless,
 * a missing one is rebuilt (FAULTS S2). Each key is written alone, so every call works in any slot of a Cluster.
 */
import type { Cluster, Redis } from 'ioredis';
import { z } from 'zod';
import type { Beat, Chance, DueItem, Log, Meter, Presence, WorkerFacts } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import { type NodeId, parseCommandId, parseSessionId, tagOf, type WorkerId } from '../protocol/ids.js';
import { createIndexRepair } from './index-repair.js';
import { parseJson } from './json.js';
import { DUE_BUCKETS, type Keys } from './keys.js';
import { askMasters } from './masters.js';
import { answerAt, answerOf, unlessAnotherType } from './redis-errors.js';
import type { Scripts } from './scripts.js';

export interface PresencePorts {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly scripts: Scripts;
  readonly leaseMs: number;
  readonly chance: Chance;
  /** Longest legal spans of what is due: what is noted further away comes from a clock that stepped (R4). */
  readonly graceMs?: number;
  readonly retentionMs?: number;
  readonly meter?: Pick<Meter, 'gauge'>;
  /** Hears of what is damaged. */
  readonly log?: Pick<Log, 'error'>;
}

/** A record outlives its lease, so that a judge sees one that stands still and not one that vanished (R4). */
const LEASES_KEPT = 4;
const SCAN_PAGE = 1_000;
const ORPHANS_PER_LOOK = 100;
const FOREVER_MS = 10 ** 13;
/** What is neither a grace nor a retention is looked at this often at least. */
const OFTEN_MS = 60_000;

const beatRecord = z.looseObject({ beat: z.string() });
const workerRecord = z.looseObject({
  beat: z.string(),
  workerId: z.string().transform((id) => id as WorkerId),
  pool: z.string(),
  concurrency: z.number(),
  containment: z.string(),
  version: z.string(),
  startedAt: z.number(),
  draining: z.boolean(),
});

export function createPresence(ports: PresencePorts): Presence {
  const { redis, keys, scripts, leaseMs, chance, log } = ports;
  const { graceMs = FOREVER_MS, retentionMs = FOREVER_MS } = ports;
  let beats = 0;

  /** Looked at too early, an item is only noted again. */
  function longestMs(member: string): number {
    if (member.startsWith('grace:')) return graceMs;
    if (member.startsWith('expire:')) return retentionMs;
    return Math.max(OFTEN_MS, 2 * leaseMs);
  }

  const mark = (key: string, op: string, ...args: (string | number)[]) => scripts.run('mark', [key], [op, ...args]);

  async function beat(index: string, id: string, key: string, facts: object): Promise<void> {
    beats += 1;
    const record = JSON.stringify({ v: 1, ...facts, beat: String(beats) });
    // The index first: a process that is found without a record is looked after, one that is not found is not.
    await mark(index, 'note', id, 0);
    await scripts.run('beat', [key], [record, LEASES_KEPT * leaseMs]);
  }

  async function records(index: string, keyOf: (id: string) => string): Promise<(readonly [string, unknown])[]> {
    const ids = await answerAt(index, redis.zrange(index, '0', '-1'));
    const texts = await answerOf(Promise.all(ids.map((id) => redis.get(keyOf(id)).catch(unlessAnotherType(null)))));
    return ids.map((id, n) => [id, parseJson(texts[n])] as const);
  }

  /** A member that is no id is told and taken out: it would hold up who goes through them all. */
  async function members<Id extends string>(key: string, parse: (text: string) => Id | undefined): Promise<Id[]> {
    const found = new Set<Id>();
    let cursor = '0';
    do {
      const [next, page] = await answerAt(key, redis.sscan(key, cursor, 'COUNT', String(SCAN_PAGE)));
      for (const member of page) {
        const id = parse(member);
        if (id !== undefined) found.add(id);
        else {
          log?.error({ key, member: member.slice(0, 100) }, 'took out of an index what is no id');
          await mark(key, 'remove', member);
        }
      }
      cursor = next;
    } while (cursor !== '0');
    return [...found];
  }

  /** While something may be held, the index goes on naming the process: whoever judges it comes back for the rest. */
  async function forget(index: string, id: string, record: string, held: string): Promise<void> {
    await answerOf(redis.del(record));
    if ((await answerAt(held, redis.scard(held))) === 0) await mark(index, 'drop', id, '');
  }

  async function dueInBucket(bucket: number, limit: number): Promise<DueItem[]> {
    const reply = (await mark(keys.due(bucket), 'due', limit)) as string[];
    const items: DueItem[] = [];
    for (let n = 0; n + 1 < reply.length; n += 2) {
      items.push({ bucket, member: reply[n] ?? '', score: Number(reply[n + 1]) });
    }
    return items;
  }

  const repair = createIndexRepair({
    redis,
    keys,
    log,
    isDue: async (member) => (await mark(keys.due(bucketOf(member)), 'has', member, longestMs(member))) === 1,
    noteDue: async (member) => void (await mark(keys.due(bucketOf(member)), 'note', member, 0)),
    async noteNode(nodeId, sessionId) {
      await mark(keys.nodeSessions(nodeId), 'add', sessionId);
      await mark(keys.nodes, 'note', nodeId, 0);
    },
    async noteWorker(workerId, commandId) {
      await mark(keys.workerCommands(workerId), 'add', commandId);
      await mark(keys.workers, 'note', workerId, 0);
    },
    reown: async (commandId) =>
      (await scripts.run('reown', [keys.command(commandId)], [keys.tagPrefix(tagOf(commandId)), commandId])) as number,
    dropOrphans: async (tag) =>
      (await scripts.run('drop-orphans', [keys.commands(tag)], [keys.tagPrefix(tag), ORPHANS_PER_LOOK])) as number,
    walked: (bytes) => ports.meter?.gauge('homing_retained_bytes', bytes),
  });

  return {
    beatNode: (facts) => beat(keys.nodes, facts.nodeId, keys.node(facts.nodeId), facts),
    beatWorker: (facts) => beat(keys.workers, facts.workerId, keys.worker(facts.workerId), facts),
    async nodes() {
      // A beat that is of another type is as good as none; the next one takes its place.
      const found = await records(keys.nodes, (id) => keys.node(id as NodeId));
      return found.map(([id, record]): Beat<NodeId> => ({ id: id as NodeId, beat: beatOf(record) }));
    },
    async workers() {
      const found = await records(keys.workers, (id) => keys.worker(id as WorkerId));
      return found.map(([id, record]) => {
        const facts = factsOf(record);
        return { id: id as WorkerId, beat: beatOf(record), ...(facts === undefined ? {} : { facts }) };
      });
    },
    forgetNode: (nodeId) => forget(keys.nodes, nodeId, keys.node(nodeId), keys.nodeSessions(nodeId)),
    forgetWorker: (workerId) => forget(keys.workers, workerId, keys.worker(workerId), keys.workerCommands(workerId)),
    async noteNodeSession(nodeId, sessionId) {
      await mark(keys.nodeSessions(nodeId), 'add', sessionId);
    },
    async dropNodeSession(nodeId, sessionId) {
      await mark(keys.nodeSessions(nodeId), 'remove', sessionId);
    },
    nodeSessions: (nodeId) => members(keys.nodeSessions(nodeId), parseSessionId),
    async noteWorkerCommand(workerId, commandId) {
      await mark(keys.workerCommands(workerId), 'add', commandId);
    },
    async dropWorkerCommand(workerId, commandId) {
      await mark(keys.workerCommands(workerId), 'remove', commandId);
    },
    workerCommands: (workerId) => members(keys.workerCommands(workerId), parseCommandId),
    async noteDue(member, delayMs) {
      await mark(keys.due(bucketOf(member)), 'note', member, Math.round(delayMs));
    },
    /** Noted anew meanwhile, with another time: stays. */
    async dropDue({ bucket, member, score }) {
      await mark(keys.due(bucket), 'drop', member, score);
    },
    async due(limit) {
      const items: DueItem[] = [];
      for (const bucket of shuffled(DUE_BUCKETS, chance)) {
        if (items.length >= limit) break;
        try {
          items.push(...(await dueInBucket(bucket, limit - items.length)));
        } catch (error) {
          if (error instanceof AppError) throw error;
          // What is due in the others is settled all the same.
          log?.error({ key: keys.due(bucket), fault: messageOf(error) }, 'could not read what is due');
        }
      }
      return items;
    },
    repairIndexes: repair,
    tryLead: async (id, forMs) => (await scripts.run('lead', [keys.leader], [id, forMs])) === 1,
    async serverIdentity() {
      const identities = await askMasters(redis, identityOf);
      return identities.sort().join(' ');
    },
    async serverClocks() {
      return askMasters(redis, async (master) => {
        const { host, port } = master.options;
        const [seconds, micros] = await master.time();
        return { id: `${host}:${port}`, clockMs: Number(seconds) * 1_000 + Number(micros) / 1_000 };
      });
    },
  };
}

async function identityOf(redis: Redis): Promise<string> {
  const [server, replication] = await Promise.all([redis.info('server'), redis.info('replication')]);
  const field = (text: string, name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1] ?? '';
  return `${field(server, 'run_id')}/${field(replication, 'master_replid')}`;
}

/** The same bucket in every process and version: FNV-1a over the characters. */
export function bucketOf(member: string): number {
  let hash = 0x811c9dc5;
  for (let n = 0; n < member.length; n += 1) hash = Math.imul(hash ^ member.charCodeAt(n), 0x01000193);
  return (hash >>> 0) % DUE_BUCKETS;
}

/** So that reconcilers of many processes do not all begin with the same bucket. */
function shuffled(count: number, chance: Chance): number[] {
  const list = Array.from({ length: count }, (_, n) => n);
  for (let n = count - 1; n > 0; n -= 1) {
    const other = Math.floor(chance.random() * (n + 1));
    [list[n], list[other]] = [list[other] ?? 0, list[n] ?? 0];
  }
  return list;
}

const beatOf = (record: unknown): string => beatRecord.safeParse(record).data?.beat ?? '';

function factsOf(record: unknown): WorkerFacts | undefined {
  const parsed = workerRecord.safeParse(record);
  if (!parsed.success) return undefined;
  const { beat: _beat, v: _version, ...facts } = parsed.data;
  return facts;
}
