/** A fastify server with our errors, limits and guards; the public one and the ops one are made alike. */
import { createHash, timingSafeEqual } from 'node:crypto';
import fastify, { type FastifyInstance } from 'fastify';
import type { Log } from '../domain/ports.js';
import { AppError, ERROR_CODES, messageOf } from '../errors.js';
import { LIMITS } from '../protocol/limits.js';
import type { Doors } from './doors.js';

export function createHttpServer(log: Log, doors: Doors): FastifyInstance {
  const app = fastify({
    logger: false,
    bodyLimit: LIMITS.maxBodyBytes,
    requestTimeout: 30_000,
    forceCloseConnections: true,
    // Ids are never decoded from long paths.
    routerOptions: { maxParamLength: 512 },
  });

  app.addHook('onRequest', async (request, reply) => {
    const { host, origin } = request.headers;
    if (doors.hostFits(host) && doors.originFits(origin, host)) return;
    await reply.code(403).send({ code: 'FORBIDDEN', message: 'this host or origin is not allowed', retryable: false });
  });

  app.setNotFoundHandler((_request, reply) =>
    reply.code(404).send({ code: 'NOT_FOUND', message: 'there is no such route', retryable: false }),
  );

  app.setErrorHandler((error: unknown, request, reply) => {
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
      // Fastify's own: a body that is not JSON, too large, or of another type.
      return reply.code(status).send({ code: 'INVALID_PARAMS', message: messageOf(error), retryable: false });
    }
    log.error({ method: request.method, route: request.routeOptions.url, fault: messageOf(error) }, 'a request failed');
    return reply.code(500).send({ code: 'INTERNAL', message: 'internal error', retryable: false });
  });

  return app;
}

/** Whether two secrets are the same, in a time that tells nothing of where they differ. */
export function sameSecret(given: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}
