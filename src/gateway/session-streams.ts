/**
 * How far each command a session owns was sent over its connection. Live messages and pages of the log both come through
 * here, so that every entry is sent once and in order (DE1), by the rules of `domain/stream`.
 */
import type { CommandStore, GapNotes, Log, Meter, Reader, SessionCheck } from '../domain/ports.js';
import {
  beginPull,
  compareHead,
  holdStream,
  interruptStream,
  type MadeGap,
  planPage,
  releaseStream,
  type StreamState,
  tellGone,
  tellLost,
} from '../domain/stream.js';
import { messageOf } from '../errors.js';
import type { AttachmentId, CommandId, SessionId } from '../protocol/ids.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import type { Address } from './outbox.js';

/** Text of one page read for an owner. */
const PAGE_BYTES = 128 * 1024;
/** Commands that moved away whose place is remembered, should they come back. */
const MAX_LEFT = 1_000;
/** Workers look at their claims every 2 s, whatever the lease. */
const REPAIR_LEAST_MS = 5_000;
/** Commands that only wait and are looked at all the same, in one look. */
const UNHEARD_EACH = 200;

export type PullOutcome = 'more' | 'idle' | 'failed' | 'not_owner';

export interface StreamsPorts {
  readonly commands: Pick<CommandStore, 'readLog'>;
  readonly gapNotes?: GapNotes | undefined;
  readonly log: Log;
  readonly meter: Meter;
  now(): number;
}

/** The session whose streams they are. */
export interface StreamsHost {
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  send(texts: readonly string[], address: Address): void;
  /** Whether entries may be sent now. */
  maySend(): boolean;
  /** There is something to pull; `pull` is called when it is this session's turn. */
  wantPull(): void;
}

export interface SessionStreamsOptions {
  /** How long a log that went back may take to be repaired (L2). */
  readonly leaseMs: number;
  /** Look into each entry that is read; see careful. */
  readonly careful: boolean;
}

/** What is known here of one command. */
interface Followed {
  stream: StreamState;
  /** Acknowledged as far as it is known here, from where the stream began. */
  ackedSeq: number | undefined;
  /** Seen to have ended: if its record goes, that is its retention. */
  ended: boolean;
  /** When its log was first seen behind what was sent, or gone. */
  behindSinceMs: number | undefined;
  /** A sweep found the log ahead: whether a message of it is still on its way shows while the page is read. */
  suspected: boolean;
}

const follow = (stream: StreamState, ackedSeq?: number): Followed => {
  return { stream, ackedSeq, ended: false, behindSinceMs: undefined, suspected: false };
};

const isOutstanding = ({ mode }: StreamState): boolean => mode === 'live' || mode === 'pulling';

/** One for each tab, most of which follow nothing: what holds commands is made with the first of them. */
class SessionStreams {
  readonly address: Address;
  readonly #ports: StreamsPorts;
  readonly #host: StreamsHost;
  readonly #repairMs: number;
  readonly #careful: boolean;
  #followed: Map<CommandId, Followed> | undefined;
  /** Streams that wait for a page, in turn. */
  #wanting: Set<CommandId> | undefined;
  /** Up to where commands that moved away were sent; in order of leaving. */
  #left: Map<CommandId, Pick<StreamState, 'sentSeq' | 'createdAt'>> | undefined;
  /** How many of those that nothing was heard of were looked at, to go on with the next. */
  #lookedAt = 0;
  #stopped = false;

  constructor(ports: StreamsPorts, host: StreamsHost, { leaseMs, careful }: SessionStreamsOptions) {
    this.#ports = ports;
    this.#host = host;
    this.#repairMs = Math.max(leaseMs, REPAIR_LEAST_MS);
    this.#careful = careful;
    this.address = { type: 'owner', sessionId: host.sessionId, attachmentId: host.attachmentId };
  }

  get(id: CommandId): StreamState | undefined {
    return this.#followed?.get(id)?.stream;
  }

  has(id: CommandId): boolean {
    return this.#followed?.has(id) === true;
  }

  put(id: CommandId, stream: StreamState): void {
    const followed = this.#followed?.get(id);
    if (followed === undefined) this.#begin(id, follow(stream, stream.sentSeq));
    else {
      if (stream.mode === 'done' && followed.stream.mode !== 'done') this.#logEnd(id, stream);
      followed.stream = stream;
    }
    if (stream.mode !== 'pulling') return;
    this.#want(id);
    this.#host.wantPull();
  }

  #begin(id: CommandId, followed: Followed): void {
    this.#followed ??= new Map();
    this.#followed.set(id, followed);
  }

  #want(id: CommandId): void {
    this.#wanting ??= new Set();
    this.#wanting.add(id);
  }

  #wantsMore(): boolean {
    return this.#wanting !== undefined && this.#wanting.size > 0;
  }

  #logEnd(commandId: CommandId, { sentSeq: seq }: StreamState): void {
    const { sessionId } = this.#host;
    this.#ports.log.info({ sessionId, commandId, seq }, 'the end of a command was sent to its owner');
  }

  drop(id: CommandId): void {
    const stream = this.get(id);
    if (stream !== undefined && stream.sentSeq > 0) this.#noteLeft(id, stream);
    this.#followed?.delete(id);
    this.#wanting?.delete(id);
  }

  #noteGap(id: CommandId, gap: MadeGap): void {
    this.#ports.meter.count('homing_gaps_total', { reason: gap.reason });
    this.#ports.gapNotes?.gap(id, gap);
  }

  #noteLeft(id: CommandId, { sentSeq, createdAt }: StreamState): void {
    this.#left ??= new Map();
    const left = this.#left;
    left.delete(id);
    left.set(id, { sentSeq, createdAt });
    const [oldest] = left.keys();
    if (left.size > MAX_LEFT && oldest !== undefined) left.delete(oldest);
  }

  /** One page for the command whose turn it is (DE4). Never rejects. */
  async pull(): Promise<PullOutcome> {
    const [id] = this.#wanting ?? [];
    if (this.#stopped || id === undefined || !this.#host.maySend()) return 'idle';
    this.#wanting?.delete(id);
    const followed = this.#followed?.get(id);
    if (followed?.stream.mode !== 'pulling') return this.#wantsMore() ? 'more' : 'idle';
    const before = followed.stream;
    followed.stream = beginPull(before);
    try {
      const outcome = await this.#pullOf(id, before);
      if (outcome !== 'more') return outcome;
    } catch (error) {
      const { sessionId } = this.#host;
      this.#ports.log.debug({ sessionId, commandId: id, fault: messageOf(error) }, 'could not read a page');
      if (this.has(id)) this.#want(id);
      return 'failed';
    }
    return this.#wantsMore() ? 'more' : 'idle';
  }

  async #pullOf(id: CommandId, before: StreamState): Promise<PullOutcome> {
    const { commands, meter, now } = this.#ports;
    const { sessionId, attachmentId } = this.#host;
    const reader: Reader = { type: 'owner', sessionId, attachmentId, careful: this.#careful };
    const page = await commands.readLog(id, reader, before.sentSeq, PAGE_BYTES);
    const followed = this.#followed?.get(id);
    if (this.#stopped || followed === undefined) return 'more';
    const { stream } = followed;
    switch (page.type) {
      case 'unknown': {
        const over = followed.ended;
        // Lost by Redis: its worker gives it back, or nobody does.
        if (this.#waitsForRepair(followed, over)) {
          this.#want(id);
          return 'failed';
        }
        const knownHead = Math.max(stream.knownHead, before.knownHead);
        const texts = tellGone(id, { ...stream, knownHead }, over ? 'expired' : 'redis_lost', now());
        this.#host.send(texts, this.address);
        if (!over) meter.count('homing_commands_vanished_total');
        if (knownHead > stream.sentSeq) meter.count('homing_gaps_total', { reason: over ? 'expired' : 'redis_lost' });
        this.drop(id);
        return 'more';
      }
      case 'not_owner':
        meter.count('homing_stale_dropped_total', { where: 'read' });
        this.drop(id);
        return 'not_owner';
      case 'page': {
        if (page.ended) followed.ended = true;
        const plan = planPage(id, stream, page, now());
        if (plan.type === 'send') {
          followed.behindSinceMs = undefined;
          // Nothing of it was heard since the reading began: its message was lost (DE7).
          const lost = followed.suspected && plan.texts.length > 0 && stream.knownHead <= stream.sentSeq;
          followed.suspected = false;
          if (lost) meter.count('homing_lost_publishes_total');
          for (const gap of plan.gaps) this.#noteGap(id, gap);
          if (plan.texts.length > 0) this.#host.send(plan.texts, this.address);
          this.put(id, plan.state);
          return 'more';
        }
        if (this.#waitsForRepair(followed, plan.ended)) {
          this.#want(id);
          return 'failed';
        }
        const lost = tellLost(id, stream, plan, now());
        this.#host.send([lost.text], this.address);
        this.#noteGap(id, { fromSeq: plan.headSeq + 1, toSeq: stream.sentSeq, reason: 'redis_lost' });
        this.put(id, lost.state);
        return 'more';
      }
    }
  }

  #waitsForRepair(followed: Followed, ended: boolean): boolean {
    const { behindSinceMs: since } = followed;
    if (since === undefined && !ended) followed.behindSinceMs = performance.now();
    const waits = !ended && (since === undefined || performance.now() - since < this.#repairMs);
    if (!waits) followed.behindSinceMs = undefined;
    return waits;
  }

  /** A command that came to the session. */
  begin({ commandId, createdAt }: Pick<CommandSnapshot, 'commandId' | 'createdAt'>, stream: StreamState): void {
    this.put(commandId as CommandId, { ...stream, createdAt });
  }

  /** When the command of a stream was made: by that, two that had its id are told apart. */
  note(id: CommandId, createdAt: number): void {
    const followed = this.#followed?.get(id);
    if (followed !== undefined) followed.stream = { ...followed.stream, createdAt };
  }

  /**
   * Up to where a command that is not here now was sent over this connection; 0 for one that never was, such as one
   * made at another time than the command that had its id before (CO1).
   */
  leftAt(id: CommandId, createdAt?: number): number {
    const before = this.#left?.get(id);
    if (before === undefined) return 0;
    const other = createdAt !== undefined && before.createdAt !== undefined && createdAt !== before.createdAt;
    return other ? 0 : before.sentSeq;
  }

  #idsWhere(fits: (mode: StreamState['mode']) => boolean): CommandId[] {
    if (this.#followed === undefined) return [];
    return [...this.#followed].filter(([, { stream }]) => fits(stream.mode)).map(([id]) => id);
  }

  /** Those that may send: their command may move away without this connection's doing. */
  released(): CommandId[] {
    return this.#idsWhere((mode) => mode !== 'held');
  }

  /** Whether the end of one was not sent yet. */
  hasOutstanding(): boolean {
    for (const { stream } of this.#followed?.values() ?? []) if (isOutstanding(stream)) return true;
    return false;
  }

  /**
   * Those whose end was not sent yet. Of those that nothing was heard of, which mostly wait in the queue, all or some, others
   * each time.
   */
  outstanding(unheard: 'all' | 'some'): CommandId[] {
    const heard: CommandId[] = [];
    const silent: CommandId[] = [];
    for (const [id, { stream }] of this.#followed ?? []) {
      if (isOutstanding(stream)) (stream.sentSeq === 0 && stream.knownHead === 0 ? silent : heard).push(id);
    }
    if (unheard === 'all' || silent.length <= UNHEARD_EACH) return [...heard, ...silent];
    const from = this.#lookedAt % silent.length;
    this.#lookedAt = from + UNHEARD_EACH;
    return [...heard, ...silent.slice(from, from + UNHEARD_EACH)];
  }

  /** A command whose entries may come before the answer that tells of it. @param afterSeq what the client has of it */
  expect(id: CommandId, afterSeq: number): void {
    if (!this.has(id)) this.#begin(id, follow(holdStream(afterSeq, 0)));
  }

  /** The id stands for another command than before: its log begins anew. */
  renew(id: CommandId): void {
    const stream = this.get(id);
    if (stream === undefined || stream.sentSeq === 0) return;
    this.drop(id);
    this.#left?.delete(id);
    // What came meanwhile was taken for something that had been sent.
    this.#begin(id, follow(interruptStream(holdStream(0, 0))));
  }

  release(id: CommandId): void {
    const stream = this.get(id);
    if (stream?.mode === 'held') this.put(id, releaseStream(stream));
  }

  releaseAll(): void {
    for (const [id, { stream }] of this.#followed ?? []) {
      if (stream.mode !== 'held') continue;
      this.put(id, releaseStream(stream));
      if (this.get(id)?.mode === 'pulling') this.#ports.meter.count('homing_catch_ups_total', { cause: 'resumed' });
    }
  }

  /** Messages may have been lost. */
  interruptAll(cause: string): void {
    for (const [id, { stream }] of this.#followed ?? []) {
      if (stream.mode === 'live') this.#ports.meter.count('homing_catch_ups_total', { cause });
      this.put(id, interruptStream(stream));
    }
  }

  /** Compares one stream with what a sweep found (DE7). @param sentBefore what was sent when it began to look */
  compare(id: CommandId, head: SessionCheck['heads'][number], sentBefore: number): void {
    const followed = this.#followed?.get(id);
    if (followed === undefined) return;
    const { stream } = followed;
    if (head?.ended === true) followed.ended = true;
    // Gone or another's: the log says which, and what to tell.
    // Behind what was sent already: Redis went back, and the reading waits for the repair (L2).
    if (head?.owned !== true || head.head < sentBefore) {
      if (stream.mode === 'live') this.#ports.meter.count('homing_catch_ups_total', { cause: 'gone' });
      this.put(id, interruptStream(stream));
      return;
    }
    const compared = compareHead(stream, head.head, head.ended);
    if (compared.mode === 'pulling' && stream.mode === 'live') {
      followed.suspected = true;
      this.#ports.meter.count('homing_catch_ups_total', { cause: 'sweep' });
    }
    this.put(id, compared);
  }

  /** Everything of the command was consumed: nothing more is expected of it. */
  acknowledged(id: CommandId, seq: number): void {
    const followed = this.#followed?.get(id);
    if (followed === undefined) return;
    const { stream, ackedSeq = 0 } = followed;
    if (stream.mode === 'done' && seq >= stream.sentSeq) this.drop(id);
    else if (seq > ackedSeq) followed.ackedSeq = seq;
  }

  /** Asks again for pages that had to wait. */
  wake(): void {
    if (this.#wantsMore()) this.#host.wantPull();
  }

  /** Highest seq of each running command, for `session.heartbeat`. */
  heads(): Record<string, number> {
    const heads: Record<string, number> = {};
    for (const [id, { stream }] of this.#followed ?? []) {
      const head = Math.max(stream.sentSeq, stream.knownHead);
      if (stream.mode !== 'done' && head > 0) heads[id] = head;
    }
    return heads;
  }

  /** Entries sent and not acknowledged, of all its commands. */
  unacknowledged(): number {
    let count = 0;
    for (const { stream, ackedSeq } of this.#followed?.values() ?? [])
      count += Math.max(0, stream.sentSeq - (ackedSeq ?? stream.sentSeq));
    return count;
  }

  stop(): void {
    this.#stopped = true;
    this.#followed = undefined;
    this.#wanting = undefined;
    this.#left = undefined;
  }
}

export type { SessionStreams };

export const createSessionStreams = (ports: StreamsPorts, host: StreamsHost, options: SessionStreamsOptions) =>
  new SessionStreams(ports, host, options);
