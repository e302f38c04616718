/** A fastify server with our errors, limits and guards; the public one and the ops one are made alike. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import fastify, { type FastifyInstance } from 'fastify';
import type { Log } from '../domain/ports.js';
import { AppError, ERROR_CODES, messageOf } from '../errors.js';
import { LIMITS } from '../protocol/limits.js';
import type { Doors } from './doors.js';

const HEADERS = {
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

const UNWANTED_WITHIN_MS = 2_000;

/** @param headersWithinMs from the beginning of a connection to the end of its request's headers */
export function createHttpServer(
  log: Log,
  doors: Doors,
  headersWithinMs: number = LIMITS.headersWithinMs,
): FastifyInstance {
  const app = fastify({
    logger: false,
    bodyLimit: LIMITS.maxBodyBytes,
    requestTimeout: LIMITS.bodyWithinMs,
    // Who sends its headers slowly, or nothing at all, holds a socket for this long at most.
    http: {
      headersTimeout: headersWithinMs,
      connectionsCheckingInterval: headersWithinMs / 5,
      maxHeaderSize: LIMITS.maxHeaderBytes,
    },
    forceCloseConnections: true,
    // Ids are never decoded from long paths.
    routerOptions: { maxParamLength: 512 },
  });

  app.addHook('onRequest', async (request, reply) => {
    const { host, origin } = request.headers;
    if (doors.hostFits(host) && doors.originFits(origin, host)) return;
    await reply.code(403).send({ code: 'FORBIDDEN', message: 'this host or origin is not allowed', retryable: false });
  });

  // For everything that has no policy of its own: nothing of it is a page, and it belongs into nobody's frame.
  app.addHook('onSend', async (_request, reply) => {
    for (const [name, value] of Object.entries(HEADERS))
      if (!reply.hasHeader(name) && !reply.raw.hasHeader(name)) void reply.header(name, value);
  });

  app.setNotFoundHandler((_request, reply) =>
    reply.code(404).send({ code: 'NOT_FOUND', message: 'there is no such route', retryable: false }),
  );

  app.setErrorHandler(async (error: unknown, request, reply) => {
    if (error instanceof AppError) {
      const { code, message, retryable, field, retryAfterMs } = error;
      if (retryAfterMs !== undefined) void reply.header('retry-after', Math.ceil(retryAfterMs / 1_000));
      const extra = {
        ...(field === undefined ? {} : { field }),
        ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
      };
      return reply.code(ERROR_CODES[code].status).send({ code, message, retryable, ...extra });
    }
    const status = (error as { statusCode?: unknown }).statusCode;
    if (typeof status === 'number' && status >= 400 && status < 500) {
      // Closed while the client still sends, its connection is reset and the answer lost.
      if (status === 413) await readAway(request.raw);
      // Fastify's own: a body that is not JSON, too large, or of another type.
      return reply.code(status).send({ code: 'INVALID_PARAMS', message: messageOf(error), retryable: false });
    }
    log.error({ method: request.method, route: request.routeOptions.url, fault: messageOf(error) }, 'a request failed');
    return reply.code(500).send({ code: 'INTERNAL', message: 'internal error', retryable: false });
  });

  return app;
}

/** Until its end, its connection's, or what a client may take for a body that nobody wants. Keeps nothing. */
async function readAway(body: IncomingMessage): Promise<void> {
  if (body.complete || body.destroyed) return;
  const over = new AbortController();
  const end = () => over.abort();
  body.once('end', end).once('close', end).resume();
  await sleep(UNWANTED_WITHIN_MS, undefined, { signal: over.signal }).catch(() => {});
}

/** Whether two secrets are the same, in a time that tells nothing of where they differ. */
export function sameSecret(given: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}
