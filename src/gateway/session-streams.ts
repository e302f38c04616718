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

export type PullOutcome = 'more' | 'idle' | 'failed' | 'not_owner';

export interface SessionStreamsOptions {
  readonly commands: Pick<CommandStore, 'readLog'>;
  readonly gapNotes?: GapNotes | undefined;
  readonly log: Log;
  readonly meter: Meter;
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  /** How long a log that went back may take to be repaired (L2). */
  readonly leaseMs: number;
  /** Look into each entry that is read; see careful. */
  readonly careful: boolean;
  now(): number;
  send(texts: string, address: Address): void;
  /** Whether entries may be sent now. */
  mayPull(): boolean;
  /** There is something to pull; `pull` is called when it is this session's turn. */
  wantPull(): void;
}

export type SessionStreams = ReturnType<typeof createSessionStreams>;

export function createSessionStreams(options: SessionStreamsOptions) {
  const { commands, gapNotes, log, meter, sessionId, attachmentId, leaseMs, now, send, mayPull, wantPull } = options;
  const address: Address = { type: 'owner', sessionId, attachmentId };
  const reader: Reader = { type: 'owner', sessionId, attachmentId, careful: options.careful };
  const streams = new Map<CommandId, StreamState>();
  /** Streams that wait for a page, in turn. */
  const wanting = new Set<CommandId>();
  /** Up to where commands that moved away were sent; in order of leaving. */
  const left = new Map<CommandId, Pick<StreamState, 'sentSeq' | 'createdAt'>>();
  /** Seen to have ended: if their records go, that is their retention. */
  const endedOnes = new Set<CommandId>();
  /** When a log was first seen behind what was sent, or gone. */
  const behindSinceMs = new Map<CommandId, number>();
  /** Acknowledged seqs as far as they are known here, from where each stream began. */
  const acked = new Map<CommandId, number>();
  /** A sweep found the log ahead: whether a message of it is still on its way shows while the page is read. */
  const suspected = new Set<CommandId>();
  const repairMs = Math.max(leaseMs, REPAIR_LEAST_MS);
  let stopped = false;

  function put(id: CommandId, stream: StreamState): void {
    const before = streams.get(id)?.mode;
    if (before === undefined) acked.set(id, stream.sentSeq);
    else if (stream.mode === 'done' && before !== 'done')
      log.info({ sessionId, commandId: id, seq: stream.sentSeq }, 'the end of a command was sent to its owner');
    streams.set(id, stream);
    if (stream.mode !== 'pulling') return;
    wanting.add(id);
    wantPull();
  }

  function drop(id: CommandId): void {
    const stream = streams.get(id);
    if (stream !== undefined && stream.sentSeq > 0) noteLeft(id, stream);
    endedOnes.delete(id);
    streams.delete(id);
    wanting.delete(id);
    behindSinceMs.delete(id);
    acked.delete(id);
    suspected.delete(id);
  }

  function noteGap(id: CommandId, gap: MadeGap): void {
    meter.count('homing_gaps_total', { reason: gap.reason });
    gapNotes?.gap(id, gap);
  }

  function noteLeft(id: CommandId, { sentSeq, createdAt }: StreamState): void {
    left.delete(id);
    left.set(id, { sentSeq, createdAt });
    const [oldest] = left.keys();
    if (left.size > MAX_LEFT && oldest !== undefined) left.delete(oldest);
  }

  /** One page for the command whose turn it is (DE4). Never rejects. */
  async function pull(): Promise<PullOutcome> {
    const [id] = wanting;
    if (stopped || id === undefined || !mayPull()) return 'idle';
    wanting.delete(id);
    const stream = streams.get(id);
    if (stream?.mode !== 'pulling') return wanting.size > 0 ? 'more' : 'idle';
    streams.set(id, beginPull(stream));
    try {
      const outcome = await pullOf(id, stream);
      if (outcome !== 'more') return outcome;
    } catch (error) {
      log.debug({ sessionId, commandId: id, fault: messageOf(error) }, 'could not read a page');
      if (streams.has(id)) wanting.add(id);
      return 'failed';
    }
    return wanting.size > 0 ? 'more' : 'idle';
  }

  async function pullOf(id: CommandId, before: StreamState): Promise<PullOutcome> {
    const page = await commands.readLog(id, reader, before.sentSeq, PAGE_BYTES);
    const stream = streams.get(id);
    if (stopped || stream === undefined) return 'more';
    switch (page.type) {
      case 'unknown': {
        const over = endedOnes.has(id);
        // Lost by Redis: its worker gives it back, or nobody does.
        if (waitsForRepair(id, over)) {
          wanting.add(id);
          return 'failed';
        }
        const knownHead = Math.max(stream.knownHead, before.knownHead);
        const texts = tellGone(id, { ...stream, knownHead }, over ? 'expired' : 'redis_lost', now());
        send(texts.join('\n'), address);
        if (!over) meter.count('homing_commands_vanished_total');
        if (knownHead > stream.sentSeq) meter.count('homing_gaps_total', { reason: over ? 'expired' : 'redis_lost' });
        drop(id);
        return 'more';
      }
      case 'not_owner':
        meter.count('homing_stale_dropped_total', { where: 'read' });
        drop(id);
        return 'not_owner';
      case 'page': {
        if (page.ended) endedOnes.add(id);
        const plan = planPage(id, stream, page, now());
        if (plan.type === 'send') {
          behindSinceMs.delete(id);
          // Nothing of it was heard since the reading began: its message was lost (DE7).
          const lost = suspected.delete(id) && plan.texts.length > 0 && stream.knownHead <= stream.sentSeq;
          if (lost) meter.count('homing_lost_publishes_total');
          for (const gap of plan.gaps) noteGap(id, gap);
          if (plan.texts.length > 0) send(plan.texts.join('\n'), address);
          put(id, plan.state);
          return 'more';
        }
        if (waitsForRepair(id, plan.ended)) {
          wanting.add(id);
          return 'failed';
        }
        const lost = tellLost(id, stream, plan, now());
        send(lost.text, address);
        noteGap(id, { fromSeq: plan.headSeq + 1, toSeq: stream.sentSeq, reason: 'redis_lost' });
        put(id, lost.state);
        return 'more';
      }
    }
  }

  function waitsForRepair(id: CommandId, ended: boolean): boolean {
    const since = behindSinceMs.get(id);
    if (since === undefined && !ended) behindSinceMs.set(id, performance.now());
    const waits = !ended && (since === undefined || performance.now() - since < repairMs);
    if (!waits) behindSinceMs.delete(id);
    return waits;
  }

  return {
    address,
    put,
    drop,
    pull,
    get: (id: CommandId) => streams.get(id),

    /** A command that came to the session. */
    begin({ commandId, createdAt }: Pick<CommandSnapshot, 'commandId' | 'createdAt'>, stream: StreamState): void {
      put(commandId as CommandId, { ...stream, createdAt });
    },

    /** When the command of a stream was made: by that, two that had its id are told apart. */
    note(id: CommandId, createdAt: number): void {
      const stream = streams.get(id);
      if (stream !== undefined) streams.set(id, { ...stream, createdAt });
    },
    has: (id: CommandId) => streams.has(id),
    /**
     * Up to where a command that is not here now was sent over this connection; 0 for one that never was, such as one
     * made at another time than the command that had its id before (CO1).
     */
    leftAt(id: CommandId, createdAt?: number): number {
      const before = left.get(id);
      if (before === undefined) return 0;
      const other = createdAt !== undefined && before.createdAt !== undefined && createdAt !== before.createdAt;
      return other ? 0 : before.sentSeq;
    },

    /** Those that may send: their command may move away without this connection's doing. */
    released: (): CommandId[] => [...streams].filter(([, stream]) => stream.mode !== 'held').map(([id]) => id),

    /** Those whose end was not sent yet. */
    outstanding: (): CommandId[] =>
      [...streams].filter(([, { mode }]) => mode === 'live' || mode === 'pulling').map(([id]) => id),

    /** A command whose entries may come before the answer that tells of it. @param afterSeq what the client has of it */
    expect(id: CommandId, afterSeq: number): void {
      if (!streams.has(id)) streams.set(id, holdStream(afterSeq, 0));
    },

    /** The id stands for another command than before: its log begins anew. */
    renew(id: CommandId): void {
      const stream = streams.get(id);
      if (stream === undefined || stream.sentSeq === 0) return;
      drop(id);
      left.delete(id);
      // What came meanwhile was taken for something that had been sent.
      streams.set(id, interruptStream(holdStream(0, 0)));
    },

    release(id: CommandId): void {
      const stream = streams.get(id);
      if (stream?.mode === 'held') put(id, releaseStream(stream));
    },

    releaseAll(): void {
      for (const [id, stream] of streams) {
        if (stream.mode !== 'held') continue;
        put(id, releaseStream(stream));
        if (streams.get(id)?.mode === 'pulling') meter.count('homing_catch_ups_total', { cause: 'resumed' });
      }
    },

    /** Messages may have been lost. */
    interruptAll(cause: string): void {
      for (const [id, stream] of streams) {
        if (stream.mode === 'live') meter.count('homing_catch_ups_total', { cause });
        put(id, interruptStream(stream));
      }
    },

    /** Compares one stream with what a sweep found (DE7). @param sentBefore what was sent when it began to look */
    compare(id: CommandId, head: SessionCheck['heads'][number], sentBefore: number): void {
      const stream = streams.get(id);
      if (stream === undefined) return;
      if (head?.ended === true) endedOnes.add(id);
      // Gone or another's: the log says which, and what to tell.
      // Behind what was sent already: Redis went back, and the reading waits for the repair (L2).
      if (head?.owned !== true || head.head < sentBefore) {
        if (stream.mode === 'live') meter.count('homing_catch_ups_total', { cause: 'gone' });
        put(id, interruptStream(stream));
        return;
      }
      const compared = compareHead(stream, head.head, head.ended);
      if (compared.mode === 'pulling' && stream.mode === 'live') {
        suspected.add(id);
        meter.count('homing_catch_ups_total', { cause: 'sweep' });
      }
      put(id, compared);
    },

    /** Everything of the command was consumed: nothing more is expected of it. */
    acknowledged(id: CommandId, seq: number): void {
      const stream = streams.get(id);
      if (stream?.mode === 'done' && seq >= stream.sentSeq) drop(id);
      else if (stream !== undefined && seq > (acked.get(id) ?? 0)) acked.set(id, seq);
    },

    /** Asks again for pages that had to wait. */
    wake(): void {
      if (wanting.size > 0) wantPull();
    },

    /** Highest seq of each running command, for `session.heartbeat`. */
    heads(): Record<string, number> {
      const heads: Record<string, number> = {};
      for (const [id, stream] of streams) {
        const head = Math.max(stream.sentSeq, stream.knownHead);
        if (stream.mode !== 'done' && head > 0) heads[id] = head;
      }
      return heads;
    },

    /** Entries sent and not acknowledged, of all its commands. */
    unacknowledged(): number {
      let count = 0;
      for (const [id, { sentSeq }] of streams) count += Math.max(0, sentSeq - (acked.get(id) ?? sentSeq));
      return count;
    },

    stop(): void {
      stopped = true;
      wanting.clear();
      streams.clear();
      behindSinceMs.clear();
      left.clear();
      endedOnes.clear();
      acked.clear();
      suspected.clear();
    },
  };
}
