/** From an HTTP upgrade to a connection: everything that can be refused is refused before, with an HTTP status. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { AppError, ERROR_CODES } from '../errors.js';
import { CLOSE } from '../protocol/close-codes.js';
import { LIMITS } from '../protocol/limits.js';
import type { Claims } from '../protocol/token.js';
import { type Connection, createConnection } from './connection.js';
import type { Doors } from './doors.js';
import type { Node } from './handlers/context.js';
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
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: node.options.maxFrameBytes,
    handleProtocols: (offered) => (offered.has(LIMITS.subprotocol) ? LIMITS.subprotocol : false),
  });

  async function admit(request: IncomingMessage): Promise<Claims | undefined> {
    const { host, origin, authorization } = request.headers;
    if (new URL(request.url ?? '/', 'http://node').pathname !== PATH) throw new Refused(404, 'not found');
    if (stopped) throw new Refused(503, 'the node is stopping');
    if (!doors.hostFits(host)) throw new Refused(403, 'this host name is not served here');
    if (!doors.originFits(origin, host)) throw new Refused(403, 'this origin is not allowed');
    const token = bearerToken(authorization);
    if (token !== undefined) return node.verifier.verify(token);
    // Browsers always send an origin and can not send the header; everyone else can.
    if (origin === undefined && !node.verifier.anonymous) throw new Refused(401, 'a Bearer token is required');
    return undefined;
  }

  async function upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): Promise<void> {
    let claims: Claims | undefined;
    try {
      claims = await admit(request);
    } catch (error) {
      const status = error instanceof AppError ? ERROR_CODES[error.code].status : (error as Refused).status;
      refuse(stream, status ?? 500, error instanceof Error ? error.message : 'refused');
      return;
    }
    if (stream.destroyed) return;
    server.handleUpgrade(request, stream, head, (socket) => accept(socket, stream as Socket, claims));
  }

  function accept(socket: WebSocket, stream: Socket, claims: Claims | undefined): void {
    // ws reports a peer's faults (oversize, bad frames) here and closes by itself with the right code.
    socket.on('error', () => undefined);
    if (socket.protocol !== LIMITS.subprotocol) {
      socket.close(CLOSE.VERSION, `the subprotocol must be ${LIMITS.subprotocol}`);
      setTimeout(() => socket.terminate(), 1_000).unref();
      return;
    }
    stream.setNoDelay(true);
    const connection = createConnection(node, socket, stream, claims);
    connections.add(connection);
    node.meter.gauge('homing_connections', connections.size);
    void connection.gone.then(() => {
      connections.delete(connection);
      node.meter.gauge('homing_connections', connections.size);
    });
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

function refuse(stream: Duplex, status: number, message: string): void {
  if (stream.destroyed) return;
  const body = JSON.stringify({ message });
  stream.end(
    `HTTP/1.1 ${status} Refused\r\nConnection: close\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
