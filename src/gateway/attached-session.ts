/**
 * One session as attached to one connection: what it owns, how far each command was sent, and what happens to messages
 * of its channel. It applies what `domain/routing` and `domain/stream` decide and decides nothing itself.
 *
 * opening  subscribed, not yet answered: heads are noted, nothing is sent
 * open     entries flow
 * over     superseded, closed or dropped: nothing is sent any more
 */
import type { CommandStore, Log, Meter, OwnedCommand, Place, SessionCheck, SessionDirectory } from '../domain/ports.js';
import { decideLive } from '../domain/routing.js';
import {
  beginPull,
  compareHead,
  holdStream,
  interruptStream,
  listedStream,
  planPage,
  releaseStream,
  type StreamState,
  tellExpired,
  tellLost,
} from '../domain/stream.js';
import { messageOf } from '../errors.js';
import { CLOSE } from '../protocol/close-codes.js';
import type { AttachmentId, CommandId, SessionId } from '../protocol/ids.js';
import { parseLiveMessage } from '../protocol/live-message.js';
import { createAcks } from './acks.js';
import type { Address } from './outbox.js';
import type { Pullable, Puller } from './puller.js';

/** What a session may do to its connection. */
export interface Delivery {
  entries(texts: string, address: Address): void;
  notify(method: string, params: unknown): void;
  room(): boolean;
  /** Sends nothing more and closes the socket. */
  end(code: number, reason: string): void;
}

export interface AttachedSessionPorts {
  readonly sessions: SessionDirectory;
  readonly commands: CommandStore;
  readonly log: Log;
  readonly meter: Meter;
  readonly puller: Puller;
  now(): number;
  /** Whether the bus is silent: then nothing is sent, for another node may hold the session (SE1). */
  busDown(): boolean;
}

export interface AttachedSessionOptions {
  readonly place: Place;
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  readonly delivery: Delivery;
  /** How long a log that went back may take to be repaired (L2). */
  readonly leaseMs: number;
}

export type AttachedSession = ReturnType<typeof createAttachedSession>;

/** Text of one page read for an owner. */
const PAGE_BYTES = 128 * 1024;
/** Most commands looked at when what a session owns has changed. */
const MAX_OWNED = 2_000;
/** Commands of one check; more are compared in further calls. */
const MAX_CHECKED = 500;

export function createAttachedSession(ports: AttachedSessionPorts, options: AttachedSessionOptions) {
  const { sessions, commands, log, meter, puller, now, busDown } = ports;
  const { place, sessionId, attachmentId, delivery, leaseMs } = options;
  const address: Address = { type: 'owner', sessionId, attachmentId };
  const streams = new Map<CommandId, StreamState>();
  /** Streams that wait for a page, in turn. */
  const wanting = new Set<CommandId>();
  /** When a log was first seen behind what was sent. */
  const behindSinceMs = new Map<CommandId, number>();
  /** Heard of before the session knew what it owns. */
  const earlyHeads = new Map<CommandId, number>();
  let cursors: ReadonlyMap<CommandId, number> = new Map();
  let state: 'opening' | 'open' | 'over' = 'opening';
  let rev = 0;
  let heardRev = 0;
  /** Requests under way that change what the session owns; their answers come before what they cause. */
  let changing = 0;
  let refreshWanted = false;
  /** The client asked to close: the answer comes before the end of the socket. */
  let asked = false;
  let refreshing = false;
  /** While opening: the attachment was seen to arrive here, and then to leave again. */
  let seenHere = false;
  let seenLeaving = false;

  const acks = createAcks({
    commands,
    sessionId,
    attachmentId,
    onStored(stored) {
      for (const [id, seq] of stored) {
        const stream = streams.get(id);
        if (stream?.mode === 'done' && seq >= stream.sentSeq) streams.delete(id);
      }
    },
  });

  // ---------------------------------------------------------------------------------------------------- streams

  function put(id: CommandId, stream: StreamState): void {
    streams.set(id, stream);
    if (stream.mode !== 'pulling') return;
    wanting.add(id);
    if (state === 'open') puller.schedule(session);
  }

  function drop(id: CommandId): void {
    streams.delete(id);
    wanting.delete(id);
    behindSinceMs.delete(id);
  }

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
    const room = state === 'open' && !busDown() && delivery.room();
    const held = { sessionId, attachmentId, rev, streamOf: (id: CommandId) => streams.get(id), room };
    const decision = decideLive(held, message);
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
        if (!asked) end(CLOSE.SESSION_CLOSED, 'the session was closed');
        return;
      case 'refresh':
        noteRev(decision.rev);
        return;
      case 'unknown_command':
        if (state === 'opening') earlyHeads.set(decision.commandId, decision.toSeq);
        else wantRefresh();
        return;
      case 'stream': {
        const { commandId, step } = decision;
        if (step.type === 'forward' && message.type === 'entries') delivery.entries(message.texts, address);
        put(commandId, step.state);
      }
    }
  }

  // ---------------------------------------------------------------------------------------------------- what it owns

  function noteRev(heard: number): void {
    heardRev = Math.max(heardRev, heard);
    // A submit of our own raises the rev too, and its answer says so: wait for it.
    if (state === 'open' && changing === 0 && (heardRev > rev || refreshWanted)) void refresh();
  }

  function wantRefresh(): void {
    refreshWanted = true;
    noteRev(heardRev);
  }

  function firstState(command: OwnedCommand): StreamState {
    const { snapshot, fromSeq } = command;
    const id = snapshot.commandId as CommandId;
    const afterSeq = cursors.get(id) ?? fromSeq - 1;
    return holdStream(afterSeq, Math.max(snapshot.headSeq, earlyHeads.get(id) ?? 0));
  }

  /** Reads anew what the session owns, tells the client of what is new, and lets go of what it no longer has (S4). */
  async function refresh(): Promise<void> {
    if (refreshing || state !== 'open') return;
    refreshing = true;
    try {
      do {
        const before = [...streams].filter(([, stream]) => stream.mode !== 'held').map(([id]) => id);
        const revBefore = rev;
        // What was heard before this reading is in it, unless Redis went back; waiting for more would never end.
        heardRev = 0;
        refreshWanted = false;
        const owned = await sessions.owned(sessionId, MAX_OWNED);
        if ((state as string) === 'over') return;
        rev = rev === revBefore ? owned.rev : Math.max(rev, owned.rev);
        const present = new Set<string>();
        for (const command of owned.commands) {
          const id = command.snapshot.commandId as CommandId;
          present.add(id);
          if (!streams.has(id)) welcome(id, command);
        }
        if (!owned.more) for (const id of before) if (!present.has(id)) drop(id);
      } while ((heardRev > rev || refreshWanted) && changing === 0);
    } catch (error) {
      // The sweep finds the difference again.
      log.debug({ sessionId, fault: messageOf(error) }, 'could not read what a session owns');
    } finally {
      refreshing = false;
    }
  }

  function welcome(id: CommandId, command: OwnedCommand): void {
    const { snapshot, fromSeq, why } = command;
    delivery.notify('command.owner', { commandId: id, snapshot, fromSeq, why: why === '' ? 'inherited' : why });
    // Read at once: what was published before this stream was there is only in the log.
    put(id, releaseStream(interruptStream(firstState(command))));
  }

  // ---------------------------------------------------------------------------------------------------- pages

  /** One page for the command whose turn it is (DE4). */
  async function pullPage(): Promise<'more' | 'idle' | 'failed'> {
    if (state !== 'open' || busDown() || !delivery.room()) return 'idle';
    const [id] = wanting;
    const stream = id === undefined ? undefined : streams.get(id);
    if (id === undefined) return 'idle';
    wanting.delete(id);
    if (stream?.mode !== 'pulling') return wanting.size > 0 ? 'more' : 'idle';
    streams.set(id, beginPull(stream));
    try {
      const page = await commands.readLog(id, { type: 'owner', sessionId, attachmentId }, stream.sentSeq, PAGE_BYTES);
      if ((state as string) === 'over') return 'idle';
      const current = streams.get(id);
      if (current === undefined) return wanting.size > 0 ? 'more' : 'idle';
      if (page.type === 'unknown') {
        const text = tellExpired(id, { ...current, knownHead: Math.max(current.knownHead, stream.knownHead) }, now());
        if (text !== undefined) delivery.entries(text, address);
        drop(id);
      } else if (page.type === 'not_owner') {
        meter.count('homing_stale_dropped_total', { where: 'read' });
        drop(id);
        await verify();
        wantRefresh();
      } else {
        const plan = planPage(id, current, page, now());
        if (plan.type === 'send') {
          behindSinceMs.delete(id);
          if (plan.texts.length > 0) delivery.entries(plan.texts.join('\n'), address);
          put(id, plan.state);
        } else if (!waitsForRepair(id, plan.ended)) {
          const lost = tellLost(id, current, plan, now());
          delivery.entries(lost.text, address);
          put(id, lost.state);
        } else {
          wanting.add(id);
          return 'failed';
        }
      }
    } catch (error) {
      log.debug({ sessionId, commandId: id, fault: messageOf(error) }, 'could not read a page');
      if (streams.has(id)) wanting.add(id);
      return 'failed';
    }
    return wanting.size > 0 ? 'more' : 'idle';
  }

  function waitsForRepair(id: CommandId, ended: boolean): boolean {
    const since = behindSinceMs.get(id);
    if (since === undefined && !ended) behindSinceMs.set(id, performance.now());
    const waits = !ended && (since === undefined || performance.now() - since < leaseMs);
    if (!waits) behindSinceMs.delete(id);
    return waits;
  }

  // ---------------------------------------------------------------------------------------------------- the sweep

  const outstanding = () =>
    [...streams].filter(([, { mode }]) => mode === 'live' || mode === 'pulling').map(([id]) => id);

  /**
   * Compares with Redis what can be lost on the way: the attachment, the rev and the heads (DE7, SE1).
   * @throws AppError REDIS_UNAVAILABLE
   */
  async function verify(): Promise<void> {
    const ids = outstanding();
    for (let start = 0; start === 0 || start < ids.length; start += MAX_CHECKED) {
      const some = ids.slice(start, start + MAX_CHECKED);
      const check = await sessions.check(sessionId, some);
      if (state !== 'open') return;
      if (!compareState(check)) return;
      for (const [index, id] of some.entries()) {
        const head = check.heads[index];
        const stream = streams.get(id);
        if (stream === undefined) continue;
        if (head === undefined || !head.owned) put(id, interruptStream(stream));
        else put(id, compareHead(stream, head.head, head.ended));
      }
      // Lower than ours: Redis went back to older data.
      if (check.rev < rev) wantRefresh();
      else noteRev(check.rev);
    }
  }

  /** @returns whether this connection still holds the session */
  function compareState({ state: found, attachmentId: current }: SessionCheck): boolean {
    if (found === 'live' && current === attachmentId) return true;
    if (found === 'live') superseded();
    else if (found === 'closing' || found === 'closed') {
      if (!asked) end(CLOSE.SESSION_CLOSED, 'the session was closed');
    } else {
      // Judged dead by mistake, or the record was lost: the client comes back and is attached anew.
      end(CLOSE.TRY_LATER, 'the session has to be resumed');
    }
    return false;
  }

  function stop(): void {
    if (state === 'over') return;
    state = 'over';
    wanting.clear();
    streams.clear();
    earlyHeads.clear();
    void acks.close();
  }

  const session = {
    place,
    sessionId,
    attachmentId,
    address,
    onMessage,
    pullPage,
    verify,
    outstanding,
    stop,
    superseded,
    /** The client asked to close the session. */
    closing(): void {
      asked = true;
    },
    isOver: () => state === 'over',

    /**
     * What the session owned when it was opened or resumed. `fresh`: history is listed, not pushed (S5).
     * @param given cursors of the client; of commands it no longer owns they are ignored
     */
    begin(
      first: { readonly rev: number; readonly commands: readonly OwnedCommand[]; readonly fresh: boolean },
      given: ReadonlyMap<CommandId, number>,
    ): void {
      rev = first.rev;
      cursors = given;
      const recentMs = now() - 60_000;
      for (const command of first.commands) {
        const { commandId, state: commandState, endedAt, headSeq } = command.snapshot;
        const listed = first.fresh && commandState === 'ended' && (endedAt ?? 0) < recentMs;
        streams.set(commandId as CommandId, listed ? listedStream(headSeq) : firstState(command));
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
      for (const [id, stream] of streams) if (stream.mode === 'held') put(id, releaseStream(stream));
      if (more || [...earlyHeads.keys()].some((id) => !streams.has(id))) wantRefresh();
      else noteRev(heardRev);
      earlyHeads.clear();
    },

    /** A command is about to be submitted through this connection; its messages may beat the answer. */
    expect(commandId: CommandId): void {
      changing += 1;
      if (!streams.has(commandId)) streams.set(commandId, holdStream(0, 0));
    },

    /** The submit is over. `mine`: this session owns the command; `repeated`: it was there before. */
    submitted(commandId: CommandId, outcome: { mine: boolean; repeated: boolean; rev: number } | undefined): void {
      changing -= 1;
      const stream = streams.get(commandId);
      if (outcome?.mine === true && !outcome.repeated && outcome.rev === rev + 1) rev = outcome.rev;
      else if (outcome?.mine === true && !outcome.repeated) heardRev = Math.max(heardRev, outcome.rev);
      if (stream?.mode === 'held') {
        if (outcome?.mine !== true) drop(commandId);
        else if (outcome.repeated) streams.set(commandId, interruptStream(stream));
      }
    },

    /** What the session owns is about to change by a request of its own, which is answered first. */
    changes(): void {
      changing += 1;
    },

    changed(): void {
      changing -= 1;
      wantRefresh();
    },

    /** The answer to the submit has left. */
    releaseCommand(commandId: CommandId): void {
      const stream = streams.get(commandId);
      if (state === 'open' && stream?.mode === 'held') put(commandId, releaseStream(stream));
      noteRev(heardRev);
    },

    ack(given: Readonly<Record<string, number>>): void {
      if (state !== 'open') return;
      for (const [id, seq] of Object.entries(given)) {
        const stream = streams.get(id as CommandId);
        if (stream !== undefined && seq >= 1 && seq <= stream.sentSeq) acks.add(id as CommandId, seq);
      }
    },

    /** Messages may have been lost: everything is compared with the log. */
    catchUp(): void {
      if (state !== 'open') return;
      for (const [id, stream] of streams) put(id, interruptStream(stream));
      wantRefresh();
    },

    /** There may be room for pages again. */
    wake(): void {
      if (state === 'open' && wanting.size > 0) puller.schedule(session);
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
  } satisfies Pullable & Record<string, unknown>;
  return session;
}
