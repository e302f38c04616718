/** The HTTP door: the same rules as over a connection, for callers without a session (PROTOCOL section 4). */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Place, SubmitOrigin } from '../domain/ports.js';
import { AppError } from '../errors.js';
import { type CommandId, parseSessionId } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import { describeIssue, methods, submitBody } from '../protocol/methods.js';
import { type Claims, hasScope } from '../protocol/token.js';
import { findCommand, placeFor, requireScope, unknownCommand } from './access.js';
import { killParams } from './handlers/command.js';
import type { Node } from './handlers/context.js';
import { killCommand } from './kill.js';
import { beginView, entryOf, outputBytesOf, readView } from './log-pages.js';
import { checkSpec, commandIdFor, submitCommand } from './submit.js';
import { bearerToken } from './tokens.js';

/** How often a waiting request looks whether its command is over. */
const WAIT_POLL_MS = 200;
const PAGE_BYTES = 128 * 1024;

const idParams = z.object({ id: z.string().max(128) });
const conversationParams = z.object({ conversation: z.string().max(128) });
const pageQuery = z.object({
  cursor: z.string().max(256).optional(),
  limit: z.coerce.number().int().min(1).max(LIMITS.maxPageSize).default(LIMITS.pageSize),
  state: z.enum(['queued', 'running', 'ended']).optional(),
  label: z.string().max(512).optional(),
});
const waitQuery = z.object({ waitMs: z.coerce.number().int().min(0).max(LIMITS.maxWaitMs).default(0) });
const logQuery = z.object({
  fromSeq: z.coerce.number().int().min(0).optional(),
  tailBytes: z.coerce.number().int().min(1).optional(),
  format: z.enum(['text', 'jsonl']).default('text'),
});
const killBody = methods['command.kill'].omit({ commandId: true });
const adoptBody = z.object({ sessionId: z.string().max(128) });

/** @throws AppError INVALID_PARAMS naming the field */
function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const { message, field } = describeIssue(parsed.error);
  throw new AppError('INVALID_PARAMS', message, field === undefined ? {} : { field });
}

export function addHttpRoutes(app: FastifyInstance, node: Node): void {
  const { ports, options } = node;
  const { commands, sessions } = ports;
  const claimsOf = (request: FastifyRequest) => node.verifier.verify(bearerToken(request.headers.authorization));

  app.post('/v1/commands', async (request, reply) => {
    const claims = await claimsOf(request);
    const { conversation, originSessionId, principal, ...body } = parse(submitBody, request.body);
    const key = request.headers['idempotency-key'];
    const spec = { ...body, ...(key === undefined ? {} : { idempotencyKey: parse(idempotencyKey, key) }) };
    checkSpec(claims, spec);
    const { place, origin } = await originOf(node, claims, { conversation, originSessionId, principal });
    const commandId = commandIdFor(place, spec.idempotencyKey, ports.chance);
    const { state } = await submitCommand(ports, { place, commandId, spec, origin });
    if (place.principal !== claims.principal) {
      node.log.info({ commandId, by: claims.principal, for: place.principal }, 'a command was submitted for another');
    }
    return reply.code(202).header('location', `/v1/commands/${commandId}`).send({ commandId, state });
  });

  app.get('/v1/commands/:id', async (request, reply) => {
    const claims = await claimsOf(request);
    requireScope(claims, 'read');
    const { id } = parse(idParams, request.params);
    const { waitMs } = parse(waitQuery, request.query);
    const untilMs = performance.now() + waitMs;
    for (;;) {
      const { record } = await findCommand(commands, claims, id);
      const leftMs = untilMs - performance.now();
      if (record.snapshot.state === 'ended' || leftMs <= 0 || reply.raw.destroyed) return record.snapshot;
      const jittered = WAIT_POLL_MS * (0.75 + ports.chance.random() / 2);
      await new Promise((resolve) => setTimeout(resolve, Math.min(leftMs, jittered)));
    }
  });

  app.post('/v1/commands/:id/kill', async (request) => {
    const claims = await claimsOf(request);
    requireScope(claims, 'kill');
    const { id, record } = await findCommand(commands, claims, parse(idParams, request.params).id);
    const wish = killParams(parse(killBody, request.body ?? {}), options.killGraceMs);
    return killCommand(ports, id, record.snapshot.pool, { ...wish, reason: 'cancelled' });
  });

  app.post('/v1/commands/:id/adopt', async (request) => {
    const claims = await claimsOf(request);
    requireScope(claims, 'run');
    const { id, record } = await findCommand(commands, claims, parse(idParams, request.params).id);
    const sessionId = parseSessionId(parse(adoptBody, request.body).sessionId);
    const place = sessionId === undefined ? undefined : await sessions.place(sessionId);
    const fits = place?.tag === record.tag && place.principal === claims.principal;
    if (sessionId === undefined || !fits) {
      throw new AppError('ORIGIN_UNKNOWN', 'there is no such session', { field: 'sessionId' });
    }
    const { type } = await commands.adopt(id, sessionId, '');
    if (type === 'unknown') throw unknownCommand();
    if (type !== 'adopted') throw new AppError('NOT_OWNER', 'another session owns the command');
    return (await findCommand(commands, claims, id)).record.snapshot;
  });

  app.get('/v1/commands/:id/log', async (request, reply) => {
    const claims = await claimsOf(request);
    requireScope(claims, 'read');
    const { id } = await findCommand(commands, claims, parse(idParams, request.params).id);
    const { fromSeq, tailBytes, format } = parse(logQuery, request.query);
    const tail = fromSeq === undefined && tailBytes !== undefined ? await commands.tailSeq(id, tailBytes) : 0;
    const afterSeq = Math.max(0, fromSeq === undefined ? tail : fromSeq - 1);
    // Stopped by itself when the caller goes away: a page is only read when the one before was taken.
    const body = Readable.from(format === 'text' ? textOf(id, afterSeq) : linesOf(id, afterSeq), { objectMode: false });
    return logReply(reply, format).send(body);
  });

  const logReply = (reply: FastifyReply, format: 'text' | 'jsonl') =>
    reply
      .header('x-content-type-options', 'nosniff')
      .type(format === 'text' ? 'text/plain; charset=utf-8' : 'application/jsonl; charset=utf-8');

  /** The log up to its head at the time of each page; it does not wait for more. */
  async function* pagesOf(id: CommandId, afterSeq: number): AsyncGenerator<readonly string[]> {
    let state = beginView(afterSeq);
    for (;;) {
      const page = await readView(commands, id, state, PAGE_BYTES, ports.now());
      if (page === undefined || page.texts.length === 0) return;
      yield page.texts;
      state = page.state;
      if (page.done || state.sentSeq >= page.headSeq) return;
    }
  }

  async function* linesOf(id: CommandId, afterSeq: number): AsyncGenerator<string> {
    for await (const texts of pagesOf(id, afterSeq)) {
      yield texts.map((text) => `${JSON.stringify(entryOf(text))}\n`).join('');
    }
  }

  async function* textOf(id: CommandId, afterSeq: number): AsyncGenerator<Uint8Array> {
    for await (const texts of pagesOf(id, afterSeq)) {
      const parts = texts.map(outputBytesOf).filter((bytes) => bytes !== undefined);
      if (parts.length > 0) yield Buffer.concat(parts);
    }
  }

  app.get('/v1/conversations/:conversation/sessions', async (request) => {
    const claims = await claimsOf(request);
    requireScope(claims, 'read');
    const place = placeOf(claims, request);
    const { cursor, limit } = parse(pageQuery, request.query);
    const offset = parse(z.coerce.number().int().min(0).max(1_000_000), cursor ?? 0);
    const { sessions: found, next } = await sessions.list(place, offset, limit);
    return { sessions: found, ...(next === undefined ? {} : { next: String(next) }) };
  });

  app.get('/v1/conversations/:conversation/commands', async (request) => {
    const claims = await claimsOf(request);
    requireScope(claims, 'read');
    return commands.list(placeOf(claims, request), parse(pageQuery, request.query));
  });

  const placeOf = (claims: Claims, request: FastifyRequest) =>
    placeFor(claims, parse(conversationParams, request.params).conversation);
}

const idempotencyKey = z.string().min(1).max(LIMITS.maxIdempotencyKeyChars);

/**
 * Whose command it becomes and where it comes from. Only a backend (scope `delegate`) names others; for everyone else
 * another's session does not exist (OW5, IS1).
 * @throws AppError FORBIDDEN, ORIGIN_UNKNOWN
 */
async function originOf(
  node: Node,
  claims: Claims,
  asked: {
    readonly conversation: string;
    readonly originSessionId: string | undefined;
    readonly principal: string | undefined;
  },
): Promise<{ place: Place; origin: SubmitOrigin }> {
  const delegate = hasScope(claims, 'delegate');
  if (asked.principal !== undefined && asked.principal !== claims.principal && !delegate) {
    throw new AppError('FORBIDDEN', 'principal: only a token with the scope "delegate" may name another', {
      field: 'principal',
    });
  }
  const place = placeFor(claims, asked.conversation, asked.principal);
  if (asked.originSessionId === undefined) return { place, origin: { type: 'none' } };

  const unknown = new AppError('ORIGIN_UNKNOWN', 'there is no such origin session', { field: 'originSessionId' });
  const sessionId = parseSessionId(asked.originSessionId);
  const home = sessionId === undefined ? undefined : await node.ports.sessions.place(sessionId);
  if (sessionId === undefined || home === undefined) throw unknown;
  if (home.tenant !== place.tenant || home.conversation !== place.conversation) throw unknown;
  const principal = asked.principal ?? (delegate ? home.principal : claims.principal);
  if (home.principal !== principal) throw unknown;
  return { place: { ...place, principal }, origin: { type: 'named', sessionId } };
}
