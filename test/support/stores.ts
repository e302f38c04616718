/** The stores on a test's own Redis, wired as a node wires them. */
import { createHash, randomBytes } from 'node:crypto';
import { Cluster, type Redis } from 'ioredis';
import type {
  Chance,
  CommandStore,
  Log,
  Place,
  Presence,
  SessionDirectory,
  SubmitRequest,
} from '../../src/domain/ports.js';
import type { AppError } from '../../src/errors.js';
import { type StoredEntry, serializeEntry } from '../../src/protocol/entries.js';
import {
  type AttachmentId,
  type ClaimId,
  type CommandId,
  makeAttachmentId,
  makeClaimId,
  makeCommandId,
  makeNodeId,
  makeSessionId,
  makeWorkerId,
  type NodeId,
  type SessionId,
  tagFromDigest,
  tagSource,
  type WorkerId,
} from '../../src/protocol/ids.js';
import { type CommandSpecInput, commandSpec } from '../../src/protocol/methods.js';
import { createCommandStore } from '../../src/redis/command-store.js';
import { createRedis, parseRedisUrl, waitForRedis } from '../../src/redis/connections.js';
import { createKeys, type Keys } from '../../src/redis/keys.js';
import { createPresence } from '../../src/redis/presence.js';
import { createScripts, type Scripts } from '../../src/redis/scripts.js';
import { createSessionDirectory } from '../../src/redis/session-directory.js';
import { uniquePrefix } from './redis.js';

export const chance: Chance = { bytes: (size) => randomBytes(size), random: Math.random };

export const silentLog: Log = {
  debug() {},
  info() {},
  warn() {},
  error() {},
  child: () => silentLog,
};

export interface Stores extends AsyncDisposable {
  /** Typed as one server; behind a Cluster's address it is a Cluster, whose commands for a key are the same. */
  readonly redis: Redis;
  readonly keys: Keys;
  readonly scripts: Scripts;
  readonly presence: Presence;
  readonly sessions: SessionDirectory;
  readonly commands: CommandStore;
}

export interface StoresOptions {
  readonly graceMs?: number;
  readonly retentionMs?: number;
  readonly logFirstBytes?: number;
  readonly logLastBytes?: number;
  /** Most commands on their way at the same time. */
  readonly limits?: { readonly session?: number; readonly tenant?: number };
  /** Why a command may not be queued now; see domain/quotas. */
  readonly refusalOf?: (request: SubmitRequest) => Promise<AppError | undefined>;
  /** Another folder of scripts, in which a fence was taken out. */
  readonly scriptsFolder?: URL;
  /** Hears of what can not be read. */
  readonly log?: Log;
}

export async function createStores(url: string, options: StoresOptions = {}): Promise<Stores> {
  const redis = createRedis(parseRedisUrl(url), 'commands', silentLog) as Redis;
  await waitForRedis(redis, 5_000);
  const keys = createKeys(uniquePrefix());
  const scripts = createScripts(redis, options.scriptsFolder);
  const presence = createPresence({
    redis,
    keys,
    scripts,
    leaseMs: 2_000,
    chance,
    graceMs: options.graceMs ?? 30_000,
    retentionMs: options.retentionMs ?? 60_000,
    ...(options.log === undefined ? {} : { log: options.log }),
  });
  const common = { redis, keys, scripts, presence, retentionMs: options.retentionMs ?? 60_000 };
  return {
    redis,
    keys,
    scripts,
    presence,
    sessions: createSessionDirectory({ ...common, graceMs: options.graceMs ?? 30_000 }),
    commands: createCommandStore({
      ...common,
      chance,
      ...(options.log === undefined ? {} : { log: options.log }),
      ...(options.limits === undefined ? {} : { limits: options.limits }),
      ...(options.refusalOf === undefined ? {} : { refusalOf: options.refusalOf }),
      logFirstBytes: options.logFirstBytes ?? 1024 * 1024,
      logLastBytes: options.logLastBytes ?? 7 * 1024 * 1024,
    }),
    async [Symbol.asyncDispose]() {
      redis.disconnect();
    },
  };
}

/** Names of keys, wherever they are. */
export async function keysLike({ redis }: Pick<Stores, 'redis'>, pattern: string): Promise<string[]> {
  const given: unknown = redis;
  const masters = given instanceof Cluster ? given.nodes('master') : [redis];
  return (await Promise.all(masters.map((master) => master.keys(pattern)))).flat();
}

export function placeOf(principal = 'ann', conversation = 'chat', tenant = 'default'): Place {
  const digest = createHash('sha256').update(tagSource(tenant, conversation)).digest();
  return { tag: tagFromDigest(digest), tenant, conversation, principal };
}

export const newNodeId = (): NodeId => makeNodeId(randomBytes(16));
export const newWorkerId = () => makeWorkerId(randomBytes(16));
export const newClaimId = (): ClaimId => makeClaimId(randomBytes(16));
export const newAttachmentId = (): AttachmentId => makeAttachmentId(randomBytes(16));
export const newCommandId = (place: Place): CommandId => makeCommandId(place.tag, randomBytes(16));

export interface OpenTab {
  readonly place: Place;
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  readonly nodeId: NodeId;
  readonly resumeTokenHash: string;
}

/** Opens a session as a node does. */
export async function openTab(stores: Stores, place = placeOf(), nodeId = newNodeId()): Promise<OpenTab> {
  const tab: OpenTab = {
    place,
    sessionId: makeSessionId(place.tag, randomBytes(16)),
    attachmentId: newAttachmentId(),
    nodeId,
    resumeTokenHash: randomBytes(32).toString('hex'),
  };
  const opened = await stores.sessions.open({ ...place, ...tab, pageNonce: '' });
  if (opened.type !== 'opened') throw new Error('the session was refused');
  await stores.sessions.adoptParked(tab.sessionId);
  return tab;
}

/** Submits as a tab, a backend that names a tab, from inside a command, or with no origin. */
export async function submit(
  stores: Stores,
  origin: { tab: OpenTab } | { named: SessionId } | { inside: CommandId } | 'none',
  spec: Partial<CommandSpecInput> = {},
  place = placeOf(),
  commandId?: CommandId,
  sealedSecrets?: string,
) {
  const at = typeof origin === 'object' && 'tab' in origin ? origin.tab.place : place;
  const id = commandId ?? newCommandId(at);
  const parsed = commandSpec.parse({ argv: ['true'], ...spec });
  const answer = await stores.commands.submit({
    ...at,
    commandId: id,
    spec: parsed,
    specHash: createHash('sha256').update(JSON.stringify(parsed)).digest('hex'),
    ...(sealedSecrets === undefined ? {} : { sealedSecrets }),
    origin:
      origin === 'none'
        ? { type: 'none' }
        : 'tab' in origin
          ? { type: 'connection', sessionId: origin.tab.sessionId, attachmentId: origin.tab.attachmentId }
          : 'inside' in origin
            ? { type: 'inherited', parentCommandId: origin.inside }
            : { type: 'named', sessionId: origin.named },
  });
  return { commandId: id, answer };
}

/** An output entry as a worker makes it. */
export function outputEntry(commandId: CommandId, seq: number, data: string, at: number): StoredEntry {
  const text = serializeEntry({ type: 'output', commandId, seq, ts: 1, at, stream: 'out', data });
  return { letter: 'o', fromSeq: seq, seq, endOffset: at + Buffer.byteLength(data), text };
}

/** Beats of a node and a worker, once: nobody goes on with them. */
export async function beatOnce(stores: Stores, nodeId: NodeId, workerId: WorkerId): Promise<void> {
  const facts = { version: '1', startedAt: 0 };
  await stores.presence.beatNode({ ...facts, nodeId, url: '' });
  await stores.presence.beatWorker({
    ...facts,
    ...{ workerId, pool: 'default', concurrency: 1, containment: 'group', draining: false },
  });
}
