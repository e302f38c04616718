/**
 * Which sessions are attached here. Promises: an intent is recorded before a session and removed after it (S2); a
 * session whose socket is gone is detached, however long that takes to succeed (OW7); at most one connection of this
 * node holds a session.
 */
import { type Backoff, fullJitterMs } from '../domain/backoff.js';
import type { EventBus, Log, Meter, Presence, SessionDirectory, Subscription } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { AttachmentId, NodeId, SessionId } from '../protocol/ids.js';
import type { AttachedSession } from './attached-session.js';

/** A session on its connection here. */
export interface Holding {
  readonly session: AttachedSession;
  readonly connection: {
    /** Whether the peer answers a WebSocket ping in time (SE4). */
    answersPing(timeoutMs: number): Promise<boolean>;
  };
}

export interface SessionTable {
  /**
   * Listens to the session's channel and notes that this node may hold it. To be called before open or attach.
   * @throws AppError REDIS_UNAVAILABLE
   */
  prepare(holding: Holding): Promise<void>;
  /** The attachment is current: from now on the sweep looks after it. */
  hold(holding: Holding): void;
  /** The connection is gone or failed to open: the session goes away in Redis, in the background. */
  leave(holding: Holding): void;
  find(sessionId: SessionId): Holding | undefined;
  all(): readonly Holding[];
  /** One of `TURNS` shares of them, about equal; those of one conversation are in the same. */
  turn(index: number): Iterable<Holding>;
  /** Detaches what Redis says this node holds and it does not (S1), and notes again what it does. */
  audit(): Promise<void>;
  /** Resolves when nothing is left to detach, or after `withinMs`. */
  settled(withinMs: number): Promise<void>;
  close(): void;
}

export interface SessionTablePorts {
  readonly nodeId: NodeId;
  readonly sessions: SessionDirectory;
  readonly presence: Presence;
  readonly bus: EventBus;
  readonly log: Log;
  readonly meter: Meter;
  random(): number;
}

/** Into how many shares the sessions of a node are dealt, so that whoever looks at all of them again and again walks one at a time. */
export const TURNS = 20;

const turnOf = ({ session }: Holding): number => {
  const { tag } = session.place;
  return (tag.charCodeAt(0) * 31 + tag.charCodeAt(1)) % TURNS;
};

const RETRY: Backoff = { baseMs: 100, capMs: 5_000 };

export function createSessionTable(ports: SessionTablePorts): SessionTable {
  const { nodeId, sessions, presence, bus, log, meter, random } = ports;
  const held = new Map<SessionId, Holding>();
  const turns = Array.from({ length: TURNS }, () => new Set<Holding>());
  /** Everything not yet wholly left, by connection: opening, held and leaving. */
  const present = new Map<Holding, Subscription | undefined>();
  const leaving = new Set<Promise<void>>();
  const wakes = new Set<() => void>();
  let closed = false;

  /** How many connections of each session are in `present`. */
  const counts = new Map<SessionId, number>();

  const isPresent = (sessionId: SessionId) => counts.has(sessionId);

  function enter(holding: Holding): void {
    const { sessionId } = holding.session;
    present.set(holding, undefined);
    counts.set(sessionId, (counts.get(sessionId) ?? 0) + 1);
  }

  function forget(holding: Holding): void {
    if (!present.delete(holding)) return;
    const { sessionId } = holding.session;
    const left = (counts.get(sessionId) ?? 1) - 1;
    if (left > 0) counts.set(sessionId, left);
    else counts.delete(sessionId);
  }

  const pause = (ms: number) =>
    new Promise<void>((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        wakes.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, ms);
      wakes.add(wake);
    });

  async function detachForSure(sessionId: SessionId, attachmentId: AttachmentId): Promise<void> {
    for (let attempt = 0; !closed; attempt++) {
      try {
        await sessions.detach(sessionId, attachmentId);
        return;
      } catch (error) {
        if (attempt === 0) log.warn({ sessionId, fault: messageOf(error) }, 'could not detach a session yet');
        await pause(50 + fullJitterMs(attempt, RETRY, random()));
      }
    }
  }

  async function leaveInOrder(holding: Holding): Promise<void> {
    const { sessionId, attachmentId } = holding.session;
    await detachForSure(sessionId, attachmentId);
    const subscription = present.get(holding);
    forget(holding);
    await subscription?.close();
    // The same session may be attached here again over a newer connection: then the note is still true.
    if (isPresent(sessionId) || closed) return;
    // An extra note is harmless: the audit of this node finds nothing to detach for it.
    await presence.dropNodeSession(nodeId, sessionId).catch(() => undefined);
    if (isPresent(sessionId)) await presence.noteNodeSession(nodeId, sessionId).catch(() => undefined);
  }

  const measure = () => meter.gauge('homing_sessions_attached', held.size);

  return {
    async prepare(holding) {
      enter(holding);
      const { session } = holding;
      const subscription = await bus.subscribeSession(session.sessionId, (message) => session.onMessage(message));
      if (present.has(holding)) present.set(holding, subscription);
      else await subscription.close();
      await presence.noteNodeSession(nodeId, session.sessionId);
    },

    hold(holding) {
      const before = held.get(holding.session.sessionId);
      held.set(holding.session.sessionId, holding);
      turns[turnOf(holding)]?.add(holding);
      if (before !== undefined && before !== holding) {
        turns[turnOf(before)]?.delete(before);
        before.session.superseded();
      }
      measure();
    },

    leave(holding) {
      holding.session.stop();
      const { sessionId } = holding.session;
      if (held.get(sessionId) === holding) log.info({ sessionId }, 'a session lost its connection');
      if (held.get(holding.session.sessionId) === holding) held.delete(holding.session.sessionId);
      turns[turnOf(holding)]?.delete(holding);
      measure();
      if (!present.has(holding)) return;
      const left = leaveInOrder(holding).finally(() => {
        forget(holding);
        leaving.delete(left);
      });
      leaving.add(left);
    },

    find: (sessionId) => held.get(sessionId),
    all: () => [...held.values()],
    turn: (index) => turns[index % TURNS] ?? [],

    async audit() {
      const recorded = new Set(await presence.nodeSessions(nodeId));
      for (const sessionId of recorded) {
        if (isPresent(sessionId)) continue;
        meter.count('homing_audit_detached_total');
        await sessions.detachFromNode(sessionId, nodeId);
        // It may have been opened here while the detach was under way: the sweep of that session then says so.
        if (!isPresent(sessionId)) await presence.dropNodeSession(nodeId, sessionId);
      }
      for (const sessionId of held.keys()) {
        if (!recorded.has(sessionId)) await presence.noteNodeSession(nodeId, sessionId);
      }
    },

    async settled(withinMs) {
      await Promise.race([Promise.all(leaving), pause(withinMs)]);
    },

    close() {
      closed = true;
      for (const wake of [...wakes]) wake();
    },
  };
}
