/** From an HTTP upgrade to a connection: everything that can be refused is refused before, with an HTTP status. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { AppError, ERROR_CODES } from '../errors.js';
import { CLOSE } from '../protocol/close-codes.js';
import { LIMITS } from '../protocol/limits.js';
import type { Claims } from '../protocol/token.js';
import { type Connection, type ConnectionPorts, createConnection, type Guest } from './connection.js';
import type { Doors } from './doors.js';
import type { Node } from './handlers/context.js';
import type { Seat } from './seats.js';
import { bearerToken } from './tokens.js';

const PATH = '/v1/ws';

export interface Upgrades {
  handle(request: IncomingMessage, stream: Duplex, head: Buffer): void;
  readonly connections: ReadonlySet<Connection>;
  /** Refuses new ones from now on. */
  stop(): void;
  close(): void;
}

class Refused extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export function createUpgrades(node: Node, doors: Doors): Upgrades {
  const connections = new Set<Connection>();
  let stopped = false;
  const ports: ConnectionPorts = {
    node,
    beats: {
      ...{ heartbeatMs: node.options.heartbeatMs, ticks: node.ticks, busDown: node.attachedPorts.busDown },
      ...{ now: node.ports.now, random: () => node.ports.chance.random() },
    },
    gone(connection) {
      connections.delete(connection);
      node.meter.gauge('homing_connections', connections.size);
    },
  };
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: node.options.maxFrameBytes,
    handleProtocols: (offered) => (offered.has(LIMITS.subprotocol) ? LIMITS.subprotocol : false),
  });

  const ignore = () => undefined;

  async function admit(request: IncomingMessage, address: string): Promise<Claims | undefined> {
    const { host, origin, authorization } = request.headers;
    if (new URL(request.url ?? '/', 'http://node').pathname !== PATH) throw new Refused(404, 'not found');
    if (stopped) throw new Refused(503, 'the node is stopping');
    if (!doors.hostFits(host)) throw new Refused(403, 'this host name is not served here');
    if (!doors.originFits(origin, host)) throw new Refused(403, 'this origin is not allowed');
    const token = bearerToken(authorization);
    // Browsers always send an origin and can not send the header; everyone else can.
    if (token === undefined && (origin !== undefined || node.verifier.anonymous)) return undefined;
    return node.attempts.guard(address, token, () => node.verifier.verify(token));
  }

  async function upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): Promise<void> {
    const address = node.addressOf(request);
    let claims: Claims | undefined;
    let seat: Seat;
    try {
      claims = await admit(request, address);
      seat = node.seats.enter(address);
    } catch (error) {
      const ours = error instanceof AppError ? error : undefined;
      const status = ours === undefined ? (error as Refused).status : ERROR_CODES[ours.code].status;
      node.audit.note({ what: 'attach', address, result: ours?.code ?? 'FORBIDDEN' });
      refuse(stream, status ?? 500, error instanceof Error ? error.message : 'refused', ours?.retryAfterMs);
      return;
    }
    // Not `once`, which costs every connection an object more: `leave` is idempotent.
    stream.on('close', () => seat.leave());
    if (stream.destroyed) return seat.leave();
    server.handleUpgrade(request, stream, head, (socket) =>
      accept(socket, stream as Socket, { claims, address, seat }),
    );
  }

  function accept(socket: WebSocket, stream: Socket, guest: Guest): void {
    // ws reports a peer's faults (oversize, bad frames) here and closes by itself with the right code.
    socket.on('error', ignore);
    if (socket.protocol !== LIMITS.subprotocol) {
      socket.close(CLOSE.VERSION, `the subprotocol must be ${LIMITS.subprotocol}`);
      setTimeout(() => socket.terminate(), 1_000).unref();
      return;
    }
    stream.setNoDelay(true);
    connections.add(createConnection(ports, socket, stream, guest));
    node.meter.gauge('homing_connections', connections.size);
  }

  return {
    handle(request, stream, head) {
      // Before anything asynchronous: a peer that resets the connection meanwhile must not end the process.
      stream.on('error', () => stream.destroy());
      void upgrade(request, stream, head);
    },
    connections,
    stop() {
      stopped = true;
    },
    close: () => server.close(),
  };
}

function refuse(stream: Duplex, status: number, message: string, retryAfterMs?: number): void {
  if (stream.destroyed) return;
  const body = JSON.stringify({ message });
  const retryAfter = retryAfterMs === undefined ? '' : `Retry-After: ${Math.ceil(retryAfterMs / 1_000)}\r\n`;
  stream.end(
    `HTTP/1.1 ${status} Refused\r\nConnection: close\r\n${retryAfter}Content-Type: application/json\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
