/**
 * Lets pages of the origins that the operator names use the HTTP half of the SDK: the same list as for sockets
 * (`HOMING_PUBLIC_ORIGINS`). Pages of other origins were refused before (`doors.ts`); the node's own need none of this. No
 * cookie is ever read, so none is allowed: what a page may do is in its token.
 */
import fastifyCors from '@fastify/cors';
import type { FastifyInstance } from 'fastify';

/** How long a browser need not ask again. */
const REMEMBERED_SECONDS = 600;

export function addCors(app: FastifyInstance, publicOrigins: readonly string[]): void {
  if (publicOrigins.length === 0) return;
  app.register(fastifyCors, {
    // As browsers write them: without a slash, in lower case.
    origin: publicOrigins.map((origin) => origin.replace(/\/$/, '').toLowerCase()),
    methods: ['GET', 'POST'],
    allowedHeaders: ['authorization', 'content-type', 'idempotency-key', 'last-event-id'],
    exposedHeaders: ['location', 'retry-after', 'content-disposition'],
    credentials: false,
    maxAge: REMEMBERED_SECONDS,
  });
}
