/**
 * The contracts between the parts. Nodes, workers and the reconciler see Redis and the queue only through these.
 *
 * Promises common to all of them:
 * - Every call has a bounded wait. When Redis does not answer it rejects with AppError REDIS_UNAVAILABLE; the call may or
 *   may not have happened, and repeating it with the same ids is always safe (FAULTS F1).
 * - Results are values tagged by `type`; only the environment's failure is thrown.
 * - Times are Redis `TIME` in ms where a script decides, sizes are bytes.
 */
import type { EndReason, GapReason, Outcome, StoredEntry } from '../protocol/entries.js';
import type { AttachmentId, ClaimId, CommandId, NodeId, SessionId, Tag, WorkerId } from '../protocol/ids.js';
import type { CommandSnapshot, CommandSpec, OwnerWhy } from '../protocol/methods.js';

/** Where a request is allowed to act: the conversation of a tenant, and who asks. */
export interface Place {
  readonly tag: Tag;
  readonly tenant: string;
  readonly conversation: string;
  readonly principal: string;
}

// ---------------------------------------------------------------------------------------------------------- sessions

export type SessionState = 'live' | 'away' | 'closing' | 'closed';

export interface OpenRequest extends Place {
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  readonly nodeId: NodeId;
  /** SHA-256, hex. The token itself is never stored. */
  readonly resumeTokenHash: string;
  readonly pageNonce: string;
}

/** `refused`: the tag belongs to another tenant or conversation (a digest collision), or the id is another's. */
export type OpenResult =
  | { readonly type: 'opened'; readonly generation: number; readonly rev: number }
  | { readonly type: 'refused' };

export interface AttachRequest {
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  readonly nodeId: NodeId;
  readonly principal: string;
  readonly resumeTokenHash: string;
  readonly pageNonce: string;
  /** The attachment that did not answer a probe; empty before any probe (SE4, FAULTS S6). */
  readonly probedAttachmentId: AttachmentId | '';
}

export type AttachResult =
  | { readonly type: 'attached'; readonly generation: number; readonly rev: number }
  /** Unknown id, wrong token, other principal: told apart by nobody. */
  | { readonly type: 'denied' }
  /** Right token, but the session is closed or closing. */
  | { readonly type: 'gone' }
  /** This attachment id was superseded before; a repeat never attaches again. */
  | { readonly type: 'superseded' }
  /** Another page may hold the session: probe this attachment on that node, then ask again. */
  | { readonly type: 'probe'; readonly nodeId: NodeId; readonly attachmentId: AttachmentId };

/** Which condition must still hold for a close to begin. */
export type CloseCondition =
  /** By request of the connection that holds the attachment. */
  | { readonly type: 'attachment'; readonly attachmentId: AttachmentId }
  /** It was closed by this attachment, Redis lost that, and it is away since: nobody has attached after it (R2). */
  | { readonly type: 'again'; readonly attachmentId: AttachmentId }
  /** The session grace is over: still away, and its time has come. */
  | { readonly type: 'grace' }
  /** Another process began it; only go on. */
  | { readonly type: 'continue' };

export type CloseResult =
  | { readonly type: 'closed'; readonly moved: number; readonly toKill: readonly CommandId[] }
  /** The condition does not hold (resumed meanwhile, or grace not over: `dueInMs`), or there is no such session. */
  | { readonly type: 'refused'; readonly dueInMs?: number };

/** What a node compares in its sweep. `attachmentId` and `state` decide whether it still holds the session. */
export interface SessionCheck {
  readonly state: SessionState | 'missing';
  readonly attachmentId: AttachmentId | '';
  readonly rev: number;
  /** How often the first entry of a command was stored while this session owned it. */
  readonly begun: number;
  /** In the order of the ids asked for; undefined for a command that is no longer there. */
  readonly heads: readonly ({ readonly head: number; readonly ended: boolean; readonly owned: boolean } | undefined)[];
}

export interface SessionSummary {
  readonly sessionId: SessionId;
  readonly state: SessionState;
  readonly generation: number;
  readonly nodeId: string;
  readonly createdAt: number;
  readonly lastActiveAt: number;
  readonly owned: number;
}

export interface OwnedCommand {
  readonly snapshot: CommandSnapshot;
  readonly why: OwnerWhy | '';
  /** The first entry the owner has not acknowledged. */
  readonly fromSeq: number;
}

/** Sessions, attachments and what they own. Each call is one script in one slot (`close` and `adoptParked`: batches). */
export interface SessionDirectory {
  /** Creates the session, live, with this attachment; the same ids again: the same answer. Counts as user activity. */
  open(request: OpenRequest): Promise<OpenResult>;
  /** Makes this attachment the current one (SE1, SE2, SE4); the same attachment again: `attached`, nothing changed. */
  attach(request: AttachRequest): Promise<AttachResult>;
  /** Live → away, only if this attachment is the current one. Records the due grace end first (S2). Idempotent. */
  detach(sessionId: SessionId, attachmentId: AttachmentId): Promise<void>;
  /** Live → away for whatever attachment that node held (the node is dead). */
  detachFromNode(sessionId: SessionId, nodeId: NodeId): Promise<void>;
  /** Closes for good and moves what it owns to the heir (OW2, OW4, OW11), in batches, resumable by any process (S3). */
  close(sessionId: SessionId, condition: CloseCondition): Promise<CloseResult>;
  /** Counts as user activity, if the attachment is current (OW12). */
  touch(sessionId: SessionId, attachmentId: AttachmentId): Promise<void>;
  /** Gives the session what is parked for its principal, in batches (OW4). Returns how many. */
  adoptParked(sessionId: SessionId): Promise<number>;
  /** One round trip: the session and the heads of these commands. */
  check(sessionId: SessionId, commandIds: readonly CommandId[]): Promise<SessionCheck>;
  /**
   * What the session owns, oldest first, at most `limit`; `more` when there is more. `attachedAt`: when its current attachment was
   * made, on the clock of the commands' `createdAt`; 0 where that is not known.
   */
  owned(
    sessionId: SessionId,
    limit: number,
  ): Promise<{
    readonly rev: number;
    readonly attachedAt: number;
    readonly commands: OwnedCommand[];
    readonly more: boolean;
  }>;
  /** Where a session belongs and whose it is, closed or not; undefined for an unknown id. Never changes. */
  place(sessionId: SessionId): Promise<Place | undefined>;
  /** Open sessions of a principal in a conversation, latest activity first. `cursor` is an offset. */
  list(
    place: Place,
    cursor: number,
    limit: number,
  ): Promise<{ readonly sessions: SessionSummary[]; readonly next?: number }>;
}

// ---------------------------------------------------------------------------------------------------------- commands

/** How a command came to its origin; decides the first owner (OW1, OW3, OW5, OW10). */
export type SubmitOrigin =
  /** Through the origin session's own connection: counts as its user activity, needs its attachment. */
  | { readonly type: 'connection'; readonly sessionId: SessionId; readonly attachmentId: AttachmentId }
  /** Named by another caller (HTTP). Must exist and be the same principal's; may have closed since. */
  | { readonly type: 'named'; readonly sessionId: SessionId }
  | { readonly type: 'none' }
  /** From inside a running command of the same principal: origin and first owner are the parent's (OW10). */
  | { readonly type: 'inherited'; readonly parentCommandId: CommandId };

/** What holds a queued command back: its delay, or a limit of its origin session or of its tenant. */
export type Held = 'delayed' | 'session' | 'tenant';

/** A command whose turn has come; `tenant`: it needs a place of its tenant as well. */
export interface Turn {
  readonly commandId: CommandId;
  readonly held?: 'tenant' | undefined;
}

/** A command with limits is over. */
export interface Left {
  readonly tenant: string;
  /** Most commands of the tenant, if it has a limit. */
  readonly tenantLimit?: number;
  readonly turns: readonly Turn[];
}

export type TurnAnswer = {
  readonly state: 'queued' | 'running' | 'ended' | 'missing';
  readonly held?: Held;
  /** Of one that is delayed: until it lines up. */
  readonly waitMs: number;
  readonly turns: readonly Turn[];
};

/** A spec as it is stored; `trace`: W3C traceparent of the submit, while traces are on. */
export type StoredSpec = CommandSpec & { readonly trace?: string };

export interface SubmitRequest extends Place {
  readonly commandId: CommandId;
  readonly spec: StoredSpec;
  /** SHA-256, hex, over the canonical spec and origin: what makes two submits the same. */
  readonly specHash: string;
  readonly origin: SubmitOrigin;
  /** The secrets of the spec, sealed; the spec itself has none. */
  readonly sealedSecrets?: string;
}

export type SubmitResult =
  /** `rev` is the owner session's rev after the submit; `repeated` when the same submit had been stored before. */
  | {
      readonly type: 'accepted';
      readonly state: 'queued' | 'running' | 'ended';
      readonly ownerSessionId: SessionId | null;
      readonly originSessionId: SessionId | null;
      readonly rev: number;
      readonly repeated: boolean;
      readonly createdAt: number;
      /** Why it has no job yet: its turn has not come. */
      readonly held?: Held;
      /** Whose turn has come with it; for who decorates the store. */
      readonly turns?: readonly Turn[];
    }
  /** Commands that start commands have a bound. */
  | { readonly type: 'too_deep' }
  | { readonly type: 'conflict' }
  | { readonly type: 'origin_unknown' }
  /** The connection's attachment is no longer the current one. */
  | { readonly type: 'superseded' };

export interface KillRequest {
  readonly signal: string;
  readonly graceMs: number;
  readonly reason: Extract<EndReason, 'cancelled' | 'owner_gone' | 'worker_drained'>;
}

export type KillResult =
  | { readonly type: 'requested'; readonly state: 'queued' | 'running'; readonly workerId: string }
  | { readonly type: 'ended' }
  | { readonly type: 'unknown' };

export type ClaimResult =
  | {
      readonly type: 'claimed';
      readonly place: Place;
      readonly spec: StoredSpec;
      readonly originSessionId: SessionId | null;
      readonly originClosed: boolean;
      readonly ownerSessionId: SessionId | null;
      readonly createdAt: number;
      readonly startedAt: number;
      readonly headSeq: number;
      /** As it was submitted. */
      readonly sealedSecrets?: string;
      /** Asked for before the start: end at once with this, do not spawn. */
      readonly kill?: KillRequest;
    }
  /** Somebody else's, or over, or never was: do not spawn. */
  | { readonly type: 'refused'; readonly state: 'running' | 'ended' | 'missing' | 'held' | 'newer' };

export interface AppendRequest {
  readonly commandId: CommandId;
  readonly claimId: ClaimId;
  /** The owner the writer believes in; null when parked. */
  readonly ownerSessionId: SessionId | null;
  /** Contiguous: each entry's `fromSeq` is the `seq` before plus one. */
  readonly entries: readonly StoredEntry[];
  /** Given with the last entry, `ended`: the command is over. */
  readonly outcome?: Outcome;
}

export type AppendResult =
  /** `left` with the end of a command that has limits. */
  | { readonly type: 'appended'; readonly headSeq: number; readonly left?: Left }
  /** The log ends before the first entry sent: rewind to `headSeq + 1` and send again. */
  | { readonly type: 'behind'; readonly headSeq: number }
  /** Nothing appended: the owner is this one, repeat. */
  | { readonly type: 'owner'; readonly ownerSessionId: SessionId | null }
  /** The claim is another's or the record is gone: stop, kill the process, write nothing. */
  | { readonly type: 'claim_lost' };

/** How far the stdin of a command is written. */
export interface InputState {
  /** Bytes written so far: the offset of the next one. */
  readonly endOffset: number;
  /** Nothing will follow. */
  readonly eof: boolean;
}

/** What a worker compares for each running command at least every poll interval. */
export interface ClaimCheck {
  readonly held: boolean;
  readonly kill?: KillRequest;
  /** Of a command with a stdin or a terminal. */
  readonly input?: InputState;
  /** Of a command with a terminal: the size it was given last. */
  readonly size?: { readonly cols: number; readonly rows: number };
}

/** Who writes to a command or resizes its terminal; checked in the same script. */
export type Writer =
  /** The owner's own connection; a write counts as its user activity (OW12). */
  | { readonly type: 'owner'; readonly sessionId: SessionId; readonly attachmentId: AttachmentId }
  /** Anyone of the principal, while no connection of the owner is there to be disturbed. */
  | { readonly type: 'ownerless' }
  /** A backend, or the parent command. */
  | { readonly type: 'any' };

export interface WriteRequest {
  readonly commandId: CommandId;
  readonly writer: Writer;
  /** Of the first byte in the whole stdin; what was there already is dropped. */
  readonly offset: number;
  readonly bytes: Uint8Array;
  readonly eof: boolean;
}

export type WriteResult =
  | { readonly type: 'written'; readonly nextOffset: number }
  /** Nothing was taken: bytes before `offset` are missing. */
  | { readonly type: 'beyond'; readonly nextOffset: number }
  /** Nothing was taken: the command has not read what is there. */
  | { readonly type: 'full'; readonly nextOffset: number }
  /** Started without stdin, or its end was written, or the program closed it. */
  | { readonly type: 'closed' }
  | { readonly type: 'ended' | 'not_owner' | 'unknown' };

export type ResizeResult = { readonly type: 'resized' | 'no_terminal' | 'ended' | 'not_owner' | 'unknown' };

export type StdinPage =
  | ({ readonly type: 'page'; readonly chunks: readonly Uint8Array[] } & InputState)
  | { readonly type: 'claim_lost' };

export type EndWithoutWorkerResult = { readonly type: 'ended'; readonly left?: Left } | { readonly type: 'refused' };

/** Who reads a log. An owner's read is refused unless session, attachment and ownership hold in the same script. */
export type Reader =
  | {
      readonly type: 'owner';
      readonly sessionId: SessionId;
      readonly attachmentId: AttachmentId;
      /** Look into each entry, as for a viewer, since this reader could not read what it got. */
      readonly careful?: boolean;
    }
  | { readonly type: 'viewer' };

export type LogPage =
  | {
      readonly type: 'page';
      /** Entries after the cursor in order, as stored, or as a gap `redis_lost` where one is damaged; at least one if there is one. Holes are where `fromSeq` jumps. */
      readonly entries: readonly StoredEntry[];
      readonly headSeq: number;
      readonly ackedSeq: number;
      readonly ended: boolean;
      /** `endOffset` of the entry at the cursor, where it is still there. */
      readonly cursorOffset?: number;
    }
  | { readonly type: 'not_owner' }
  | { readonly type: 'unknown' };

export interface CommandRecord extends Place {
  readonly snapshot: CommandSnapshot;
  readonly principal: string;
  readonly claimId: string;
  readonly workerId: string;
  /** Of the token inside the command; '' before it was claimed. */
  readonly tokenHash: string;
  readonly priority: number;
  readonly delayMs: number;
  /** How long it may wait after its delay, where it says so itself. */
  readonly queueMs?: number;
  /** Of a command with limits: its place in line, lowest first, and most commands of its tenant. */
  readonly line?: { readonly order: number; readonly tenantLimit?: number };
  readonly kill?: KillRequest;
  /** Address that is told of its end. */
  readonly webhook?: string;
}

export interface CommandStore {
  /** Stores a command once, with its first owner, in state queued (CO1, OW1, OW3, OW5). Adds no job. */
  submit(request: SubmitRequest): Promise<SubmitResult>;
  /**
   * Queued → running for one attempt (CO2); the same claim id again: the same answer.
   * @param tokenHash SHA-256, hex, of the token that the command's process gets
   */
  claim(
    commandId: CommandId,
    claimId: ClaimId,
    workerId: WorkerId,
    containment: string,
    tokenHash?: string,
  ): Promise<ClaimResult>;
  /** Appends and publishes to the owner's channel in one atomic step; exact repeats change nothing. */
  append(request: AppendRequest): Promise<AppendResult>;
  /** One round trip for many commands. */
  checkClaims(claims: readonly { readonly commandId: CommandId; readonly claimId: ClaimId }[]): Promise<ClaimCheck[]>;
  /** Raises the acknowledged seq, from the owner's current attachment only; the rest is ignored (DE6). */
  ack(sessionId: SessionId, attachmentId: AttachmentId, cursors: ReadonlyMap<CommandId, number>): Promise<void>;
  /** Records the wish, for the commands it started too, and nudges the workers. The first reason stays; a later call may change signal and grace. */
  requestKill(commandId: CommandId, kill: KillRequest): Promise<KillResult>;
  /**
   * Ends a command that no worker will end: takes the claim, then writes the one `ended` (CO3).
   * `expectedClaimId` is '' for a command still queued; refused when the claim is another or the command is over.
   */
  endWithoutWorker(
    commandId: CommandId,
    expectedClaimId: ClaimId | '',
    reason: EndReason,
    error: string,
  ): Promise<EndWithoutWorkerResult>;
  /** Looks at a command with limits, and lets those take their turn whose turn has come. `place`: its tenant has one for it. */
  turn(commandId: CommandId, event: 'ask' | 'place'): Promise<TurnAnswer>;
  /** Adds to the stdin of a command, queued or running, and nudges its worker. An exact repeat changes nothing. */
  write(request: WriteRequest): Promise<WriteResult>;
  /** Stores the size of a command's terminal and nudges its worker. */
  resize(
    commandId: CommandId,
    writer: Writer,
    size: { readonly cols: number; readonly rows: number },
  ): Promise<ResizeResult>;
  /**
   * For the holder of the claim: notes that everything before `takenOffset` was taken, and gives what follows, about
   * `limitBytes`, at least one chunk if there is one. `closed`: the program reads no more; later writes are refused.
   */
  readStdin(request: {
    readonly commandId: CommandId;
    readonly claimId: ClaimId;
    readonly takenOffset: number;
    readonly limitBytes: number;
    readonly closed: boolean;
  }): Promise<StdinPage>;
  /** Gives one parked or kept command to a live session of its principal; `not_parked` when someone owns it. */
  adopt(
    commandId: CommandId,
    sessionId: SessionId,
    attachmentId: AttachmentId | '',
  ): Promise<{ readonly type: 'adopted' | 'unknown' | 'not_parked' | 'superseded' }>;
  /** Entries after `afterSeq`, up to about `limitBytes` of text. */
  readLog(commandId: CommandId, reader: Reader, afterSeq: number, limitBytes: number): Promise<LogPage>;
  /** The seq after which the last `tailBytes` of output begin. */
  tailSeq(commandId: CommandId, tailBytes: number): Promise<number>;
  get(commandId: CommandId): Promise<CommandRecord | undefined>;
  /** Commands of a principal in a conversation, newest first. `cursor` is opaque. */
  list(
    place: Place,
    options: { readonly cursor?: string; readonly limit: number; readonly state?: string; readonly label?: string },
  ): Promise<{ readonly commands: CommandSnapshot[]; readonly next?: string }>;
  /** Removes everything of a command whose retention is over; refused (with the wait) while it is not. */
  expire(
    commandId: CommandId,
  ): Promise<{ readonly type: 'expired' } | { readonly type: 'refused'; readonly dueInMs: number }>;
}

// -------------------------------------------------------------------------------------------------------------- turns

/** Places that a tenant's commands share over all its conversations. Each call may be repeated. */
export interface TenantPlaces {
  /** Takes a place, or waits in line for one. `stale`: holders to look at, since somebody waits and nobody has for long. */
  take(
    tenant: string,
    commandId: CommandId,
    line: { readonly order: number; readonly tenantLimit: number },
  ): Promise<{ readonly given: readonly CommandId[]; readonly stale: readonly CommandId[] }>;
  /** Gives a place back, or leaves the line. Returns who has one now instead. */
  free(tenant: string, commandId: CommandId, tenantLimit: number): Promise<readonly CommandId[]>;
  /** A holder that was looked at needs it. */
  seen(tenant: string, commandId: CommandId): Promise<void>;
}

/** A command that is queued, by what its record says. */
export interface Queued {
  readonly commandId: CommandId;
  readonly tenant: string;
  readonly pool: string;
  readonly originSessionId: string | null;
  readonly held?: Held | undefined;
}

export interface Lines {
  /**
   * How many come before it, plus one: of the jobs of its pool, or, while a limit holds it back, of those that wait for a
   * place of the same session or tenant. undefined: delayed, taken, or not in line (yet).
   */
  position(queued: Queued): Promise<number | undefined>;
}

// ------------------------------------------------------------------------------------------------------------- relief

/** What is done when Redis is nearly full (FAULTS O2). */
export interface Relief {
  /** Above 85 % of `maxmemory` at some master, as of a second ago. Never without a limit. */
  isTight(): Promise<boolean>;
  /** While it is: lets go of the logs of commands that are over, oldest first, at most `limit`. Returns how many. */
  trimOldest(limit: number): Promise<number>;
}

// ------------------------------------------------------------------------------------------------------- reassertion

/** A session as its node holds it; `rev` is the one it knows. */
export interface HeldSession extends Place {
  readonly sessionId: SessionId;
  readonly generation: number;
  readonly attachmentId: AttachmentId;
  readonly nodeId: NodeId;
  readonly resumeTokenHash: string;
  readonly pageNonce: string;
  readonly rev: number;
  readonly idleMs: number;
}

export type SessionRestored =
  /** It is as the node says. */
  | { readonly type: 'held' }
  /** It was missing or older and is as the node says again; what it owns has to be read anew. */
  | { readonly type: 'restored' }
  /** A later attachment holds it. */
  | { readonly type: 'superseded' }
  /** It was closed. */
  | { readonly type: 'gone' }
  /** This attachment was judged dead: the client has to resume. */
  | { readonly type: 'away' };

/** The record of a command as it was stored, fields and values in turn: for nobody to look into. */
export type KeptRecord = readonly string[];

export interface HeldCommand {
  readonly commandId: CommandId;
  readonly claimId: ClaimId;
  readonly ownerSessionId: SessionId | null;
  /** Empty when it could not be read; then a record that is missing is not given back. */
  readonly record: KeptRecord;
}

/** `lost`: another claim holds it, or it can not be given back: stop, kill the process, write nothing. */
export type CommandRestored = { readonly type: 'held' | 'restored' | 'ended' | 'lost' };

/** What a process still knows and Redis may have forgotten after a failover (FAULTS R2). Each call is safe to repeat. */
export interface Reassertion {
  session(held: HeldSession): Promise<SessionRestored>;
  /** What is stored of a command that was just claimed, to be given back should Redis lose it. */
  recordOf(commandId: CommandId): Promise<KeptRecord>;
  command(held: HeldCommand): Promise<CommandRestored>;
}

// --------------------------------------------------------------------------------------------------------------- bus

export interface Subscription {
  /** Idempotent. Resolves when the unsubscribe was acknowledged or the connection is gone. */
  close(): Promise<void>;
}

export interface EventBus {
  /**
   * Listens to one session's channel. Resolves when Redis acknowledged the subscription; messages come in order.
   * Subscriptions are counted, so an old connection's close can not end a newer one's. Survives reconnects; after each
   * `onRestored` is called, because messages in between are lost.
   */
  subscribeSession(sessionId: SessionId, handler: (message: string) => void): Promise<Subscription>;
  /** Nudges for a running command: 'kill', 'stdin', 'resize'. A nudge may be lost; what it is about is in the record. */
  subscribeControl(commandId: CommandId, handler: (nudge: string) => void): Promise<Subscription>;
  /** Requests to this process and their answers: JSON text. */
  subscribeAsk(id: NodeId | WorkerId, handler: (message: string) => void): Promise<Subscription>;
  ask(id: NodeId | WorkerId, message: string): Promise<void>;
  /** Called after every channel was subscribed again following a loss. Everyone catches up then. */
  onRestored(handler: () => void): void;
  /**
   * Milliseconds since the last probe came back through the normal path; Infinity before the first. Of the shard that
   * carries a session's channel, or of the worst shard.
   */
  probeAgeMs(sessionId?: SessionId): number;
  /** For how long Redis has taken probes of which none came back: commands work, the subscription is dead. */
  deafMs(sessionId?: SessionId): number;
  close(): Promise<void>;
}

// ---------------------------------------------------------------------------------------------------------- presence

export interface NodeFacts {
  readonly nodeId: NodeId;
  readonly url: string;
  readonly version: string;
  readonly startedAt: number;
  /** As of its last beat: bytes that wait for its sockets, and the age of the last proof that it hears its channels. */
  readonly outboxBytes?: number;
  readonly busAgeMs?: number;
  readonly draining?: boolean;
}

export interface WorkerFacts {
  readonly workerId: WorkerId;
  readonly pool: string;
  readonly concurrency: number;
  readonly containment: string;
  /** How the containment is done, for people. */
  readonly means?: string;
  /** Sandbox profiles it offers. */
  readonly sandboxes?: readonly string[];
  readonly version: string;
  readonly startedAt: number;
  readonly draining: boolean;
}

/** One beat as a judge sees it: judged by whether `beat` changes (R4), never by clocks. */
export interface Beat<Id> {
  readonly id: Id;
  /** Changes with every beat; '' when the record has expired. */
  readonly beat: string;
}

/** Timed work, in buckets. Members are `grace:<sid>`, `close:<sid>`, `queued:<cid>`, `expire:<cid>`, `hook:<cid>`. */
export interface DueItem {
  readonly bucket: number;
  readonly member: string;
  readonly score: number;
}

/** Who is there, what they may hold, and what is due. Extra members are harmless, missing ones are rebuilt (S2). */
export interface Presence {
  beatNode(facts: NodeFacts): Promise<void>;
  beatWorker(facts: WorkerFacts): Promise<void>;
  nodes(): Promise<Beat<NodeId>[]>;
  workers(): Promise<(Beat<WorkerId> & { readonly facts?: WorkerFacts })[]>;
  forgetNode(nodeId: NodeId): Promise<void>;
  forgetWorker(workerId: WorkerId): Promise<void>;
  /** Intent before record (S2): the node may hold this session from now on. */
  noteNodeSession(nodeId: NodeId, sessionId: SessionId): Promise<void>;
  dropNodeSession(nodeId: NodeId, sessionId: SessionId): Promise<void>;
  nodeSessions(nodeId: NodeId): Promise<SessionId[]>;
  noteWorkerCommand(workerId: WorkerId, commandId: CommandId): Promise<void>;
  dropWorkerCommand(workerId: WorkerId, commandId: CommandId): Promise<void>;
  workerCommands(workerId: WorkerId): Promise<CommandId[]>;
  noteDue(member: string, delayMs: number): Promise<void>;
  dropDue(item: DueItem): Promise<void>;
  /** Items whose time has come, at most `limit`, buckets in random order. */
  due(limit: number): Promise<DueItem[]>;
  /**
   * Walks a page of all records, and notes anew what is due or held and was not noted (S2): a note can be lost, or be
   * cleared before the late change that it stands for.
   * @param steps that a whole round may take, where it needs no more; as few as possible when absent
   * @returns how many were missing
   */
  repairIndexes(steps?: number): Promise<number>;
  /** True for at most one process at a time, roughly; being wrong costs work, not truth. */
  tryLead(id: string, forMs: number): Promise<boolean>;
  /** Changes when the server behind the connection is another one or was started again (R2, R3). */
  serverIdentity(): Promise<string>;
  /** What the clock of each master says, ms since 1970. */
  serverClocks(): Promise<readonly { readonly id: string; readonly clockMs: number }[]>;
}

// ------------------------------------------------------------------------------------------------------------- queue

/** What an operator sees of a command in its queue. Holds no secret and not the spec: the record is the truth. */
export interface JobData {
  readonly v: 1;
  readonly commandId: CommandId;
  readonly originSessionId: string | null;
  readonly ownerSessionId: string | null;
  readonly conversation: string;
  readonly tenant: string;
  readonly principal: string;
  readonly program: string;
  /** W3C traceparent of the submit, while traces are on. */
  readonly trace?: string;
}

export type JobState = 'waiting' | 'active' | 'finished' | 'missing';

export interface QueueProducer {
  /** Adds the job of a command; its id is the command's id, so a repeat changes nothing. */
  add(pool: string, job: JobData, options: { readonly priority: number; readonly delayMs: number }): Promise<void>;
  /** Where the job of a queued command is (Q1). */
  state(pool: string, commandId: CommandId): Promise<JobState>;
  /** How many jobs of its pool are started before it, plus one; undefined while it is delayed, taken or not there. */
  position(pool: string, commandId: CommandId): Promise<number | undefined>;
  /** Removes the job, whatever its state; a job held by a worker stays. */
  remove(pool: string, commandId: CommandId): Promise<void>;
  close(): Promise<void>;
}

/** Completion webhooks that are to be sent, at least once each. */
export interface WebhookQueue {
  /** Repeats change nothing. */
  add(commandId: CommandId): Promise<void>;
  close(): Promise<void>;
}

export interface QueueConsumer {
  /** Takes no more jobs; resolves when the running ones are over or `timeoutMs` has passed. */
  pause(): Promise<void>;
  close(): Promise<void>;
}

// ----------------------------------------------------------------------------------------------------------- notices

/** Whose commands share one breaker: a session, or a principal's commands that have none. */
export interface NoticeOrigin {
  readonly tag: Tag;
  readonly name: string;
}

/** Notices of watched commands, counted over all workers. */
export interface NoticeCounts {
  /**
   * Whether a notice may be told: as `Breaker` of `domain/watch.ts` decides, for all workers together. The same id again is
   * answered as before. `openForMs`: how long none may be told from now on; 0 when it passes.
   * @throws AppError REDIS_UNAVAILABLE
   */
  ask(
    origin: NoticeOrigin,
    noticeId: string,
  ): Promise<{ readonly type: 'pass' | 'trip' | 'open'; readonly openForMs: number }>;
}

// ----------------------------------------------------------------------------------------------------------- secrets

/** Secrets of commands on their way through Redis (CO10): encrypted, and bound to their command. */
export interface SecretBox {
  seal(commandId: CommandId, secrets: Readonly<Record<string, string>>): string;
  /** @throws Error with a sentence, for what was sealed with an unknown key or for another command */
  open(commandId: CommandId, sealed: string): Record<string, string>;
  /** The same for the same secrets, and worth nothing without the key. */
  fingerprint(secrets: Readonly<Record<string, string>>): string;
}

// ----------------------------------------------------------------------------------------------------------- patterns

/** Patterns of users (`notify.watch`), matched in time linear to the text. */
export interface Patterns {
  compile(asked: {
    readonly pattern: string;
    readonly kind: 'literal' | 'regex';
  }): { readonly ok: true; readonly test: (text: string) => boolean } | { readonly ok: false; readonly error: string };
}

// --------------------------------------------------------------------------------------------------------------- ops

/** One line an event: fields first, then a short constant sentence. Fields never hold a secret. Pino fits. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  child(fields: Record<string, unknown>): Log;
}

// ------------------------------------------------------------------------------------------------------------- traces

export interface SpanBeginning {
  /** W3C traceparent of what causes it; without one, or with one that is none, a trace begins. */
  readonly parent?: string | undefined;
  readonly kind?: 'server' | 'producer' | 'consumer' | 'internal';
  /** ms since 1970; now unless given. */
  readonly startMs?: number;
  readonly attributes?: Readonly<Record<string, string | number | boolean>>;
}

export interface Span {
  /** What others name as their parent. */
  readonly traceparent: string;
  end(outcome?: {
    readonly endMs?: number;
    /** A code or a sentence without secrets. */
    readonly error?: string | undefined;
    readonly attributes?: Readonly<Record<string, string | number | boolean>>;
  }): void;
}

/** Spans over processes. Absent where traces are off: then nothing is made and nothing is loaded. */
export interface TracePort {
  begin(name: string, beginning: SpanBeginning): Span;
}

/** What operators see of gaps in the trace of a command. */
export interface GapNotes {
  /** Returns at once; written a moment later, or lost while Redis is away. */
  gap(
    commandId: CommandId,
    gap: { readonly fromSeq: number; readonly toSeq: number; readonly reason: GapReason },
  ): void;
}

/** Figures of the running process. Names are `homing_*`; labels are few and bounded. */
export interface Meter {
  count(name: string, labels?: Readonly<Record<string, string>>, by?: number): void;
  gauge(name: string, value: number, labels?: Readonly<Record<string, string>>): void;
  observe(name: string, value: number, labels?: Readonly<Record<string, string>>): void;
  /** Calls it each time the figures are about to be read, for gauges that are looked at and not kept. */
  beforeDump?(look: () => void): void;
}

/** Chance and time as arguments, so that rules and tests decide them. */
export interface Chance {
  /** `size` unpredictable bytes. */
  bytes(size: number): Uint8Array;
  /** 0 ≤ n < 1, for jitter. */
  random(): number;
}
