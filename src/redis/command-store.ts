/**
 * Commands and their logs: the port CommandStore on Redis. Every decision is a script's; this file knows how arguments
 * and answers are laid out, and repeats where a script says what has changed.
 */
import type { Cluster, Redis } from 'ioredis';
import type {
  AppendRequest,
  AppendResult,
  Chance,
  ClaimResult,
  CommandRecord,
  CommandStore,
  Held,
  KillResult,
  Left,
  Log,
  Presence,
  Relief,
  ResizeResult,
  StdinPage,
  StoredSpec,
  SubmitRequest,
  SubmitResult,
  Turn,
  TurnAnswer,
  WriteResult,
  Writer,
} from '../domain/ports.js';
import { AppError } from '../errors.js';
import { type EndReason, type Outcome, parseEntryText, type StoredEntry, serializeEntry } from '../protocol/entries.js';
import { type CommandId, makeClaimId, type SessionId, tagOf } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import type { CommandSnapshot, CommandSpec } from '../protocol/methods.js';
import { createClaimChecks } from './claim-checks.js';
import type { ClaimLane } from './claim-lane.js';
import { createCommandList } from './command-list.js';
import { answerOf } from './connections.js';
import type { Keys } from './keys.js';
import { createLogReader } from './read-log.js';
import type { Scripts } from './scripts.js';
import { RECORD_VERSION, readable, readKill, readSnapshot, readSpec } from './snapshot.js';

const FULL_RETRY_MS = 10_000;
/** An entry costs about 220 bytes beside its text, so their number is bounded with the bytes: 1 for each 128. */
const BYTES_PER_ENTRY = 128;
/** Commands that one kill reaches beside its own: started by it, and by those. */
const MAX_FAMILY = 1_000;

export interface CommandStoreOptions {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly scripts: Scripts;
  readonly presence: Presence;
  readonly chance: Chance;
  readonly retentionMs: number;
  readonly logFirstBytes: number;
  readonly logLastBytes: number;
  /** Has claims confirmed by replicas (W1); without it they are as any other script. */
  readonly claimLane?: ClaimLane | undefined;
  /** Refuses new commands while Redis is nearly full (O2). */
  readonly relief?: Pick<Relief, 'isTight'> | undefined;
  /** Told of records that are damaged or newer, and left out. */
  readonly log?: Pick<Log, 'error'> | undefined;
  /** Why a command may not be queued now (CO12). */
  readonly refusalOf?: ((request: SubmitRequest) => Promise<AppError | undefined>) | undefined;
  /** Most commands on their way at the same time, of a session and of a tenant; none: no limit. */
  readonly limits?: { readonly session?: number | undefined; readonly tenant?: number | undefined };
}

export function createCommandStore(options: CommandStoreOptions): CommandStore {
  const {
    redis,
    keys,
    scripts,
    presence,
    chance,
    retentionMs,
    logFirstBytes,
    logLastBytes,
    claimLane,
    relief,
    refusalOf,
    limits,
    log,
  } = options;
  const prefixOf = (id: CommandId) => keys.tagPrefix(tagOf(id));
  const readClaims = createClaimChecks({ redis, scripts, keys });

  /** Keys and the shared tail of arguments of the scripts that append; see scripts/_append.lua. */
  const appendKeys = (commandId: CommandId, owner: SessionId | null) => [
    keys.command(commandId),
    keys.first(commandId),
    keys.last(commandId),
    owner === null ? keys.command(commandId) : keys.session(owner),
  ];
  const appendArgs = (owner: SessionId | null, entries: readonly StoredEntry[]) => [
    owner ?? '',
    owner === null ? '' : keys.sessionChannel(owner),
    logFirstBytes,
    Math.ceil(logFirstBytes / BYTES_PER_ENTRY),
    logLastBytes,
    Math.ceil(logLastBytes / BYTES_PER_ENTRY),
    entries.length,
    ...entries.flatMap((entry) => [entry.letter, entry.fromSeq, entry.seq, entry.endOffset, entry.text]),
  ];

  /** The arguments of write and resize that say who asks; see scripts/_writer.lua. */
  const writerArgs = (commandId: CommandId, writer: Writer) => [
    prefixOf(commandId),
    keys.controlChannel(commandId),
    writer.type,
    writer.type === 'owner' ? writer.sessionId : '',
    writer.type === 'owner' ? writer.attachmentId : '',
  ];

  const nearlyFull = () => {
    const sentence = 'Redis is nearly full: new commands are refused until there is room';
    return new AppError('LIMIT_EXCEEDED', sentence, { retryAfterMs: FULL_RETRY_MS });
  };

  /** A repeat is answered as the first time. */
  const isStored = async (id: CommandId) => (await answerOf(redis.exists(keys.command(id)))) === 1;

  /** Intent before record (S2), sent in this order on one socket without waiting for the first answer. */
  async function withDue(member: string, change: () => Promise<unknown>): Promise<unknown> {
    const [, answer] = await Promise.all([presence.noteDue(member, retentionMs), change()]);
    return answer;
  }

  /** The last characters of output as they are in the log; good enough for a command whose worker is gone. */
  async function readTail(commandId: CommandId): Promise<string> {
    const rows = [keys.last(commandId), keys.first(commandId)].map((key) =>
      redis.xrevrange(key, '+', '-', 'COUNT', 64),
    );
    let tail = '';
    for (const stream of await answerOf(Promise.all(rows))) {
      for (const [, fields] of stream) {
        if (tail.length >= LIMITS.tailChars) break;
        if (fields[1] !== 'o') continue;
        const entry = readable(() => parseEntryText(fields[9] ?? '{}'), log);
        tail = String(entry?.params.data ?? '') + tail;
      }
    }
    return tail.slice(-LIMITS.tailChars);
  }

  return {
    async submit(request) {
      const { origin } = request;
      const refusal = (await relief?.isTight()) === true ? nearlyFull() : await refusalOf?.(request);
      if (refusal !== undefined && !(await isStored(request.commandId))) throw refusal;
      const answer = (await scripts.run(
        'submit',
        [keys.command(request.commandId)],
        [
          keys.tagPrefix(request.tag),
          request.commandId,
          request.tenant,
          request.conversation,
          request.principal,
          JSON.stringify(request.spec),
          request.specHash,
          origin.type,
          'sessionId' in origin ? origin.sessionId : '',
          origin.type === 'connection' ? origin.attachmentId : '',
          request.spec.onOwnerGone,
          origin.type === 'inherited' ? origin.parentCommandId : '',
          hasStdin(request.spec) ? 'open' : '',
          request.spec.pty === undefined ? '' : sizeText(request.spec.pty),
          request.spec.detached ? 1 : 0,
          LIMITS.maxDepth,
          request.sealedSecrets ?? '',
          limits?.session ?? '',
          limits?.tenant ?? '',
          request.spec.priority,
          request.spec.delayMs ?? 0,
        ],
      )) as
        | [
            'accepted',
            CommandSnapshot['state'],
            SessionId | '',
            number,
            number,
            SessionId | '',
            Held | '',
            number,
            ...string[],
          ]
        | ['conflict' | 'origin_unknown' | 'superseded' | 'too_deep'];
      if (answer[0] !== 'accepted') return { type: answer[0] } as SubmitResult;
      const [type, state, owner, rev, repeated, first, held, createdAt, ...turns] = answer;
      return {
        type,
        state,
        ownerSessionId: owner === '' ? null : owner,
        originSessionId: first === '' ? null : first,
        rev,
        repeated: repeated === 1,
        createdAt,
        ...(held === '' ? {} : { held }),
        ...(turns.length === 0 ? {} : { turns: readTurns(turns) }),
      };
    },

    async claim(commandId, claimId, workerId, containment, tokenHash = ''): Promise<ClaimResult> {
      const args = [claimId, workerId, containment, tokenHash, RECORD_VERSION];
      const key = keys.command(commandId);
      const answer = (await (claimLane?.run(key, args) ?? scripts.run('claim', [key], args))) as
        | ['refused', 'running' | 'ended' | 'missing' | 'held' | 'newer']
        | [
            'claimed',
            string,
            string,
            string,
            string,
            SessionId | '',
            number,
            SessionId | '',
            number,
            number,
            number,
            string,
            string,
          ];
      if (answer[0] === 'refused') return { type: 'refused', state: answer[1] };
      const [
        ,
        spec,
        tenant,
        conversation,
        principal,
        origin,
        originClosed,
        owner,
        createdAt,
        startedAt,
        headSeq,
        kill,
        sealed,
      ] = answer;
      const wish = readKill(keys.command(commandId), kill);
      return {
        type: 'claimed',
        place: { tag: tagOf(commandId), tenant, conversation, principal },
        spec: JSON.parse(spec) as StoredSpec,
        originSessionId: origin === '' ? null : origin,
        originClosed: originClosed === 1,
        ownerSessionId: owner === '' ? null : owner,
        createdAt,
        startedAt,
        headSeq,
        ...(sealed === '' ? {} : { sealedSecrets: sealed }),
        ...(wish === undefined ? {} : { kill: wish }),
      };
    },

    async append(request: AppendRequest): Promise<AppendResult> {
      const { commandId, claimId, ownerSessionId, entries, outcome } = request;
      const appendTo = appendKeys(commandId, ownerSessionId);
      const tail = appendArgs(ownerSessionId, entries);
      const answer = (await (outcome === undefined
        ? scripts.run('append', appendTo, [commandId, claimId, ...tail])
        : withDue(
            `expire:${commandId}`,
            scripts.run.bind(
              null,
              'append-end',
              [...appendTo, keys.trace(commandId), keys.input(commandId)],
              [commandId, claimId, JSON.stringify(outcome), retentionMs, ...tail],
            ),
          ))) as ['appended', number, ...string[]] | ['behind', number] | ['owner', SessionId | ''] | ['claim_lost'];
      switch (answer[0]) {
        case 'appended': {
          const [type, headSeq, ...left] = answer;
          return { type, headSeq, ...readLeft(left) };
        }
        case 'behind':
          return { type: answer[0], headSeq: answer[1] };
        case 'owner':
          return { type: 'owner', ownerSessionId: answer[1] === '' ? null : answer[1] };
        default:
          return { type: 'claim_lost' };
      }
    },

    async checkClaims(claims) {
      const rows = await readClaims(claims.map(({ commandId }) => commandId));
      return claims.map(({ commandId, claimId }) => {
        const [claim, state, kill, stdin, written, size] = rows.get(commandId) ?? [];
        const wish = readable(() => readKill(keys.command(commandId), kill ?? undefined), log);
        return {
          held: claim === claimId && state === 'running',
          ...(wish === undefined ? {} : { kill: wish }),
          ...(stdin ? { input: { endOffset: Number(written), eof: stdin === 'eof' } } : {}),
          ...(size ? { size: readSize(size) } : {}),
        };
      });
    },

    async ack(sessionId, attachmentId, cursors) {
      await Promise.all(
        [...cursors].map(([commandId, seq]) =>
          scripts.run(
            'ack',
            [keys.command(commandId), keys.session(sessionId), keys.owned(sessionId)],
            [sessionId, attachmentId, commandId, seq],
          ),
        ),
      );
    },

    async requestKill(commandId, kill): Promise<KillResult> {
      const answer = (await scripts.run(
        'request-kill',
        [keys.command(commandId)],
        [prefixOf(commandId), commandId, kill.signal, kill.graceMs, kill.reason, MAX_FAMILY],
      )) as ['requested', 'queued' | 'running', string] | ['ended' | 'unknown'];
      return answer[0] === 'requested'
        ? { type: 'requested', state: answer[1], workerId: answer[2] }
        : { type: answer[0] };
    },

    async turn(commandId, event) {
      const [state, held, waitMs, ...turns] = (await scripts.run(
        'turn',
        [keys.command(commandId)],
        [prefixOf(commandId), commandId, event],
      )) as [TurnAnswer['state'], Held | '', number, ...string[]];
      return { state, ...(held === '' ? {} : { held }), waitMs, turns: readTurns(turns) };
    },

    async write({ commandId, writer, offset, bytes, eof }): Promise<WriteResult> {
      const answer = (await scripts.run(
        'write',
        [keys.command(commandId), keys.input(commandId)],
        [...writerArgs(commandId, writer), offset, Buffer.from(bytes), eof ? 1 : 0, LIMITS.maxStdinBytes],
      )) as ['written' | 'beyond' | 'full', number] | ['closed' | 'ended' | 'not_owner' | 'unknown'];
      return answer.length === 2 ? { type: answer[0], nextOffset: answer[1] } : { type: answer[0] };
    },

    async resize(commandId, writer, size): Promise<ResizeResult> {
      const args = [...writerArgs(commandId, writer), sizeText(size)];
      return { type: (await scripts.run('resize', [keys.command(commandId)], args)) as ResizeResult['type'] };
    },

    async readStdin({ commandId, claimId, takenOffset, limitBytes, closed }): Promise<StdinPage> {
      const [type, endOffset, eof, ...chunks] = (await scripts.runForBytes(
        'read-stdin',
        [keys.command(commandId), keys.input(commandId)],
        [claimId, takenOffset, limitBytes, closed ? 1 : 0],
      )) as [Buffer, number, number, ...Buffer[]];
      return type.toString() === 'page' ? { type: 'page', endOffset, eof: eof === 1, chunks } : { type: 'claim_lost' };
    },

    async endWithoutWorker(commandId, expectedClaimId, reason, error) {
      const claimId = makeClaimId(chance.bytes(16));
      await presence.noteDue(`expire:${commandId}`, retentionMs);
      for (;;) {
        const record = await this.get(commandId);
        if (record === undefined) return { type: 'refused' };
        const { snapshot } = record;
        if (snapshot.state === 'ended' && record.claimId !== claimId) return { type: 'refused' };
        const { entry, outcome } = endedEntry(snapshot, reason, error, await readTail(commandId));
        const owner = snapshot.ownerSessionId as SessionId | null;
        const answer = (await scripts.run(
          'end-without-worker',
          [...appendKeys(commandId, owner), keys.trace(commandId), keys.input(commandId)],
          [
            commandId,
            expectedClaimId,
            claimId,
            snapshot.headSeq,
            JSON.stringify(outcome),
            retentionMs,
            ...appendArgs(owner, [entry]),
          ],
        )) as ['ended', ...string[]] | ['refused'] | ['head' | 'owner', unknown];
        if (answer[0] === 'refused') return { type: 'refused' };
        if (answer[0] === 'ended') return { type: 'ended', ...readLeft(answer.slice(1) as string[]) };
        // An entry or a move came between the reading and the script: compose the end anew.
      }
    },

    async adopt(commandId, sessionId, attachmentId) {
      const type = (await scripts.run(
        'adopt',
        [keys.command(commandId), keys.session(sessionId)],
        [prefixOf(commandId), commandId, sessionId, attachmentId],
      )) as 'adopted' | 'unknown' | 'not_parked' | 'superseded';
      return { type };
    },

    readLog: createLogReader({ redis, scripts, keys, log }),

    async tailSeq(commandId, tailBytes) {
      const total = Number((await answerOf(redis.hget(keys.command(commandId), 'bytes'))) ?? 0);
      const from = Math.max(0, total - tailBytes);
      for (const key of [keys.last(commandId), keys.first(commandId)]) {
        let before = '+';
        for (;;) {
          const rows = await answerOf(redis.xrevrange(key, before, '-', 'COUNT', 64));
          for (const [id, fields] of rows) {
            if (Number(fields[5]) <= from) return Number(id.split('-')[0]);
          }
          const oldest = rows.at(-1);
          if (oldest === undefined || rows.length < 64) break;
          before = `(${oldest[0]}`;
        }
      }
      return 0;
    },

    async get(commandId) {
      const key = keys.command(commandId);
      const hash = await answerOf(redis.hgetall(key));
      if (hash.v === undefined) return undefined;
      const kill = readKill(key, hash.kill);
      const spec = readSpec(key, hash);
      return {
        tag: tagOf(commandId),
        tenant: hash.tenant ?? '',
        conversation: hash.conversation ?? '',
        principal: hash.principal ?? '',
        snapshot: readSnapshot(key, commandId, hash),
        claimId: hash.claim ?? '',
        workerId: hash.worker ?? '',
        tokenHash: hash.token ?? '',
        priority: spec.priority,
        delayMs: spec.delayMs ?? 0,
        ...(spec.timeouts.queueMs === undefined ? {} : { queueMs: spec.timeouts.queueMs }),
        ...readLine(hash),
        ...(kill === undefined ? {} : { kill }),
        ...(spec.notify?.webhook === undefined ? {} : { webhook: spec.notify.webhook }),
      };
    },

    list: createCommandList({ redis, keys, scripts, log }),

    async expire(commandId) {
      const dueInMs = (await scripts.run(
        'expire',
        [
          keys.command(commandId),
          keys.first(commandId),
          keys.last(commandId),
          keys.trace(commandId),
          keys.commands(tagOf(commandId)),
          keys.input(commandId),
        ],
        [prefixOf(commandId), commandId, retentionMs],
      )) as number;
      return dueInMs === 0 ? { type: 'expired' } : { type: 'refused', dueInMs };
    },
  };
}

/** Pairs of id and what holds it; see scripts/_turns.lua. */
const readTurns = (flat: readonly string[]): Turn[] =>
  Array.from({ length: flat.length / 2 }, (_, n) => ({
    commandId: flat[2 * n] as CommandId,
    ...(flat[2 * n + 1] === 'tenant' ? { held: 'tenant' as const } : {}),
  }));

function readLeft([tenant, limit, ...turns]: readonly string[]): { left?: Left } {
  if (tenant === undefined) return {};
  return { left: { tenant, ...(limit ? { tenantLimit: Number(limit) } : {}), turns: readTurns(turns) } };
}

function readLine({ order, tlim }: Readonly<Record<string, string>>): Pick<CommandRecord, 'line'> {
  if (order === undefined) return {};
  return { line: { order: Number(order), ...(tlim ? { tenantLimit: Number(tlim) } : {}) } };
}

/** A terminal is written to like a stdin. */
const hasStdin = (spec: CommandSpec): boolean => spec.stdin === 'pipe' || spec.pty !== undefined;

const sizeText = ({ cols, rows }: { readonly cols: number; readonly rows: number }): string => `${cols} ${rows}`;

function readSize(text: string): { cols: number; rows: number } {
  const [cols, rows] = text.split(' ').map(Number);
  return { cols: cols ?? 80, rows: rows ?? 24 };
}

/** The `ended` entry of a command whose worker does not write it. */
function endedEntry(
  snapshot: CommandSnapshot,
  reason: EndReason,
  error: string,
  tail: string,
): { entry: StoredEntry; outcome: Outcome } {
  const nowMs = Date.now();
  const outcome: Outcome = {
    reason,
    code: null,
    signal: null,
    durationMs: snapshot.startedAt === undefined ? 0 : Math.max(0, nowMs - snapshot.startedAt),
    outputBytes: snapshot.outputBytes,
    tail,
    leftovers: 0,
    error,
  };
  const seq = snapshot.headSeq + 1;
  const commandId = snapshot.commandId as CommandId;
  const text = serializeEntry({ type: 'ended', commandId, seq, ts: nowMs, outcome });
  return { entry: { letter: 'e', fromSeq: seq, seq, endOffset: snapshot.outputBytes, text }, outcome };
}
