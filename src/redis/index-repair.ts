/**
 * Rebuilds the indexes from the records, a page at a time (FAULTS S2): what a process may hold and what is due is noted
 * before the record changes, but a note can go first. A request that hung in a frozen connection may change the record
 * after its process was judged and its notes were cleared; a shard may lose an index. Then nobody would look after the
 * record again. Walks all records for ever; a whole round takes as long as it takes.
 */
import type { Cluster, Redis } from 'ioredis';
import type { Log } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import {
  type CommandId,
  type NodeId,
  parseCommandId,
  parseNodeId,
  parseSessionId,
  parseWorkerId,
  type SessionId,
  type Tag,
  type WorkerId,
} from '../protocol/ids.js';
import type { Keys } from './keys.js';
import { askMaster, mastersOf } from './masters.js';
import { answerOf } from './redis-errors.js';

export interface IndexRepairPorts {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  /** Whether this is among what is due. */
  isDue(member: string): Promise<boolean>;
  noteDue(member: string): Promise<void>;
  /** Notes that the process may hold it, and that there is or was such a process. */
  noteNode(nodeId: NodeId, sessionId: SessionId): Promise<void>;
  noteWorker(workerId: WorkerId, commandId: CommandId): Promise<void>;
  /** Finds an owner for a command whose owner is not open, or puts it back into the set where it is looked for. */
  reown(commandId: CommandId): Promise<number>;
  /** Takes commands without a record out of the list of a conversation. */
  dropOrphans(tag: Tag): Promise<number>;
  readonly log?: Pick<Log, 'error'> | undefined;
  /** A walk over all records is over: so many bytes of output are kept in all logs together. */
  walked(retainedBytes: number): void;
}

/** Keys looked at in one step: few where there are few, so that a cluster at rest costs little. */
const PAGE_KEYS = { least: 100, most: 500 };

export function createIndexRepair(ports: IndexRepairPorts) {
  const { redis, keys, log, isDue, noteDue, noteNode, noteWorker, reown, dropOrphans, walked } = ports;
  /** Where the walk is: which master, and its cursor. */
  let at = 0;
  let cursor = '0';
  /** Counted since the walk began. */
  let retainedBytes = 0;
  const records = new RegExp(`^${keys.prefix}:\\{[^}]+\\}:(ses|cmd):(.+)$`);
  const lists = new RegExp(`^${keys.prefix}:\\{([^}]+)\\}:cmds$`);

  /** @param steps that a round may take where a page of the most keys does not need more */
  async function page(steps: number): Promise<{ readonly found: readonly string[]; readonly isLast: boolean }> {
    const masters = mastersOf(redis);
    if (at >= masters.length) at = 0;
    const master = masters[at];
    if (master === undefined) return { found: [], isLast: false };
    const [next, found] = await askMaster(master, async (asked) => {
      const share = Math.ceil(((await asked.dbsize()) * masters.length) / steps);
      const count = Math.min(PAGE_KEYS.most, Math.max(PAGE_KEYS.least, share));
      return asked.scan(cursor, 'MATCH', `${keys.prefix}:{*`, 'COUNT', count);
    });
    cursor = next;
    if (next === '0') at += 1;
    return { found, isLast: next === '0' && at >= masters.length };
  }

  async function ensureDue(member: string): Promise<number> {
    if (await isDue(member)) return 0;
    await noteDue(member);
    return 1;
  }

  async function ensureHeld(index: string, member: string, note: () => Promise<void>): Promise<number> {
    if ((await answerOf(redis.sismember(index, member))) === 1) return 0;
    await note();
    return 1;
  }

  async function checkSession(key: string, id: SessionId): Promise<number> {
    const [state, node] = await answerOf(redis.hmget(key, 'state', 'node'));
    const nodeId = parseNodeId(node);
    if (state === 'away') return ensureDue(`grace:${id}`);
    if (state === 'closing') return ensureDue(`close:${id}`);
    if (state !== 'live' || nodeId === undefined) return 0;
    return ensureHeld(keys.nodeSessions(nodeId), id, () => noteNode(nodeId, id));
  }

  async function checkCommand(key: string, id: CommandId): Promise<number> {
    const [state, worker, first, last] = await answerOf(redis.hmget(key, 'state', 'worker', 'fb', 'lb'));
    retainedBytes += Number(first ?? 0) + Number(last ?? 0);
    const workerId = parseWorkerId(worker);
    if (state === 'queued') return ensureDue(`queued:${id}`);
    if (state === 'ended') return ensureDue(`expire:${id}`);
    if (state !== 'running' || workerId === undefined) return 0;
    return ensureHeld(keys.workerCommands(workerId), id, () => noteWorker(workerId, id));
  }

  function check(key: string): Promise<number> | number {
    const tag = lists.exec(key)?.[1];
    if (tag !== undefined) return dropOrphans(tag as Tag);
    const [, kind, text] = records.exec(key) ?? [];
    const sessionId = kind === 'ses' ? parseSessionId(text) : undefined;
    const commandId = kind === 'cmd' ? parseCommandId(text) : undefined;
    if (sessionId !== undefined) return checkSession(key, sessionId);
    if (commandId === undefined) return 0;
    return Promise.all([checkCommand(key, commandId), reown(commandId)]).then(([noted, moved]) => noted + moved);
  }

  /** One that can not be looked at holds up nobody else. */
  async function checkAlone(key: string): Promise<number> {
    try {
      return await check(key);
    } catch (error) {
      if (error instanceof AppError) throw error;
      log?.error({ key, fault: messageOf(error) }, 'could not compare a record with the indexes');
      return 0;
    }
  }

  /** @returns how many notes were missing @throws AppError REDIS_UNAVAILABLE */
  return async (steps = 1): Promise<number> => {
    const { found, isLast } = await page(steps);
    const missing = await Promise.all(found.map(checkAlone));
    if (isLast) {
      walked(retainedBytes);
      retainedBytes = 0;
    }
    return missing.reduce((sum, one) => sum + one, 0);
  };
}
