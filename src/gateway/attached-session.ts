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
import { type Acks, createAcks } from './acks.js';
import type { Careful } from './careful.js';
import { traceDelivery } from './delivery-spans.js';
import type { Address } from './outbox.js';
import { createOwnedWatch, type OwnedHost, type OwnedWatch } from './owned-watch.js';
import type { Pullable, Puller } from './puller.js';
import { createSessionStreams, type SessionStreams, type StreamsHost } from './session-streams.js';

/** What a session may do to its connection. */
export interface Delivery {
  /** `live`: they come from their worker at this moment, not from the log. */
  entries(texts: readonly string[], address: Address, live?: boolean): void;
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

/** Commands of one check; more are compared in further calls. */
const MAX_CHECKED = 500;
/** Entries of what ended longer ago are not pushed to a fresh session (S5). */
const RECENT_MS = 60_000;

const NO_CURSORS: ReadonlyMap<CommandId, number> = new Map();

/** One for each tab, which costs a node memory even if nothing happens: what is seldom needed is made when it is. */
class AttachedSession implements Pullable, StreamsHost, OwnedHost {
  readonly place: Place;
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  readonly #ports: AttachedSessionPorts;
  readonly #delivery: Delivery;
  readonly #streams: SessionStreams;
  readonly #owned: OwnedWatch;
  /** How many commands began to write, by the last look and what was heard since. */
  #begun: number | undefined;
  /** Whether it was what Redis had at the last look. */
  #begunFitted = false;
  /** Made with the first acknowledgement. */
  #acks: Acks | undefined;
  /** Heard of before the session knew what it owns. */
  #earlyHeads: Map<CommandId, number> | undefined;
  #cursors = NO_CURSORS;
  /** When it was attached, on the clock of `createdAt`; 0 where that is not known. */
  #attachedAt = 0;
  #state: 'opening' | 'open' | 'over' = 'opening';
  /** The client asked to close: the answer comes before the end of the socket. */
  #closeAsked = false;
  #identity: SessionIdentity | undefined;
  #lastActiveMs = performance.now();
  /** While opening: the attachment was seen to arrive here, and then to leave again. */
  #seenHere = false;
  #seenLeaving = false;

  constructor(ports: AttachedSessionPorts, options: AttachedSessionOptions) {
    const { place, sessionId, attachmentId, delivery, leaseMs } = options;
    this.place = place;
    this.sessionId = sessionId;
    this.attachmentId = attachmentId;
    this.#ports = ports;
    this.#delivery = delivery;
    this.#streams = createSessionStreams(ports, this, { leaseMs, careful: ports.careful.has(sessionId) });
    this.#owned = createOwnedWatch(ports, this);
  }

  // ------------------------------------------------------------------------------------------------------ for its parts

  maySend(): boolean {
    return this.#state === 'open' && !this.#ports.busDown(this.sessionId) && this.#delivery.room();
  }

  send(texts: readonly string[], address: Address, live = false): void {
    const { traces, now } = this.#ports;
    if (traces !== undefined) traceDelivery(traces, this.sessionId, texts, now());
    this.#delivery.entries(texts, address, live);
  }

  wantPull(): void {
    if (this.#state === 'open') this.#ports.puller.schedule(this);
  }

  async pullPage(): Promise<'more' | 'idle' | 'failed'> {
    const outcome = await this.#streams.pull();
    if (outcome !== 'not_owner') return outcome;
    // Moved, or another connection holds the session: the one reading tells which.
    this.#owned.want();
    return this.verify().then(
      () => 'more',
      () => 'failed',
    );
  }

  followed(): readonly CommandId[] {
    return this.#streams.released();
  }

  ownsNow(present: readonly OwnedCommand[], gone: readonly string[]): void {
    for (const command of present) this.#welcome(command);
    for (const id of gone) this.#streams.drop(id as CommandId);
  }

  // ---------------------------------------------------------------------------------------------------- live messages

  onMessage(raw: string): void {
    if (this.#state === 'over') return;
    const message = parseLiveMessage(raw);
    if (message === undefined) return;
    const { sessionId, attachmentId } = this;
    if (message.type === 'entries' && message.fromSeq === 1 && this.#begun !== undefined) this.#begun += 1;
    if (this.#state === 'opening' && message.type === 'moved') {
      // Before our own attach took effect, others may come and go; after it, leaving is final.
      if (message.attachmentId === attachmentId) this.#seenHere = true;
      else if (this.#seenHere) this.#seenLeaving = true;
      return;
    }
    const streams = this.#streams;
    const streamOf = (id: CommandId) => streams.get(id);
    const present = { sessionId, attachmentId, rev: this.#owned.rev(), streamOf, room: this.maySend() };
    const { meter } = this.#ports;
    const decision = decideLive(present, message);
    switch (decision.type) {
      case 'ignore':
        return;
      case 'stale':
        meter.count('homing_stale_dropped_total', { where: 'live' });
        return;
      case 'superseded':
        this.superseded();
        return;
      case 'closing':
        this.#closedByOther();
        return;
      case 'refresh':
        this.#owned.heard(decision.rev);
        return;
      case 'unknown_command':
        if (this.#state === 'opening') this.#noteEarly(decision.commandId, decision.toSeq);
        else this.#owned.want();
        return;
      case 'stream': {
        const { commandId, step } = decision;
        if (step.type === 'forward' && message.type === 'entries')
          this.send(message.texts.split('\n'), streams.address, true);
        if (step.type === 'pull') {
          meter.count('homing_catch_ups_total', { cause: present.room ? 'hole' : this.#waitCause() });
        }
        streams.put(commandId, step.state);
      }
    }
  }

  #noteEarly(id: CommandId, headSeq: number): void {
    this.#earlyHeads ??= new Map();
    this.#earlyHeads.set(id, headSeq);
  }

  /** Why entries may not be sent now. */
  #waitCause(): 'bus' | 'slow' {
    return this.#ports.busDown(this.sessionId) ? 'bus' : 'slow';
  }

  // ---------------------------------------------------------------------------------------------------- what it owns

  /**
   * Up to where the client has a command that has no stream now: by the cursor it came with, or sent over this connection
   * before the command moved away or was consumed. None of that is sent again, also when the submit is repeated.
   */
  #sentBefore(id: CommandId): number | undefined {
    const cursor = this.#cursors.get(id);
    const left = this.#streams.leftAt(id);
    return cursor === undefined && left === 0 ? undefined : Math.max(cursor ?? 0, left);
  }

  #firstState({ snapshot, fromSeq }: OwnedCommand): StreamState {
    const id = snapshot.commandId as CommandId;
    // A cursor that came before it was made is of the command that had its id then (CO1).
    const isNewer = this.#attachedAt > 0 && snapshot.createdAt > this.#attachedAt;
    const cursor = isNewer ? undefined : this.#cursors.get(id);
    const afterSeq = Math.max(cursor ?? fromSeq - 1, this.#streams.leftAt(id, snapshot.createdAt));
    return holdStream(afterSeq, Math.max(snapshot.headSeq, this.#earlyHeads?.get(id) ?? 0));
  }

  #welcome(command: OwnedCommand): void {
    const { snapshot, fromSeq, why } = command;
    const { meter, log } = this.#ports;
    const { sessionId } = this;
    const commandId = snapshot.commandId as CommandId;
    if (this.#streams.has(commandId)) return;
    this.#delivery.notify('command.owner', { commandId, snapshot, fromSeq, why: why === '' ? 'inherited' : why });
    meter.count('homing_owner_moves_total', { why: why === '' ? 'inherited' : why });
    meter.count('homing_catch_ups_total', { cause: 'moved' });
    log.info({ sessionId, commandId, why: why === '' ? 'inherited' : why }, 'a command came to a session');
    // Read at once: what was published before this stream was there is only in the log.
    this.#streams.begin(snapshot, releaseStream(interruptStream(this.#firstState(command))));
  }

  // ---------------------------------------------------------------------------------------------------- the end

  #end(code: number, reason: string): void {
    if (this.#state === 'over') return;
    this.#delivery.end(code, reason);
    this.stop();
  }

  /** The client comes back, to another node where there is one. */
  sendAway(why: string): void {
    this.#end(CLOSE.TRY_LATER, why);
  }

  /** Another connection holds the session: nothing more is sent (SE1). */
  superseded(): void {
    if (this.#state === 'over') return;
    this.#ports.meter.count('homing_sessions_superseded_total');
    this.#end(CLOSE.SUPERSEDED, 'another connection holds this session');
  }

  #closedByOther(): void {
    if (!this.#closeAsked) this.#end(CLOSE.SESSION_CLOSED, 'the session was closed');
  }

  stop(): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#streams.stop();
    this.#owned.stop();
    this.#earlyHeads = undefined;
    void this.#acks?.close();
  }

  isOver(): boolean {
    return this.#state === 'over';
  }

  // ---------------------------------------------------------------------------------------------------- the sweep

  /** Whether a sweep has something to find: then it looks every 2 s. */
  isOutstanding(): boolean {
    return this.#owned.isBehind() || this.#streams.hasOutstanding();
  }

  /**
   * Compares with Redis what can be lost on the way: the attachment, the rev and the heads (DE7, SE1).
   * @throws AppError REDIS_UNAVAILABLE
   */
  async verify(): Promise<void> {
    const some = this.#streams.outstanding('some');
    const begun = await this.#look(some);
    if (begun === undefined) return;
    const fits = begun === this.#begun;
    // One that waited began and was not heard; or was heard just now, or this is the first look. A number that was just taken may
    // count a message that is still on its way, and so hide one that gets lost: it is believed when it fitted twice.
    const believed = fits && this.#begunFitted;
    this.#begun = begun;
    this.#begunFitted = fits;
    const all = believed ? some : this.#streams.outstanding('all');
    if (all.length > some.length && (await this.#look(all)) === undefined) return;
    this.#streams.wake();
  }

  /** @returns how many of the commands began to write, before any of these was looked at; undefined when it is not ours any more */
  async #look(ids: readonly CommandId[]): Promise<number | undefined> {
    const streams = this.#streams;
    let begun: number | undefined;
    for (let start = 0; start === 0 || start < ids.length; start += MAX_CHECKED) {
      const some = ids.slice(start, start + MAX_CHECKED);
      const sentBefore = some.map((id) => streams.get(id)?.sentSeq ?? 0);
      const check = await this.#ports.sessions.check(this.sessionId, some);
      if (this.#state !== 'open') return undefined;
      if (!this.#stillHolds(check)) {
        await this.reassert();
        return undefined;
      }
      begun ??= check.begun;
      for (const [index, id] of some.entries()) streams.compare(id, check.heads[index], sentBefore[index] ?? 0);
      this.#owned.compare(check.rev);
    }
    return begun;
  }

  #stillHolds({ state: found, attachmentId: current }: SessionCheck): boolean {
    return found === 'live' && current === this.attachmentId;
  }

  held(): HeldSession | undefined {
    const { place, sessionId, attachmentId } = this;
    const rev = this.#owned.rev();
    const idleMs = performance.now() - this.#lastActiveMs;
    return this.#identity && { ...place, ...this.#identity, sessionId, attachmentId, rev, idleMs };
  }

  /**
   * The record is not as this connection says: another holds the session, or it was closed, or Redis went back to older
   * data and is told again (R2). One script decides which.
   * @throws AppError REDIS_UNAVAILABLE
   */
  async reassert(): Promise<void> {
    const { reassertion, meter, log } = this.#ports;
    const mine = this.held();
    if (mine === undefined || this.isOver()) return;
    const answer = await reassertion.session(mine);
    if (this.isOver()) return;
    switch (answer.type) {
      case 'held':
        return;
      case 'restored':
        meter.count('homing_sessions_restored_total');
        log.warn({ sessionId: this.sessionId }, 'Redis had lost this session or its attachment, and has it again');
        this.catchUp();
        return;
      case 'superseded':
        this.superseded();
        return;
      case 'gone':
        this.#closedByOther();
        return;
      case 'away':
        this.#end(CLOSE.TRY_LATER, 'the session has to be resumed');
        return;
      default:
        assertNever(answer);
    }
  }

  /** Messages may have been lost: everything is compared with the log. */
  catchUp(): void {
    if (this.#state !== 'open') return;
    this.#streams.interruptAll('bus');
    this.#owned.want();
  }

  // ---------------------------------------------------------------------------------------------------- for its connection

  /** There is room again. */
  wake(): void {
    this.#streams.wake();
  }

  heads(): Record<string, number> {
    return this.#streams.heads();
  }

  unacknowledged(): number {
    return this.#streams.unacknowledged();
  }

  /** The client asked to close the session, or that failed. */
  closing(asked: boolean): void {
    this.#closeAsked = asked;
  }

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
    given: ReadonlyMap<CommandId, number> = NO_CURSORS,
  ): void {
    const { meter, now } = this.#ports;
    this.#identity = first.identity;
    this.#owned.start(first.rev);
    this.#cursors = given;
    this.#attachedAt = first.attachedAt;
    for (const command of first.commands) {
      const { state, endedAt, headSeq } = command.snapshot;
      if (first.fresh) meter.count('homing_owner_moves_total', { why: command.why === '' ? 'inherited' : command.why });
      const listed = first.fresh && state === 'ended' && (endedAt ?? 0) < now() - RECENT_MS;
      this.#streams.begin(command.snapshot, listed ? listedStream(headSeq) : this.#firstState(command));
    }
  }

  /** The answer has left: entries may follow. `more`: the session owns more than the answer listed. */
  release(more: boolean): void {
    if (this.#state !== 'opening') return;
    this.#state = 'open';
    if (this.#seenLeaving) {
      this.superseded();
      return;
    }
    this.#streams.releaseAll();
    const early = [...(this.#earlyHeads?.keys() ?? [])];
    if (more || early.some((id) => !this.#streams.has(id))) this.#owned.want();
    this.#owned.watch();
    this.#earlyHeads = undefined;
  }

  /** A command is about to be submitted through this connection; its messages may beat the answer. */
  expect(commandId: CommandId): void {
    this.#lastActiveMs = performance.now();
    this.#owned.beginChange();
    this.#streams.expect(commandId, this.#sentBefore(commandId) ?? 0);
  }

  /** The submit is over; undefined: it failed. `mine`: this session owns the command; `repeated`: it was there before. */
  submitted(
    commandId: CommandId,
    outcome: { mine: boolean; repeated: boolean; rev: number; createdAt: number } | undefined,
  ): void {
    const streams = this.#streams;
    this.#owned.endChange();
    if (outcome?.mine === true && !outcome.repeated) this.#owned.madeRev(outcome.rev);
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
    this.#owned.want();
  }

  /** The answer to the submit has left. */
  releaseCommand(commandId: CommandId): void {
    if (this.#state !== 'open') return;
    this.#streams.release(commandId);
    this.#owned.look();
  }

  /** The user did something, so that its place among others can be restored (OW12). */
  noteActivity(): void {
    this.#lastActiveMs = performance.now();
  }

  /** What the session owns is about to change by a request of its own, which is answered first. */
  beginChange(): void {
    this.#owned.beginChange();
  }

  endChange(): void {
    this.#owned.endChange();
    this.#owned.want();
  }

  ack(given: Readonly<Record<string, number>>): void {
    if (this.#state !== 'open') return;
    for (const [id, seq] of Object.entries(given) as [CommandId, number][]) {
      const stream = this.#streams.get(id);
      if (stream !== undefined && seq >= 1 && seq <= stream.sentSeq) this.#acksNow().add(id, seq);
    }
  }

  #acksNow(): Acks {
    const { sessionId, attachmentId } = this;
    this.#acks ??= createAcks({
      ...{ commands: this.#ports.commands, sessionId, attachmentId },
      onStored: (stored) => {
        for (const [id, seq] of stored) this.#streams.acknowledged(id, seq);
      },
    });
    return this.#acks;
  }

  /** What was acknowledged is stored: before a close, or an heir would get it again. */
  async settleAcks(): Promise<void> {
    await this.#acks?.settle();
  }
}

export type { AttachedSession };

export const createAttachedSession = (ports: AttachedSessionPorts, options: AttachedSessionOptions) =>
  new AttachedSession(ports, options);
