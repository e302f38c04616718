/**
 * Sessions, their attachments and what they own: the port SessionDirectory on Redis. Every decision is a script's; this
 * file writes intents before records (FAULTS S2) and goes on with batches until they are done.
 */
import type { Cluster, Redis } from 'ioredis';
import type { CloseCondition, Log, OwnedCommand, Presence, SessionDirectory, SessionState } from '../domain/ports.js';
import type { AttachmentId, CommandId, NodeId, SessionId } from '../protocol/ids.js';
import { tagOf } from '../protocol/ids.js';
import type { OwnerWhy } from '../protocol/methods.js';
import { answerOf } from './connections.js';
import type { Keys } from './keys.js';
import { readFields, readHashes } from './pipelines.js';
import type { Scripts } from './scripts.js';
import { createSessionChecks } from './session-checks.js';
import { readable, readSnapshot } from './snapshot.js';

/** 10,000 moves in one script block Redis for 84 ms, 500 for 4. */
const MOVES_PER_BATCH = 500;
/** How many owned commands are looked at to find the oldest; more than this are found again when these are done. */
const OWNED_SCAN = 2_000;
/** A close that its process does not finish is gone on with after this. */
const CLOSE_RETRY_MS = 2_000;

export interface SessionDirectoryOptions {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly scripts: Scripts;
  readonly presence: Presence;
  readonly graceMs: number;
  readonly retentionMs: number;
  /** Told of records that are damaged or newer, and left out. */
  readonly log?: Pick<Log, 'error'> | undefined;
}

export function createSessionDirectory(options: SessionDirectoryOptions): SessionDirectory {
  const { redis, keys, scripts, presence, graceMs, retentionMs, log } = options;
  const prefixOf = (id: SessionId) => keys.tagPrefix(tagOf(id));

  const detach = async (sessionId: SessionId, attachmentId: AttachmentId | '', nodeId: NodeId | '') => {
    await presence.noteDue(`grace:${sessionId}`, graceMs);
    await scripts.run('detach', [keys.session(sessionId)], [attachmentId, nodeId, graceMs]);
  };

  const closeStep = async (sessionId: SessionId, condition: CloseCondition) =>
    (await scripts.run(
      'close',
      [keys.session(sessionId), keys.owned(sessionId)],
      [
        prefixOf(sessionId),
        sessionId,
        condition.type,
        condition.type === 'attachment' || condition.type === 'again' ? condition.attachmentId : '',
        MOVES_PER_BATCH,
        retentionMs,
        graceMs,
      ],
    )) as [type: 'refused' | 'more' | 'closed', count: number, ...toKill: CommandId[]];

  return {
    async open(request) {
      const answer = (await scripts.run(
        'open',
        [keys.session(request.sessionId)],
        [
          keys.tagPrefix(request.tag),
          request.sessionId,
          request.tenant,
          request.conversation,
          request.principal,
          request.attachmentId,
          request.nodeId,
          request.resumeTokenHash,
          request.pageNonce,
        ],
      )) as ['opened', number, number] | ['refused'];
      return answer[0] === 'refused' ? { type: 'refused' } : { type: 'opened', generation: answer[1], rev: answer[2] };
    },

    async attach(request) {
      const answer = (await scripts.run(
        'attach',
        [keys.session(request.sessionId)],
        [
          keys.sessionChannel(request.sessionId),
          request.principal,
          request.resumeTokenHash,
          request.attachmentId,
          request.nodeId,
          request.pageNonce,
          request.probedAttachmentId,
        ],
      )) as ['attached', number, number] | ['denied' | 'gone' | 'superseded'] | ['probe', NodeId, AttachmentId];
      switch (answer[0]) {
        case 'attached':
          return { type: 'attached', generation: answer[1], rev: answer[2] };
        case 'probe':
          return { type: 'probe', nodeId: answer[1], attachmentId: answer[2] };
        default:
          return { type: answer[0] };
      }
    },

    detach: (sessionId, attachmentId) => detach(sessionId, attachmentId, ''),
    detachFromNode: (sessionId, nodeId) => detach(sessionId, '', nodeId),

    async close(sessionId, condition) {
      await presence.noteDue(`close:${sessionId}`, CLOSE_RETRY_MS);
      const toKill: CommandId[] = [];
      let moved = 0;
      let step: CloseCondition = condition;
      for (;;) {
        const [type, count, ...kill] = await closeStep(sessionId, step);
        if (type === 'refused') return count < 0 ? { type: 'refused' } : { type: 'refused', dueInMs: count };
        moved += count;
        toKill.push(...kill);
        if (type === 'closed') return { type: 'closed', moved, toKill };
        step = { type: 'continue' };
      }
    },

    async touch(sessionId, attachmentId) {
      await scripts.run('touch', [keys.session(sessionId)], [prefixOf(sessionId), sessionId, attachmentId]);
    },

    async adoptParked(sessionId) {
      let adopted = 0;
      for (;;) {
        const [moved, more] = (await scripts.run(
          'adopt-parked',
          [keys.session(sessionId)],
          [prefixOf(sessionId), sessionId, MOVES_PER_BATCH],
        )) as [number, number];
        adopted += moved;
        if (more === 0) return adopted;
      }
    },

    check: createSessionChecks({ redis, scripts, keys }),

    async owned(sessionId, limit) {
      // The rev is read first: if something changes after it, the node's rev is behind and its sweep reads again (S4).
      const [rev, attaches] = await answerOf(redis.hmget(keys.session(sessionId), 'rev', 'attaches'));
      const [cursor, ids] = (await answerOf(redis.sscan(keys.owned(sessionId), 0, 'COUNT', OWNED_SCAN))) as [
        string,
        CommandId[],
      ];
      const unique = [...new Set(ids)];
      const created = await readFields(
        redis,
        unique.map((id) => keys.command(id)),
        ['created'],
      );
      const oldestFirst = unique
        .map((id, index) => ({ id, createdAt: Number(created[index]?.[0] ?? 0) }))
        .sort((a, b) => a.createdAt - b.createdAt)
        .map(({ id }) => id);
      const chosen = oldestFirst.slice(0, limit);
      const hashes = await readHashes(
        redis,
        chosen.map((id) => keys.command(id)),
      );
      const commands: OwnedCommand[] = [];
      for (const [index, id] of chosen.entries()) {
        const hash = hashes[index];
        if (hash?.owner !== sessionId) continue;
        const snapshot = readable(() => readSnapshot(keys.command(id), id, hash), log);
        if (snapshot === undefined) continue;
        commands.push({ snapshot, why: (hash.why ?? '') as OwnerWhy | '', fromSeq: snapshot.ackedSeq + 1 });
      }
      const attachedAt = lastAttach(attaches ?? '');
      return {
        rev: Number(rev ?? 0),
        attachedAt,
        commands,
        more: cursor !== '0' || oldestFirst.length > chosen.length,
      };
    },

    async place(sessionId) {
      const tag = tagOf(sessionId);
      const [principal, held] = await answerOf(
        Promise.all([
          redis.hget(keys.session(sessionId), 'principal'),
          redis.hmget(keys.conversation(tag), 'tenant', 'conversation'),
        ]),
      );
      const [tenant, conversation] = held;
      if (principal === null || !tenant || !conversation) return undefined;
      return { tag, tenant, conversation, principal };
    },

    async list(place, cursor, limit) {
      const flat = await answerOf(
        redis.zrevrange(keys.sessions(place.tag, place.principal), cursor, cursor + limit - 1, 'WITHSCORES'),
      );
      const rows = Array.from({ length: flat.length / 2 }, (_, i) => ({
        sessionId: flat[i * 2] as SessionId,
        lastActiveAt: Number(flat[i * 2 + 1]),
      }));
      const records = await readFields(
        redis,
        rows.map((row) => keys.session(row.sessionId)),
        ['state', 'gen', 'node', 'created'],
      );
      const owned = await answerOf(Promise.all(rows.map((row) => redis.scard(keys.owned(row.sessionId)))));
      const sessions = rows.map((row, index) => {
        const [state, generation, nodeId, createdAt] = records[index] ?? [];
        return {
          ...row,
          state: (state ?? 'closed') as SessionState,
          generation: Number(generation ?? 0),
          nodeId: nodeId ?? '',
          createdAt: Number(createdAt ?? 0),
          owned: owned[index] ?? 0,
        };
      });
      return rows.length < limit ? { sessions } : { sessions, next: cursor + limit };
    },
  };
}

/** When the session was attached last; 0 where nothing says so. See scripts/_attaches.lua. */
function lastAttach(attaches: string): number {
  const line = attaches.split('\n').findLast((one) => one.split(' ')[1] === 'attach');
  return Number(line?.split(' ')[0] ?? 0) || 0;
}
