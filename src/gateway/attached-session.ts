/**
 * One session as attached to one connection. It applies what `domain/routing` decides about each message of its channel,
 * and ends when another connection holds the session.
 *
 * opening  subscribed, not yet answered: heads are noted, nothing is sent
 * open     entries flow
 * over     superseded, closed or dropped: nothing is sent any more
 */
import type {
  CommandStore,
  GapNotes,
  HeldSession,
  Log,
  Meter,
  OwnedCommand,
  Place,
  Reassertion,
  SessionCheck,
  SessionDirectory,
  TracePort,
} from '../domain/ports.js';
import { decideLive } from '../domain/routing.js';
import { holdStream, interruptStream, listedStream, releaseStream, type StreamState } from '../domain/stream.js';
import { assertNever } from '../errors.js';
import { CLOSE } from '../protocol/close-codes.js';
import type { AttachmentId, CommandId, SessionId } from '../protocol/ids.js';
import { parseLiveMessage } from '../protocol/live-message.js';
import { createAcks } from './acks.js';
import type { Careful } from './careful.js';
import { traceDelivery } from './delivery-spans.js';
import type { Address } from './outbox.js';
import { createOwnedWatch } from './owned-watch.js';
import type { Pullable, Puller } from './puller.js';
import { createSessionStreams } from './session-streams.js';

/** What a session may do to its connection. */
export interface Delivery {
  /** `live`: they come from their worker at this moment, not from the log. */
  entries(texts: string, address: Address, live?: boolean): void;
  notify(method: string, params: unknown): void;
  room(): boolean;
  /** Sends nothing more and closes the socket. */
  end(code: number, reason: string): void;
}

export interface AttachedSessionPorts {
  readonly sessions: SessionDirectory;
  readonly commands: CommandStore;
  readonly reassertion: Reassertion;
  readonly gapNotes?: GapNotes | undefined;
  readonly traces?: TracePort | undefined;
  readonly log: Log;
  readonly meter: Meter;
  readonly puller: Puller;
  readonly careful: Careful;
  now(): number;
  /** Whether the bus is silent: then nothing is sent, for another node may hold the session (SE1). */
  busDown(sessionId: SessionId): boolean;
}

/** What its record says beside what the node makes up itself; kept so that it can be said again (R2). */
export type SessionIdentity = Pick<HeldSession, 'nodeId' | 'generation' | 'resumeTokenHash' | 'pageNonce'>;

export interface AttachedSessionOptions {
  readonly place: Place;
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  readonly delivery: Delivery;
  readonly leaseMs: number;
}

export type AttachedSession = ReturnType<typeof createAttachedSession>;

/** Commands of one check; more are compared in further calls. */
const MAX_CHECKED = 500;
/** Entries of what ended longer ago are not pushed to a fresh session (S5). */
const RECENT_MS = 60_000;

export function createAttachedSession(ports: AttachedSessionPorts, options: AttachedSessionOptions) {
  const { sessions, commands, reassertion, log, meter, puller, traces, now, busDown } = ports;
  const { place, sessionId, attachmentId, delivery, leaseMs } = options;
  /** Heard of before the session knew what it owns. */
  const earlyHeads = new Map<CommandId, number>();
  let cursors: ReadonlyMap<CommandId, number> = new Map();
  /** When it was attached, on the clock of `createdAt`; 0 where that is not known. */
  let attachedAt = 0;
  let state: 'opening' | 'open' | 'over' = 'opening';
  /** The client asked to close: the answer comes before the end of the socket. */
  let closeAsked = false;
  let identity: SessionIdentity | undefined;
  let lastActiveMs = performance.now();
  /** While opening: the attachment was seen to arrive here, and then to leave again. */
  let seenHere = false;
  let seenLeaving = false;

  const maySend = () => state === 'open' && !busDown(sessionId) && delivery.room();

  function deliver(texts: string, address: Address, live = false): void {
    if (traces !== undefined) traceDelivery(traces, sessionId, texts, now());
    delivery.entries(texts, address, live);
  }

  const streams = createSessionStreams({
    ...{ commands, gapNotes: ports.gapNotes, log, meter, sessionId, attachmentId, leaseMs, now },
    careful: ports.careful.has(sessionId),
    send: deliver,
    mayPull: maySend,
    wantPull: () => {
      if (state === 'open') puller.schedule(session);
    },
  });

  const owned = createOwnedWatch({
    ...{ sessions, log, sessionId },
    before: streams.released,
    apply(present, gone) {
      for (const command of present) welcome(command);
      for (const id of gone) streams.drop(id as CommandId);
    },
  });

  const acks = createAcks({
    ...{ commands, sessionId, attachmentId },
    onStored(stored) {
      for (const [id, seq] of stored) streams.acknowledged(id, seq);
    },
  });

  // ---------------------------------------------------------------------------------------------------- live messages

  function onMessage(raw: string): void {
    if (state === 'over') return;
    const message = parseLiveMessage(raw);
    if (message === undefined) return;
    if (state === 'opening' && message.type === 'moved') {
      // Before our own attach took effect, others may come and go; after it, leaving is final.
      if (message.attachmentId === attachmentId) seenHere = true;
      else if (seenHere) seenLeaving = true;
      return;
    }
    const present = { sessionId, attachmentId, rev: owned.rev(), streamOf: streams.get, room: maySend() };
    const decision = decideLive(present, message);
    switch (decision.type) {
      case 'ignore':
        return;
      case 'stale':
        meter.count('homing_stale_dropped_total', { where: 'live' });
        return;
      case 'superseded':
        superseded();
        return;
      case 'closing':
        closedByOther();
        return;
      case 'refresh':
        owned.heard(decision.rev);
        return;
      case 'unknown_command':
        if (state === 'opening') earlyHeads.set(decision.commandId, decision.toSeq);
        else owned.want();
        return;
      case 'stream': {
        const { commandId, step } = decision;
        if (step.type === 'forward' && message.type === 'entries') deliver(message.texts, streams.address, true);
        if (step.type === 'pull') meter.count('homing_catch_ups_total', { cause: present.room ? 'hole' : waitCause() });
        streams.put(commandId, step.state);
      }
    }
  }

  /** Why entries may not be sent now. */
  const waitCause = () => (busDown(sessionId) ? 'bus' : 'slow');

  // ---------------------------------------------------------------------------------------------------- what it owns

  /**
   * Up to where the client has a command that has no stream now: by the cursor it came with, or sent over this connection
   * before the command moved away or was consumed. None of that is sent again, also when the submit is repeated.
   */
  function sentBefore(id: CommandId): number | undefined {
    const cursor = cursors.get(id);
    const left = streams.leftAt(id);
    return cursor === undefined && left === 0 ? undefined : Math.max(cursor ?? 0, left);
  }

  function firstState({ snapshot, fromSeq }: OwnedCommand): StreamState {
    const id = snapshot.commandId as CommandId;
    // A cursor that came before it was made is of the command that had its id then (CO1).
    const cursor = attachedAt > 0 && snapshot.createdAt > attachedAt ? undefined : cursors.get(id);
    const afterSeq = Math.max(cursor ?? fromSeq - 1, streams.leftAt(id, snapshot.createdAt));
    return holdStream(afterSeq, Math.max(snapshot.headSeq, earlyHeads.get(id) ?? 0));
  }

  function welcome(command: OwnedCommand): void {
    const { snapshot, fromSeq, why } = command;
    const commandId = snapshot.commandId as CommandId;
    if (streams.has(commandId)) return;
    delivery.notify('command.owner', { commandId, snapshot, fromSeq, why: why === '' ? 'inherited' : why });
    meter.count('homing_owner_moves_total', { why: why === '' ? 'inherited' : why });
    meter.count('homing_catch_ups_total', { cause: 'moved' });
    log.info({ sessionId, commandId, why: why === '' ? 'inherited' : why }, 'a command came to a session');
    // Read at once: what was published before this stream was there is only in the log.
    streams.begin(snapshot, releaseStream(interruptStream(firstState(command))));
  }

  // ---------------------------------------------------------------------------------------------------- the end

  function end(code: number, reason: string): void {
    if (state === 'over') return;
    delivery.end(code, reason);
    stop();
  }

  /** Another connection holds the session: nothing more is sent (SE1). */
  function superseded(): void {
    if (state === 'over') return;
    meter.count('homing_sessions_superseded_total');
    end(CLOSE.SUPERSEDED, 'another connection holds this session');
  }

  function closedByOther(): void {
    if (!closeAsked) end(CLOSE.SESSION_CLOSED, 'the session was closed');
  }

  function stop(): void {
    if (state === 'over') return;
    state = 'over';
    streams.stop();
    owned.stop();
    earlyHeads.clear();
    void acks.close();
  }

  // ---------------------------------------------------------------------------------------------------- the sweep

  /**
   * Compares with Redis what can be lost on the way: the attachment, the rev and the heads (DE7, SE1).
   * @throws AppError REDIS_UNAVAILABLE
   */
  async function verify(): Promise<void> {
    const ids = streams.outstanding();
    for (let start = 0; start === 0 || start < ids.length; start += MAX_CHECKED) {
      const some = ids.slice(start, start + MAX_CHECKED);
      const sentBefore = some.map((id) => streams.get(id)?.sentSeq ?? 0);
      const check = await sessions.check(sessionId, some);
      if (state !== 'open') return;
      if (!stillHolds(check)) {
        await reassert();
        return;
      }
      for (const [index, id] of some.entries()) streams.compare(id, check.heads[index], sentBefore[index] ?? 0);
      owned.compare(check.rev);
    }
    streams.wake();
  }

  const stillHolds = ({ state: found, attachmentId: current }: SessionCheck) =>
    found === 'live' && current === attachmentId;

  const held = (): HeldSession | undefined =>
    identity && {
      ...{ ...place, ...identity, sessionId, attachmentId, rev: owned.rev() },
      idleMs: performance.now() - lastActiveMs,
    };

  /**
   * The record is not as this connection says: another holds the session, or it was closed, or Redis went back to older
   * data and is told again (R2). One script decides which.
   * @throws AppError REDIS_UNAVAILABLE
   */
  async function reassert(): Promise<void> {
    const mine = held();
    if (mine === undefined || state === 'over') return;
    const answer = await reassertion.session(mine);
    if ((state as string) === 'over') return;
    switch (answer.type) {
      case 'held':
        return;
      case 'restored':
        meter.count('homing_sessions_restored_total');
        log.warn({ sessionId }, 'Redis had lost this session or its attachment, and has it again');
        catchUp();
        return;
      case 'superseded':
        superseded();
        return;
      case 'gone':
        closedByOther();
        return;
      case 'away':
        end(CLOSE.TRY_LATER, 'the session has to be resumed');
        return;
      default:
        assertNever(answer);
    }
  }

  function catchUp(): void {
    if (state !== 'open') return;
    streams.interruptAll('bus');
    owned.want();
  }

  async function pullPage(): Promise<'more' | 'idle' | 'failed'> {
    const outcome = await streams.pull();
    if (outcome !== 'not_owner') return outcome;
    // Moved, or another connection holds the session: the one reading tells which.
    owned.want();
    return verify().then(
      () => 'more',
      () => 'failed',
    );
  }

  const session = {
    place,
    sessionId,
    attachmentId,
    onMessage,
    pullPage,
    verify,
    reassert,
    held,
    stop,
    superseded,
    /** The client comes back, to another node where there is one. */
    sendAway: (why: string) => end(CLOSE.TRY_LATER, why),
    wake: streams.wake,
    heads: streams.heads,
    unacknowledged: streams.unacknowledged,
    isOver: () => state === 'over',
    /** Whether a sweep has something to find: then it looks every 2 s. */
    isOutstanding: () => owned.isBehind() || streams.outstanding().length > 0,

    /** The client asked to close the session, or that failed. */
    closing(asked: boolean): void {
      closeAsked = asked;
    },

    /**
     * What the session owned when it was opened or resumed. `fresh`: history is listed, not pushed (S5).
     * @param given cursors of the client; of commands it no longer owns they are ignored
     */
    begin(
      first: {
        readonly rev: number;
        readonly attachedAt: number;
        readonly commands: readonly OwnedCommand[];
        readonly fresh: boolean;
        readonly identity: SessionIdentity;
      },
      given: ReadonlyMap<CommandId, number>,
    ): void {
      identity = first.identity;
      owned.start(first.rev);
      cursors = given;
      attachedAt = first.attachedAt;
      for (const command of first.commands) {
        const { state: commandState, endedAt, headSeq } = command.snapshot;
        if (first.fresh)
          meter.count('homing_owner_moves_total', { why: command.why === '' ? 'inherited' : command.why });
        const listed = first.fresh && commandState === 'ended' && (endedAt ?? 0) < now() - RECENT_MS;
        streams.begin(command.snapshot, listed ? listedStream(headSeq) : firstState(command));
      }
    },

    /** The answer has left: entries may follow. `more`: the session owns more than the answer listed. */
    release(more: boolean): void {
      if (state !== 'opening') return;
      state = 'open';
      if (seenLeaving) {
        superseded();
        return;
      }
      streams.releaseAll();
      if (more || [...earlyHeads.keys()].some((id) => !streams.has(id))) owned.want();
      owned.watch();
      earlyHeads.clear();
    },

    /** A command is about to be submitted through this connection; its messages may beat the answer. */
    expect(commandId: CommandId): void {
      lastActiveMs = performance.now();
      owned.beginChange();
      streams.expect(commandId, sentBefore(commandId) ?? 0);
    },

    /** The submit is over; undefined: it failed. `mine`: this session owns the command; `repeated`: it was there before. */
    submitted(
      commandId: CommandId,
      outcome: { mine: boolean; repeated: boolean; rev: number; createdAt: number } | undefined,
    ): void {
      owned.endChange();
      if (outcome?.mine === true && !outcome.repeated) owned.madeRev(outcome.rev);
      // Its key was used before, for a command that has expired: nothing of this one was sent (CO1).
      if (outcome?.mine === true && !outcome.repeated) streams.renew(commandId);
      if (outcome?.mine === true) streams.note(commandId, outcome.createdAt);
      const stream = streams.get(commandId);
      if (stream?.mode === 'held') {
        if (outcome?.mine !== true) streams.drop(commandId);
        else if (outcome.repeated) streams.put(commandId, interruptStream(stream));
      }
      if (outcome !== undefined) return;
      // It may have happened all the same: then it comes as a change of owner, for its answer will not.
      if (stream?.mode === 'held') streams.drop(commandId);
      owned.want();
    },

    /** The answer to the submit has left. */
    releaseCommand(commandId: CommandId): void {
      if (state !== 'open') return;
      streams.release(commandId);
      owned.look();
    },

    /** The user did something, so that its place among others can be restored (OW12). */
    noteActivity(): void {
      lastActiveMs = performance.now();
    },

    /** What the session owns is about to change by a request of its own, which is answered first. */
    beginChange: owned.beginChange,

    endChange(): void {
      owned.endChange();
      owned.want();
    },

    ack(given: Readonly<Record<string, number>>): void {
      if (state !== 'open') return;
      for (const [id, seq] of Object.entries(given) as [CommandId, number][]) {
        const stream = streams.get(id);
        if (stream !== undefined && seq >= 1 && seq <= stream.sentSeq) acks.add(id, seq);
      }
    },

    /** What was acknowledged is stored: before a close, or an heir would get it again. */
    settleAcks: acks.settle,

    /** Messages may have been lost: everything is compared with the log. */
    catchUp,
  } satisfies Pullable & Record<string, unknown>;
  return session;
}
