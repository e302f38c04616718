/**
 * Shows a client that the line is alive, and finds out when its side is not: `session.heartbeat` and a ping each
 * interval; 4002 after four intervals in which neither a pong came nor the peer took a byte.
 */
import type { WebSocket } from 'ws';
import { CLOSE } from '../protocol/close-codes.js';
import type { SessionId } from '../protocol/ids.js';
import type { AttachedSession, Delivery } from './attached-session.js';
import type { Ticks } from './ticks.js';

const MISSED_INTERVALS = 4;

export function createHeartbeat(options: {
  readonly socket: WebSocket;
  readonly heartbeatMs: number;
  readonly ticks: Pick<Ticks, 'after'>;
  readonly delivery: Pick<Delivery, 'notify' | 'end'>;
  /** What waits for the peer, and what it took so far. */
  readonly outbox: { waitingBytes(): number; takenBytes(): number };
  session(): AttachedSession | undefined;
  busDown(sessionId: SessionId): boolean;
  random(): number;
}): { close(): void } {
  const { socket, heartbeatMs, ticks, delivery, outbox, session, busDown, random } = options;
  let silentIntervals = 0;
  /** Taken so far when something was left waiting; undefined when nothing was. */
  let takenBefore: number | undefined;
  let callOff = () => {};
  let dueAtMs = 0;

  const alive = () => {
    silentIntervals = 0;
  };
  socket.on('pong', alive);
  socket.on('message', alive);

  function beatIn(waitMs: number): void {
    dueAtMs = performance.now() + waitMs;
    callOff = ticks.after(waitMs, beat);
  }
  // Tabs that came back together do not beat together.
  const beatLater = () => beatIn(heartbeatMs * (0.5 + random() / 2));

  function beat(): void {
    // This process stood still, and its timers run before it reads: another node may have the session by now, and says so first.
    if (performance.now() - dueAtMs > heartbeatMs) {
      beatLater();
      return;
    }
    // Bytes count only behind a backlog: the kernel takes a few for a peer that is long gone.
    if (takenBefore !== undefined && outbox.takenBytes() > takenBefore) silentIntervals = 0;
    takenBefore = outbox.waitingBytes() > 0 ? outbox.takenBytes() : undefined;
    if (silentIntervals >= MISSED_INTERVALS) {
      delivery.end(CLOSE.NO_HEARTBEAT, 'no sign of life');
      return;
    }
    silentIntervals += 1;
    socket.ping();
    const attached = session();
    if (attached !== undefined) {
      delivery.notify('session.heartbeat', {
        heads: attached.heads(),
        bus: busDown(attached.sessionId) ? 'down' : 'ok',
      });
    }
    beatIn(heartbeatMs);
  }
  beatLater();

  return { close: () => callOff() };
}
