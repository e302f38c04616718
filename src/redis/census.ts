/**
 * Who is there and who owns what, across the cluster, for operators. Reads only, in bounded pages, and never in the way
 * of a tab: nothing of it is used to decide anything.
 */
import type { Cluster, Redis } from 'ioredis';
import { buildTrace, ownersIn, parseTraceLine, type TraceLine } from '../domain/command-trace.js';
import type { CommandStore, Presence, WorkerFacts } from '../domain/ports.js';
import { type CommandId, type NodeId, parseCommandId, parseSessionId, type SessionId } from '../protocol/ids.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import { answerOf } from './connections.js';
import { parseJson } from './json.js';
import type { Keys } from './keys.js';
import { askMaster, mastersOf } from './masters.js';
import { readFields } from './pipelines.js';
import { unlessAnotherType } from './redis-errors.js';

export interface NodeRow {
  readonly nodeId: string;
  readonly url: string;
  readonly version: string;
  readonly startedAt: number;
  readonly sessions: number;
  /** As of its last beat. */
  readonly outboxBytes?: number;
  readonly busAgeMs?: number;
  readonly draining?: boolean;
}

export interface WorkerRow extends Partial<WorkerFacts> {
  readonly workerId: WorkerFacts['workerId'];
  readonly commands: number;
}

export interface SessionRow {
  readonly sessionId: SessionId;
  readonly principal: string;
  readonly state: string;
  readonly generation: number;
  readonly nodeId: string;
  readonly owned: number;
}

export interface CommandRow extends CommandSnapshot {
  readonly tenant: string;
  readonly principal: string;
  /** Entries written and not acknowledged. */
  readonly lag: number;
}

export interface Page<T> {
  readonly rows: readonly T[];
  readonly next?: string;
}

export interface Census {
  nodes(): Promise<readonly NodeRow[]>;
  workers(): Promise<readonly WorkerRow[]>;
  /** Sessions a node holds, in no order. */
  sessions(nodeId: NodeId, cursor: string): Promise<Page<SessionRow>>;
  /** What a session owns. */
  owned(sessionId: SessionId, cursor: string): Promise<Page<CommandRow>>;
  /** What a worker runs. */
  running(workerId: WorkerFacts['workerId'], cursor: string): Promise<Page<CommandRow>>;
  command(
    commandId: CommandId,
  ): Promise<{ readonly command: CommandRow; readonly trace: readonly TraceLine[] } | undefined>;
  /** Commands without an owner, as they are met on a walk over all keys; a page may be empty and have a next one. */
  parked(cursor: string): Promise<Page<CommandRow>>;
}

const PAGE = 100;
const SCAN_KEYS = 5_000;
/** Of a command that moved more often, attaches of the latest owners are shown. */
const MAX_OWNERS = 20;

export function createCensus(ports: {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly presence: Presence;
  readonly commands: CommandStore;
}): Census {
  const { redis, keys, presence, commands } = ports;

  async function members(key: string, cursor: string): Promise<{ ids: string[]; next?: string }> {
    const [next, ids] = await answerOf(redis.sscan(key, cursor, 'COUNT', String(PAGE)));
    return next === '0' ? { ids } : { ids, next };
  }

  const sizeOf = (key: string) => redis.scard(key).catch(unlessAnotherType(0));

  async function rowOf(commandId: CommandId): Promise<CommandRow | undefined> {
    const record = await commands.get(commandId);
    if (record === undefined) return undefined;
    const { snapshot, tenant, principal } = record;
    return { ...snapshot, tenant, principal, lag: snapshot.headSeq - snapshot.ackedSeq };
  }

  async function commandPage(key: string, cursor: string): Promise<Page<CommandRow>> {
    const { ids, next } = await members(key, cursor);
    const known = ids.map(parseCommandId).filter((id) => id !== undefined);
    const rows = (await Promise.all(known.map(rowOf))).filter((row) => row !== undefined);
    return next === undefined ? { rows } : { rows, next };
  }

  return {
    async nodes() {
      const ids = (await presence.nodes()).map(({ id }) => id);
      const [texts, counts] = await answerOf(
        Promise.all([
          Promise.all(ids.map((id) => redis.get(keys.node(id)).catch(unlessAnotherType(null)))),
          Promise.all(ids.map((id) => sizeOf(keys.nodeSessions(id)))),
        ]),
      );
      return ids.map((nodeId, index) => {
        const facts = (parseJson(texts[index]) ?? {}) as Partial<NodeRow>;
        const { url = '', version = '', startedAt = 0, outboxBytes, busAgeMs, draining } = facts;
        const health = { outboxBytes, busAgeMs, draining };
        return { nodeId, url, version, startedAt, sessions: counts[index] ?? 0, ...health };
      });
    },

    async workers() {
      const found = await presence.workers();
      const counts = await answerOf(Promise.all(found.map(({ id }) => sizeOf(keys.workerCommands(id)))));
      return found.map(({ id, facts }, index) => ({ ...facts, workerId: id, commands: counts[index] ?? 0 }));
    },

    async sessions(nodeId, cursor) {
      const { ids, next } = await members(keys.nodeSessions(nodeId), cursor);
      const known = ids.map(parseSessionId).filter((id) => id !== undefined);
      const fields = await readFields(
        redis,
        known.map((id) => keys.session(id)),
        ['principal', 'state', 'gen', 'node'],
      );
      const owned = await answerOf(Promise.all(known.map((id) => redis.scard(keys.owned(id)))));
      const rows = known.map((sessionId, index) => {
        const [principal, state, generation, node] = fields[index] ?? [];
        return {
          sessionId,
          principal: principal ?? '',
          state: state ?? 'missing',
          generation: Number(generation ?? 0),
          nodeId: node ?? '',
          owned: owned[index] ?? 0,
        };
      });
      return next === undefined ? { rows } : { rows, next };
    },

    owned: (sessionId, cursor) => commandPage(keys.owned(sessionId), cursor),
    running: (workerId, cursor) => commandPage(keys.workerCommands(workerId), cursor),

    async command(commandId) {
      const [command, lines] = await Promise.all([
        rowOf(commandId),
        answerOf(redis.lrange(keys.trace(commandId), 0, -1)),
      ]);
      if (command === undefined) return undefined;
      const stored = lines.map(parseTraceLine).filter((line) => line !== undefined);
      const owners = ownersIn(command.ownerSessionId, stored)
        .map(parseSessionId)
        .filter((id) => id !== undefined);
      const looked = owners.slice(0, MAX_OWNERS);
      const attaches = await readFields(redis, looked.map(keys.session), ['attaches']);
      const histories = looked.map((sessionId, i) => ({ sessionId, lines: attaches[i]?.[0]?.split('\n') ?? [] }));
      return { command, trace: buildTrace(command, stored, histories) };
    },

    async parked(cursor) {
      const masters = mastersOf(redis);
      const [, index = '0', at = '0'] = /^(\d+)-(\d+)$/.exec(cursor) ?? [];
      const master = masters[Number(index)];
      if (master === undefined) return { rows: [] };
      const [next, found] = await askMaster(master, (asked) =>
        asked.scan(at, 'MATCH', `${keys.prefix}:{*}:*`, 'COUNT', SCAN_KEYS),
      );
      const sets = found.filter((key) => /:\{[^}]+\}:(parked|kept):/.test(key));
      const ids = (await answerOf(Promise.all(sets.map((key) => redis.srandmember(key, PAGE))))).flat();
      const known = ids.map((id) => parseCommandId(id ?? undefined)).filter((id) => id !== undefined);
      const rows = (await Promise.all(known.slice(0, PAGE).map(rowOf))).filter((row) => row !== undefined);
      if (next !== '0') return { rows, next: `${index}-${next}` };
      return Number(index) + 1 < masters.length ? { rows, next: `${Number(index) + 1}-0` } : { rows };
    },
  };
}
