/**
 * The ops address of a worker: `/livez`, `/readyz` and `/metrics`, and nothing that changes anything. On Node's own server: a
 * worker does without the memory of a web framework, and commands run beside it, so the admin token is not there either.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { messageOf } from '../errors.js';
import { createDoors } from '../gateway/doors.js';

const HEADERS_WITHIN_MS = 5_000;

export interface WorkerDoorOptions {
  readonly workerId: string;
  readonly version: string;
  readonly host: string;
  /** 0 means any. */
  readonly port: number;
  /** Asked for by `/metrics`; without it the door is for loopback only. */
  readonly metricsToken?: string | undefined;
  checkRedis(): Promise<string>;
  /** `ok`, or why no job is taken. */
  jobs(): string;
  /** Prometheus text. */
  dump(): Promise<string>;
}

/** Listens when it resolves. @throws Error with a code (EADDRINUSE …) */
export async function openWorkerDoor(
  options: WorkerDoorOptions,
): Promise<{ readonly opsUrl: string; close(): Promise<void> }> {
  const { workerId, version, host, port, metricsToken } = options;
  const doors = createDoors({ host, publicOrigins: [] });
  const server = createServer((request, response) => {
    answer(request).then(
      ([status, body]) => send(response, status, body),
      (error) => send(response, 500, { status: messageOf(error) }),
    );
  });
  server.headersTimeout = HEADERS_WITHIN_MS;
  server.requestTimeout = HEADERS_WITHIN_MS;

  async function answer({ method, url = '/', headers }: IncomingMessage): Promise<[number, object | string]> {
    if (!doors.hostFits(headers.host) || headers.origin !== undefined) return [403, { status: 'not served here' }];
    if (method !== 'GET' && method !== 'HEAD') return [405, { status: 'only read here' }];
    switch (url.split('?', 1)[0]) {
      // A process that answers is alive: ending it because Redis is away would end its commands, which go on without.
      case '/livez':
        return [200, { status: 'ok', workerId, version }];
      case '/readyz': {
        const checks = { redis: await options.checkRedis(), jobs: options.jobs() };
        const ready = Object.values(checks).every((check) => check === 'ok');
        return [ready ? 200 : 503, { status: ready ? 'ok' : 'not ready', checks }];
      }
      case '/metrics':
        if (!mayRead(headers.authorization)) return [401, { status: 'the metrics token is missing or wrong' }];
        return [200, await options.dump()];
      default:
        return [404, { status: 'there is no such route' }];
    }
  }

  function mayRead(authorization = ''): boolean {
    if (metricsToken === undefined) return true;
    const digest = (text: string) => createHash('sha256').update(text).digest();
    return timingSafeEqual(digest(authorization), digest(`Bearer ${metricsToken}`));
  }

  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return {
    opsUrl: `http://${name}:${address.port}`,
    async close() {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

function send(response: ServerResponse, status: number, body: object | string): void {
  const isText = typeof body === 'string';
  response.writeHead(status, {
    'content-type': isText ? 'text/plain; version=0.0.4; charset=utf-8' : 'application/json; charset=utf-8',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
  response.end(isText ? body : JSON.stringify(body));
}
