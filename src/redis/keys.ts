/** Every Redis name Homing uses. Nothing else builds one. */
import { type CommandId, type NodeId, type SessionId, type Tag, tagOf, type WorkerId } from '../protocol/ids.js';

/** Buckets of timed work; a reconciler visits them in random order. */
export const DUE_BUCKETS = 16;

export function createKeys(prefix: string) {
  const at = (tag: Tag) => `${prefix}:{${tag}}`;
  const session = (id: SessionId) => at(tagOf(id));
  return {
    prefix,
    conversation: (tag: Tag) => `${at(tag)}:conv`,
    sessions: (tag: Tag, principal: string) => `${at(tag)}:sessions:${principal}`,
    session: (id: SessionId) => `${session(id)}:ses:${id}`,
    owned: (id: SessionId) => `${session(id)}:own:${id}`,
    parked: (tag: Tag, principal: string) => `${at(tag)}:parked:${principal}`,
    kept: (tag: Tag, principal: string) => `${at(tag)}:kept:${principal}`,
    commands: (tag: Tag) => `${at(tag)}:cmds`,
    command: (id: CommandId) => `${at(tagOf(id))}:cmd:${id}`,
    first: (id: CommandId) => `${at(tagOf(id))}:first:${id}`,
    last: (id: CommandId) => `${at(tagOf(id))}:last:${id}`,
    /** What was written to its stdin and not taken yet. */
    input: (id: CommandId) => `${at(tagOf(id))}:in:${id}`,
    /** Commands that it started and that are killed with it. */
    children: (id: CommandId) => `${at(tagOf(id))}:kids:${id}`,
    /** Commands that wait for a place of their session. */
    heldBySession: (id: SessionId) => `${at(tagOf(id))}:held:${id}`,
    /** Commands with a place of their tenant, and those that wait for one; both in one slot. */
    tenantPlaces: (tenant: string) => [`${prefix}:{tenant:${tenant}}:places`, `${prefix}:{tenant:${tenant}}:waiting`],
    /** Notices that were told, of one session or of a principal's commands without one. */
    notices: (tag: Tag, origin: string) => `${at(tag)}:notices:${origin}`,
    trace: (id: CommandId) => `${at(tagOf(id))}:trace:${id}`,
    /** What scripts build further keys of the same tag from. */
    tagPrefix: (tag: Tag) => at(tag),
    sessionChannel: (id: SessionId) => `${session(id)}:s:${id}`,
    controlChannel: (id: CommandId) => `${at(tagOf(id))}:ctl:${id}`,
    askChannel: (id: NodeId | WorkerId) => `${prefix}:${id.startsWith('wrk_') ? 'worker' : 'node'}:${id}:ask`,
    probeChannel: (shard: string, id: string) => `${prefix}:{${shard}}:probe:${id}`,
    nodes: `${prefix}:nodes`,
    node: (id: NodeId) => `${prefix}:node:${id}`,
    nodeSessions: (id: NodeId) => `${prefix}:node:${id}:sessions`,
    workers: `${prefix}:workers`,
    worker: (id: WorkerId) => `${prefix}:worker:${id}`,
    workerCommands: (id: WorkerId) => `${prefix}:worker:${id}:cmds`,
    due: (bucket: number) => `${prefix}:due:${bucket}`,
    leader: `${prefix}:leader`,
    /** What a tenant has at the same time, over all its conversations; what a session has in the queue. */
    tenantSessions: (tenant: string) => `${prefix}:{tenant:${tenant}}:sessions`,
    tenantQueued: (tenant: string) => `${prefix}:{tenant:${tenant}}:queued`,
    tenantRetained: (tenant: string) => [`${prefix}:{tenant:${tenant}}:logs`, `${prefix}:{tenant:${tenant}}:bytes`],
    queued: (id: SessionId) => `${session(id)}:queued:${id}`,
    /** The same two as a tenant's, of the commands that the session asked for. */
    retained: (id: SessionId) => [`${session(id)}:logs:${id}`, `${session(id)}:bytes:${id}`],
    /** Begin of the counters of one kind; each is a key of its own. */
    rate: (name: string) => `${prefix}:rate:${name}`,
    /** Pools that jobs were added to lately; on the server of the queues. */
    pools: `${prefix}:pools`,
    /** BullMQ's own prefix for a pool; the hash tag keeps a queue in one slot. */
    queuePrefix: (pool: string) => `{${prefix}:${pool}}`,
  };
}

export type Keys = ReturnType<typeof createKeys>;
