/** Conversations over HTTP: lists of sessions and commands, and one stream of events for all of its commands. */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { parseCursor } from '../domain/conversation-cursor.js';
import { AppError } from '../errors.js';
import { httpRoutes } from '../protocol/http.js';
import { hasScope } from '../protocol/token.js';
import { placeFor, requireScope } from './access.js';
import { conversationEvents } from './conversation-events.js';
import type { Node } from './handlers/context.js';
import { principalFor } from './http-commands.js';
import { claimsOf, parse } from './http-parse.js';
import { showAll } from './shown.js';

const MAX_OFFSET = 1_000_000;
const offset = z.coerce.number().int().min(0).max(MAX_OFFSET);

export function addConversationRoutes(app: FastifyInstance, node: Node): void {
  const { ports, streams } = node;
  const { commands, sessions, feed } = ports;

  app.get('/v1/conversations/:conversation/sessions', async (request) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'read');
    const { conversation } = parse(httpRoutes.listSessions.params, request.params);
    const { cursor, limit, principal } = parse(httpRoutes.listSessions.query, request.query);
    const place = placeFor(claims, conversation, principalFor(claims, principal));
    const found = await sessions.list(
      place,
      parse(z.object({ cursor: offset }), { cursor: cursor ?? 0 }).cursor,
      limit,
    );
    return { sessions: found.sessions, ...(found.next === undefined ? {} : { next: String(found.next) }) };
  });

  app.get('/v1/conversations/:conversation/commands', async (request) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'read');
    const { conversation } = parse(httpRoutes.listCommands.params, request.params);
    const { principal, ...query } = parse(httpRoutes.listCommands.query, request.query);
    const place = placeFor(claims, conversation, principalFor(claims, principal));
    const page = await commands.list(place, query);
    return { ...page, commands: await showAll(ports, place.tenant, page.commands) };
  });

  app.get('/v1/conversations/:conversation/events', async (request, reply) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'read');
    const { params, query, headers } = httpRoutes.followConversation;
    const { conversation } = parse(params, request.params);
    const { principal, cursor } = parse(query, request.query);
    const { 'last-event-id': lastEventId } = parse(headers, request.headers);
    const { tag } = placeFor(claims, conversation);
    const everybody = principal === undefined && hasScope(claims, 'delegate');
    const scope = everybody ? { tag } : { tag, principal: principalFor(claims, principal) };
    // An empty one is what an EventSource sends that saw no event with an id.
    const text = lastEventId || cursor;
    const from = text === undefined ? undefined : parseCursor(tag, text);
    if (text !== undefined && from === undefined) {
      throw new AppError('INVALID_PARAMS', 'cursor: must be the id of an event of this conversation', {
        field: 'cursor',
      });
    }
    const body = streams.open(claims, (pace) =>
      conversationEvents({ commands, feed, now: ports.now }, scope, from, pace),
    );
    return streams.headers(reply).send(body);
  });
}
