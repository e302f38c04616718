/**
 * Which requests leave a line in the audit log, for both doors: a table with every method and every route, so that a new one has
 * to be thought of. What a delegate does is always noted, reading too, and for whom.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Audit, AuditLine } from '../domain/audit.js';
import { AppError } from '../errors.js';
import { type HttpRouteName, httpRoutes } from '../protocol/http.js';
import type { MethodName } from '../protocol/methods.js';
import { type Claims, hasScope } from '../protocol/token.js';

/** `undefined`: only when a delegate does it. */
const OF_METHOD: Readonly<Record<MethodName, string | undefined>> = {
  'session.open': 'attach',
  'session.resume': 'attach',
  'session.close': 'close',
  'session.touch': undefined,
  'session.refresh': 'refresh',
  'command.run': 'submit',
  'command.list': undefined,
  'command.get': undefined,
  'command.log': undefined,
  'command.kill': 'kill',
  'command.write': 'stdin',
  'command.resize': 'resize',
  'command.adopt': 'adopt',
  'command.attach': 'view',
  'command.detach': undefined,
};

const OF_ROUTE: Readonly<Record<HttpRouteName, string | undefined>> = {
  submitCommand: 'submit',
  getCommand: undefined,
  killCommand: 'kill',
  writeStdin: 'stdin',
  resizeTerminal: 'resize',
  adoptCommand: 'adopt',
  readLog: undefined,
  followCommand: 'view',
  listCommands: undefined,
  listSessions: undefined,
  followConversation: 'view',
  describe: undefined,
};

/** By method and path as fastify writes it. */
const ROUTES = new Map<string, HttpRouteName>(
  (Object.keys(httpRoutes) as HttpRouteName[]).map((name) => {
    const { method, path } = httpRoutes[name];
    return [`${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')}`, name];
  }),
);

const whatOf = (listed: string | undefined, claims: Claims | undefined): string | undefined =>
  listed ?? (claims !== undefined && hasScope(claims, 'delegate') ? 'read' : undefined);

const whoOf = (claims: Claims | undefined): Partial<AuditLine> =>
  claims === undefined
    ? {}
    : { principal: claims.principal, tenant: claims.tenant, insideCommandId: claims.insideCommandId };

const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value.length <= 128 ? value : undefined;

/** What a request is found to be about while it is served. */
export interface Trail {
  claims?: Claims | undefined;
  /** Whose command it is, when that is another's. */
  for?: string | undefined;
}

/** The claims as one request uses them: an act for somebody else is noted in its trail. */
export function withTrail(claims: Claims, trail: Trail): Claims {
  const own: Claims = {
    ...claims,
    actsFor(principal) {
      trail.for = principal;
    },
  };
  trail.claims = own;
  return own;
}

/** One line for a request over a connection, if it is of those that leave one. */
export function noteRequest(
  audit: Audit,
  request: {
    readonly method: MethodName;
    readonly params: unknown;
    readonly result: unknown;
    readonly trail: Trail;
    readonly address: string;
    readonly sessionId: string | undefined;
    readonly conversation: string | undefined;
    readonly outcome: string;
  },
): void {
  const { method, trail, address, outcome } = request;
  const what = whatOf(OF_METHOD[method], trail.claims);
  if (what === undefined) return;
  const params = (request.params ?? {}) as Record<string, unknown>;
  const result = (request.result ?? {}) as Record<string, unknown>;
  audit.note({
    what,
    ...whoOf(trail.claims),
    for: trail.for,
    commandId: text(params.commandId) ?? text(result.commandId),
    sessionId: request.sessionId ?? text(result.sessionId) ?? text(params.sessionId),
    conversation: request.conversation ?? text(params.conversation),
    address,
    result: outcome,
  });
}

/** Lines for what comes over HTTP, when the answer is about to be sent. */
export function auditHttp(
  app: FastifyInstance,
  audit: Audit,
  addressOf: (request: FastifyRequest['raw']) => string,
): { trailOf(request: FastifyRequest): Trail } {
  const trails = new WeakMap<FastifyRequest, Trail>();
  const codes = new WeakMap<FastifyRequest, string>();

  app.addHook('onError', async (request, _reply, error: unknown) => {
    codes.set(request, error instanceof AppError ? error.code : 'INVALID_PARAMS');
  });
  app.addHook('onSend', async (request, reply) => {
    const name = ROUTES.get(`${request.method} ${request.routeOptions.url ?? ''}`);
    if (name !== undefined) note(name, request, reply);
  });

  function note(name: HttpRouteName, request: FastifyRequest, reply: FastifyReply): void {
    const trail = trails.get(request);
    const what = whatOf(OF_ROUTE[name], trail?.claims);
    if (what === undefined) return;
    const params = (request.params ?? {}) as Record<string, unknown>;
    const body = (request.body ?? {}) as Record<string, unknown>;
    const location = text(reply.getHeader('location'));
    audit.note({
      what,
      ...whoOf(trail?.claims),
      for: trail?.for,
      commandId: text(params.id) ?? location?.slice(location.lastIndexOf('/') + 1),
      sessionId: text(body.originSessionId) ?? text(body.sessionId),
      conversation: text(params.conversation) ?? text(body.conversation),
      address: addressOf(request.raw),
      result: reply.statusCode < 400 ? 'ok' : (codes.get(request) ?? String(reply.statusCode)),
    });
  }

  return {
    trailOf(request) {
      const known = trails.get(request);
      if (known !== undefined) return known;
      const fresh: Trail = {};
      trails.set(request, fresh);
      return fresh;
    },
  };
}
