/**
 * Who asks, in the isolation matrix, and the exact answer each request has for each of them. `sees`: it is answered and shows what
 * is ann's; `ok`: it is answered, and nothing of hers is in it; otherwise the code it is refused with.
 */
import type { HttpRouteName } from '../../src/protocol/http.js';
import type { MethodName } from '../../src/protocol/methods.js';

export const CALLERS = {
  'no token': 'no token at all',
  expired: "ann's token, over",
  forged: "ann's claims, signed with another secret",
  unsigned: "ann's claims with `alg: none`",
  tenant: 'another tenant, same names',
  principal: 'another principal of the conversation',
  conversation: "ann's token for another conversation",
  reader: "ann's token with the scope `read` alone",
  delegate: 'a delegate outside of its conversations',
  closed: 'ann, of whose session the request speaks when it is closed',
  stale: 'ann, from a connection whose session is attached elsewhere',
  stranger: "the token of another command of ann's",
  child: 'the token of a command, for the command that started it',
  ann: 'ann herself, from the session that owns the command',
} as const;
export type Caller = keyof typeof CALLERS;

/** `-`: the caller can not be told from ann at this door, since no session is named. */
export type Row = Readonly<Record<Caller, string>>;

/** Without a session a connection is asked for one, whoever it is. */
const OUTSIDE = {
  'no token': 'UNAUTHENTICATED',
  expired: 'UNAUTHENTICATED',
  forged: 'UNAUTHENTICATED',
  unsigned: 'UNAUTHENTICATED',
  stranger: 'UNAUTHENTICATED',
  child: 'UNAUTHENTICATED',
};
const BAD_TOKEN = { ...OUTSIDE, expired: 'TOKEN_EXPIRED' };
/** Of a command: it does not exist for them. */
const UNKNOWN = {
  tenant: 'UNKNOWN_COMMAND',
  principal: 'UNKNOWN_COMMAND',
  conversation: 'UNKNOWN_COMMAND',
  delegate: 'UNKNOWN_COMMAND',
};
const everyone = (answer: string) => ({
  ...{ tenant: answer, principal: answer, conversation: answer, reader: answer, delegate: answer },
});

/** Of a connection that speaks for its own session only: what a stranger does there does nothing to ann's. */
const OWN_SESSION: Row = { ...OUTSIDE, ...everyone('ok'), closed: '4504', stale: 'ok', ann: 'ok' };
const READS: Row = { ...OUTSIDE, ...UNKNOWN, reader: 'sees', closed: '4504', stale: 'sees', ann: 'sees' };

export const METHOD_ROWS: Readonly<Record<MethodName, Row>> = {
  // Into ann's conversation, each with its own token.
  'session.open': {
    ...{ ...BAD_TOKEN, tenant: 'ok', principal: 'ok', conversation: 'FORBIDDEN', reader: 'ok', delegate: 'FORBIDDEN' },
    ...{ closed: 'ok', stale: '-32600', ann: 'ok' },
  },
  // With ann's session id and her true resume token.
  'session.resume': {
    ...{ ...BAD_TOKEN, tenant: 'RESUME_DENIED', principal: 'RESUME_DENIED', conversation: 'RESUME_DENIED' },
    ...{ reader: 'sees', delegate: 'RESUME_DENIED', closed: 'SESSION_GONE', stale: '-32600', ann: 'sees' },
  },
  'session.close': { ...OWN_SESSION, stale: 'SESSION_IN_USE' },
  'session.touch': OWN_SESSION,
  // On ann's own connection, with the token of the caller.
  'session.refresh': {
    ...{ ...BAD_TOKEN, 'no token': 'INVALID_PARAMS', closed: '4504', stale: 'ok', ann: 'ok' },
    ...{ ...everyone('FORBIDDEN'), reader: 'ok' },
  },
  'command.run': { ...OWN_SESSION, reader: 'FORBIDDEN', stale: 'SESSION_IN_USE' },
  'command.list': { ...OWN_SESSION, reader: 'sees', stale: 'sees', ann: 'sees' },
  'command.get': READS,
  'command.log': READS,
  'command.attach': READS,
  'command.detach': { ...READS, reader: 'ok', stale: 'ok', ann: 'ok' },
  'command.kill': { ...READS, reader: 'FORBIDDEN', stale: 'ok', ann: 'ok' },
  'command.write': { ...READS, reader: 'FORBIDDEN', stale: 'NOT_OWNER', ann: 'ok' },
  'command.resize': { ...READS, reader: 'FORBIDDEN', stale: 'NOT_OWNER', ann: 'ok' },
  'command.adopt': { ...READS, reader: 'FORBIDDEN', stale: 'SESSION_IN_USE', ann: 'sees' },
};

const HTTP_BAD = {
  ...{
    'no token': 'UNAUTHENTICATED',
    expired: 'TOKEN_EXPIRED',
    forged: 'UNAUTHENTICATED',
    unsigned: 'UNAUTHENTICATED',
  },
};
/** No session is part of the request. */
const NO_SESSION = { closed: '-', stale: '-' };
const INSIDE_UNKNOWN = { stranger: 'UNKNOWN_COMMAND', child: 'UNKNOWN_COMMAND' };
const INSIDE_FORBIDDEN = { stranger: 'FORBIDDEN', child: 'FORBIDDEN' };

const HTTP_READS: Row = { ...HTTP_BAD, ...UNKNOWN, ...NO_SESSION, ...INSIDE_UNKNOWN, reader: 'sees', ann: 'sees' };
const HTTP_ACTS: Row = { ...HTTP_READS, reader: 'FORBIDDEN', ann: 'ok' };
const HTTP_LISTS: Row = {
  ...{ ...HTTP_BAD, ...NO_SESSION, ...INSIDE_FORBIDDEN, tenant: 'ok', principal: 'ok' },
  ...{ conversation: 'FORBIDDEN', delegate: 'FORBIDDEN', reader: 'sees', ann: 'sees' },
};

export const ROUTE_ROWS: Readonly<Record<HttpRouteName, Row>> = {
  // With ann's session as the origin.
  submitCommand: {
    ...{
      ...HTTP_BAD,
      ...INSIDE_FORBIDDEN,
      tenant: 'ORIGIN_UNKNOWN',
      principal: 'ORIGIN_UNKNOWN',
      conversation: 'FORBIDDEN',
    },
    ...{ reader: 'FORBIDDEN', delegate: 'FORBIDDEN', closed: 'ok', stale: '-', ann: 'ok' },
  },
  getCommand: HTTP_READS,
  killCommand: HTTP_ACTS,
  // Ann's connection is there to type; nobody types beside it.
  writeStdin: { ...HTTP_ACTS, ann: 'NOT_OWNER' },
  resizeTerminal: { ...HTTP_ACTS, ann: 'NOT_OWNER' },
  // To ann's session.
  adoptCommand: { ...HTTP_ACTS, closed: 'NOT_OWNER', ann: 'sees' },
  readLog: HTTP_READS,
  followCommand: HTTP_READS,
  listCommands: HTTP_LISTS,
  listSessions: HTTP_LISTS,
  followConversation: HTTP_LISTS,
  describe: Object.fromEntries(
    Object.keys(CALLERS).map((caller) => [caller, caller === 'closed' || caller === 'stale' ? '-' : 'ok']),
  ) as Row,
};

/** The matrix as docs/security.md shows it. */
export function matrixText(compared: number): string {
  const callers = Object.keys(CALLERS) as Caller[];
  const rows: [string, Row][] = [...Object.entries(METHOD_ROWS), ...Object.entries(ROUTE_ROWS)];
  const cells = rows.flatMap(([, row]) => callers.map((caller) => row[caller]));
  const asked = cells.filter((cell) => cell !== '-').length;
  return [
    `${Object.keys(METHOD_ROWS).length} methods and ${Object.keys(ROUTE_ROWS).length} routes × ${callers.length} callers: ${asked} requests with their exact answers. ` +
      `${compared} of them name something that is hidden from the caller; each is asked again for what does not exist, and the two answers are the same, byte for byte.`,
    '',
    ...callers.map((caller) => `- **${caller}**: ${CALLERS[caller]}`),
    '',
    `| | ${callers.join(' | ')} |`,
    `|---${'|---'.repeat(callers.length)}|`,
    ...rows.map(([name, row]) => `| \`${name}\` | ${callers.map((caller) => row[caller]).join(' | ')} |`),
  ].join('\n');
}
