/** Who may see the operators' pages: the admin token, as Bearer or as the password of Basic, compared in constant time. */
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Audit } from '../domain/audit.js';
import { sameSecret } from './http-server.js';
import { bearerToken } from './tokens.js';

/** Everything below these paths needs the admin token. */
const GUARDED = /^\/admin(\/|\?|$)/;
const DRAIN = /^\/admin\/(?:nodes|workers)\/([A-Za-z0-9_]{1,64})\/drain(?:\?|$)/;

export function guardAdmin(
  app: FastifyInstance,
  adminToken: string | undefined,
  audit: Audit,
  addressOf: (request: IncomingMessage) => string,
): void {
  app.addHook('onRequest', async (request, reply) => {
    if (!GUARDED.test(request.url)) return;
    if (adminToken === undefined) {
      const message = 'there is no admin token: set HOMING_ADMIN_TOKEN to have these pages';
      await reply.code(404).send({ code: 'NOT_FOUND', message, retryable: false });
      return;
    }
    const given = passwordOf(request.headers.authorization);
    if (given !== undefined && sameSecret(given, adminToken)) return;
    const body = { code: 'UNAUTHENTICATED', message: 'the admin token is missing or wrong', retryable: false };
    await reply.code(401).header('www-authenticate', 'Basic realm="homing", charset="UTF-8"').send(body);
  });
  app.addHook('onSend', async (request, reply) => {
    if (!GUARDED.test(request.url)) return;
    const drained = DRAIN.exec(request.url)?.[1];
    if (request.method === 'POST' && drained !== undefined) {
      const done = reply.statusCode < 400;
      const result = done ? 'ok' : reply.statusCode === 401 ? 'UNAUTHENTICATED' : String(reply.statusCode);
      const principal = reply.statusCode === 401 ? undefined : 'admin';
      audit.note({ what: 'drain', principal, target: drained, address: addressOf(request.raw), result });
    }
    void reply.header('cache-control', 'no-store').header('x-content-type-options', 'nosniff');
    // Not `no-referrer`: the button of a page would then send `Origin: null`, which is nobody's.
    void reply.header('referrer-policy', 'same-origin').header('x-frame-options', 'DENY');
  });
}

function passwordOf(header: string | undefined): string | undefined {
  if (header !== undefined && /^basic /i.test(header)) {
    const pair = Buffer.from(header.slice('basic '.length), 'base64').toString('utf8');
    return pair.slice(pair.indexOf(':') + 1);
  }
  return bearerToken(header);
}
