/**
 * Shows a client that the line is alive, and finds out when its side is not: `session.heartbeat` and a ping each
 * interval; 4002 after four intervals in which neither a pong came nor the peer took a byte.
 */
import { CLOSE } from '../protocol/close-codes.js';
import type { SessionId } from '../protocol/ids.js';
import type { AttachedSession, Delivery } from './attached-session.js';
import type { Tick, Ticks, Timed } from './ticks.js';

const MISSED_INTERVALS = 4;

export interface HeartbeatPorts {
  readonly heartbeatMs: number;
  readonly ticks: Ticks;
  busDown(sessionId: SessionId): boolean;
  random(): number;
}

/** The connection whose heart beats. */
export interface HeartbeatHost extends Pick<Delivery, 'notify' | 'end'> {
  ping(): void;
  session(): AttachedSession | undefined;
  /** What waits for the peer, and what it took so far. */
  waitingBytes(): number;
  takenBytes(): number;
  /** Called with each beat. */
  onBeat(): void;
}

export interface Heartbeat {
  /** A message or a pong came. */
  alive(): void;
  close(): void;
}

class TickingHeartbeat implements Heartbeat, Timed {
  readonly #ports: HeartbeatPorts;
  readonly #host: HeartbeatHost;
  #silentIntervals = 0;
  /** Taken so far when something was left waiting; undefined when nothing was. */
  #takenBefore: number | undefined;
  #tick: Tick = 0;
  #dueAtMs = 0;

  constructor(ports: HeartbeatPorts, host: HeartbeatHost) {
    this.#ports = ports;
    this.#host = host;
    this.#beatLater();
  }

  alive(): void {
    this.#silentIntervals = 0;
  }

  #beatIn(waitMs: number): void {
    this.#dueAtMs = performance.now() + waitMs;
    this.#tick = this.#ports.ticks.after(waitMs, this);
  }

  /** Tabs that came back together do not beat together. */
  #beatLater(): void {
    const { heartbeatMs, random } = this.#ports;
    this.#beatIn(heartbeatMs * (0.5 + random() / 2));
  }

  onTick(): void {
    const { heartbeatMs, busDown } = this.#ports;
    const host = this.#host;
    host.onBeat();
    // This process stood still, and its timers run before it reads: another node may have the session by now, and says so first.
    if (performance.now() - this.#dueAtMs > heartbeatMs) {
      this.#beatLater();
      return;
    }
    // Bytes count only behind a backlog: the kernel takes a few for a peer that is long gone.
    if (this.#takenBefore !== undefined && host.takenBytes() > this.#takenBefore) this.#silentIntervals = 0;
    this.#takenBefore = host.waitingBytes() > 0 ? host.takenBytes() : undefined;
    if (this.#silentIntervals >= MISSED_INTERVALS) {
      host.end(CLOSE.NO_HEARTBEAT, 'no sign of life');
      return;
    }
    this.#silentIntervals += 1;
    host.ping();
    const attached = host.session();
    if (attached !== undefined) {
      host.notify('session.heartbeat', {
        heads: attached.heads(),
        bus: busDown(attached.sessionId) ? 'down' : 'ok',
      });
    }
    this.#beatIn(heartbeatMs);
  }

  close(): void {
    this.#ports.ticks.callOff(this.#tick, this);
  }
}

export const createHeartbeat = (ports: HeartbeatPorts, host: HeartbeatHost): Heartbeat =>
  new TickingHeartbeat(ports, host);
