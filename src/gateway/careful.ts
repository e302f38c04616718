/**
 * Sessions whose client could not read what this node sent. Entries of a log go from Redis to the socket unread, so one that was
 * damaged in its middle makes a frame that is no JSON; its client comes back, and would get the same again for ever. From then on
 * this node looks into what it reads for that session, and tells what is damaged as a gap (DE3).
 */
import { CLOSE } from '../protocol/close-codes.js';
import type { SessionId } from '../protocol/ids.js';

export interface Careful {
  /** The socket of this session was closed by its client with this code. */
  closed(sessionId: SessionId, code: number): void;
  has(sessionId: SessionId): boolean;
}

/** Forgotten ones cost their client one more reconnection. */
const MAX_SESSIONS = 1_000;
/** Ours says 4502; what else speaks WebSocket says that the protocol, the kind or the text was wrong. */
const UNREADABLE: ReadonlySet<number> = new Set([CLOSE.PROTOCOL_ERROR, 1002, 1003, 1007]);

export function createCareful(): Careful {
  const sessions = new Set<SessionId>();
  return {
    closed(sessionId, code) {
      if (!UNREADABLE.has(code)) return;
      sessions.add(sessionId);
      const [oldest] = sessions;
      if (sessions.size > MAX_SESSIONS && oldest !== undefined) sessions.delete(oldest);
    },
    has: (sessionId) => sessions.has(sessionId),
  };
}
