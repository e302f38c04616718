/** Submitting, getting, ending, writing to and adopting commands over HTTP. */
import type { FastifyInstance } from 'fastify';
import type { Place, SubmitOrigin } from '../domain/ports.js';
import { AppError } from '../errors.js';
import { httpRoutes } from '../protocol/http.js';
import { parseSessionId } from '../protocol/ids.js';
import { type Claims, hasScope } from '../protocol/token.js';
import { findReadable, placeFor, requireScope, unknownCommand } from './access.js';
import { killParams } from './handlers/command.js';
import type { Node } from './handlers/context.js';
import { claimsOf, parse } from './http-parse.js';
import { resizeTerminal, writeTo } from './input.js';
import { killCommand } from './kill.js';
import { requireRate } from './rates.js';
import { show } from './shown.js';
import { answerTo, checkSpec, commandIdFor, submitCommand } from './submit.js';

/** How often a waiting request looks whether its command is over. */
const WAIT_POLL_MS = 200;

export function addCommandRoutes(app: FastifyInstance, node: Node): void {
  const { ports, options } = node;
  const { commands, sessions } = ports;
  const {
    submitCommand: submit,
    getCommand,
    killCommand: kill,
    adoptCommand,
    writeStdin,
    resizeTerminal: resize,
  } = httpRoutes;

  app.post('/v1/commands', async (request, reply) => {
    const claims = await claimsOf(node, request);
    const asked = claims.insideCommandId === undefined ? request.body : fromInside(claims, request.body);
    const { conversation, originSessionId, principal, ...body } = parse(submit.body, asked);
    const { 'idempotency-key': key } = parse(submit.headers, request.headers);
    const spec = { ...body, ...(key === undefined ? {} : { idempotencyKey: key }) };
    checkSpec(claims, spec);
    await requireRate(node.rates, claims, 'runs');
    const { place, origin } = await originOf(node, claims, { conversation, originSessionId, principal });
    const commandId = commandIdFor(place, spec.idempotencyKey, ports.chance);
    const { traceparent } = request.headers;
    const accepted = await submitCommand(ports, {
      ...{ place, commandId, spec, origin },
      traceparent: typeof traceparent === 'string' ? traceparent : undefined,
    });
    if (place.principal !== claims.principal) {
      claims.actsFor?.(place.principal);
      node.log.info({ commandId, by: claims.principal, for: place.principal }, 'a command was submitted for another');
    }
    return reply
      .code(202)
      .header('location', `/v1/commands/${commandId}`)
      .send(await answerTo(ports, place, commandId, spec, accepted));
  });

  app.get('/v1/commands/:id', async (request, reply) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'read');
    const { id } = parse(getCommand.params, request.params);
    const { waitMs } = parse(getCommand.query, request.query);
    const untilMs = performance.now() + waitMs;
    for (;;) {
      const { record } = await findReadable(commands, claims, id);
      const leftMs = untilMs - performance.now();
      if (record.snapshot.state === 'ended' || leftMs <= 0 || reply.raw.destroyed) {
        return show(ports, record.tenant, record.snapshot);
      }
      const jittered = WAIT_POLL_MS * (0.75 + ports.chance.random() / 2);
      await new Promise((resolve) => setTimeout(resolve, Math.min(leftMs, jittered)));
    }
  });

  app.post('/v1/commands/:id/kill', async (request) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'kill');
    await requireRate(node.rates, claims, 'kills');
    const { id, record } = await findReadable(commands, claims, parse(kill.params, request.params).id);
    const wish = killParams(parse(kill.body, request.body ?? {}), options.killGraceMs);
    if (record.principal !== claims.principal) {
      node.log.info({ commandId: id, by: claims.principal, for: record.principal }, 'a command was ended for another');
    }
    return killCommand(ports, id, record.snapshot.pool, { ...wish, reason: 'cancelled' });
  });

  /** Not while a connection of the owner may be typing, unless a backend or the command that started it does it. */
  const writerOf = (claims: Claims) =>
    ({ type: hasScope(claims, 'delegate') || claims.insideCommandId !== undefined ? 'any' : 'ownerless' }) as const;

  app.post('/v1/commands/:id/stdin', async (request) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'run');
    await requireRate(node.rates, claims, 'writes');
    const { id } = await findReadable(commands, claims, parse(writeStdin.params, request.params).id);
    return writeTo(commands, id, writerOf(claims), parse(writeStdin.body, request.body));
  });

  app.post('/v1/commands/:id/resize', async (request) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'run');
    const { id } = await findReadable(commands, claims, parse(resize.params, request.params).id);
    await resizeTerminal(commands, id, writerOf(claims), parse(resize.body, request.body));
    return {};
  });

  app.post('/v1/commands/:id/adopt', async (request) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'run');
    const { id, record } = await findReadable(commands, claims, parse(adoptCommand.params, request.params).id);
    const sessionId = parseSessionId(parse(adoptCommand.body, request.body).sessionId);
    const place = sessionId === undefined ? undefined : await sessions.place(sessionId);
    // The session must be of the command's own principal, whoever asks for it.
    const fits = place?.tag === record.tag && place.principal === record.principal;
    if (sessionId === undefined || !fits) {
      throw new AppError('ORIGIN_UNKNOWN', 'there is no such session', { field: 'sessionId' });
    }
    const { type } = await commands.adopt(id, sessionId, '');
    if (type === 'unknown') throw unknownCommand();
    if (type !== 'adopted') throw new AppError('NOT_OWNER', 'another session owns the command');
    const { record: adopted } = await findReadable(commands, claims, id);
    return show(ports, adopted.tenant, adopted.snapshot);
  });
}

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
  const { insideCommandId, ...outside } = claims;
  if (insideCommandId !== undefined) {
    const named = asked.originSessionId !== undefined || principalFor(claims, asked.principal) !== claims.principal;
    if (named) throw new AppError('FORBIDDEN', 'a command starts others with its own origin');
    const place = placeFor(outside, asked.conversation);
    return { place, origin: { type: 'inherited', parentCommandId: insideCommandId } };
  }
  const delegate = hasScope(claims, 'delegate');
  const place = placeFor(claims, asked.conversation, principalFor(claims, asked.principal));
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

/** What a command need not say when it starts another: they are of one conversation, and of one pool unless it says so. */
function fromInside({ conversations, pools }: Claims, body: unknown): unknown {
  if (typeof body !== 'object' || body === null) return body;
  return { conversation: conversations?.[0], pool: pools[0], ...body };
}

/** Oneself, or the principal that a delegate names. @throws AppError FORBIDDEN */
export function principalFor(claims: Claims, asked: string | undefined): string {
  if (asked === undefined || asked === claims.principal || hasScope(claims, 'delegate'))
    return asked ?? claims.principal;
  throw new AppError('FORBIDDEN', 'principal: only a token with the scope "delegate" may name another', {
    field: 'principal',
  });
}
