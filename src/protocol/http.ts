/** The routes of HTTP as data: the node parses with these, and the OpenAPI description is made from them. Pure. */
import { z } from 'zod';
import type { ErrorCode } from '../errors.js';
import { LIMITS } from './limits.js';
import { conversationName, methods, pageCursor, submitBody } from './methods.js';
import {
  acceptedShape,
  commandPageShape,
  entryShape,
  killedShape,
  results,
  sessionPageShape,
  snapshotShape,
} from './shapes.js';
import type { Scope } from './token.js';

/** A body of a successful answer: JSON of a shape, or text of a media type. */
export type Answer =
  | { readonly type: 'json'; readonly shape: z.ZodType; readonly says: string }
  | { readonly type: 'text'; readonly media: Readonly<Record<string, z.ZodType | undefined>>; readonly says: string }
  | { readonly type: 'none'; readonly says: string };

export interface HttpRoute {
  readonly method: 'get' | 'post';
  /** Parameters in braces. */
  readonly path: string;
  readonly summary: string;
  readonly scope?: Scope;
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  readonly headers?: z.ZodObject;
  readonly body?: z.ZodType;
  readonly answers: Readonly<Record<number, Answer>>;
  /** Beside UNAUTHENTICATED, TOKEN_EXPIRED, INVALID_PARAMS, RATE_LIMITED, REDIS_UNAVAILABLE and KEYS_UNAVAILABLE, which any may answer. */
  readonly errors: readonly ErrorCode[];
  readonly open?: true;
}

const idParams = z.object({ id: z.string().max(128).describe('command id') });
const conversationParams = z.object({ conversation: conversationName });
const principal = z
  .string()
  .min(1)
  .max(256)
  .optional()
  .describe('whose; another than one’s own only with the scope `delegate`');

const page = {
  cursor: pageCursor.optional().describe('`next` of the page before'),
  limit: z.coerce.number().int().min(1).max(LIMITS.maxPageSize).default(LIMITS.pageSize),
  principal,
};

const lastEventId = z
  .string()
  .max(LIMITS.maxCursorChars)
  .optional()
  .describe('`id` of the last event that was received; what follows it is sent. Wins over the query');

const eventStream = (says: string): Answer => ({ type: 'text', media: { 'text/event-stream': undefined }, says });

export const httpRoutes = {
  submitCommand: {
    method: 'post',
    path: '/v1/commands',
    summary: 'Submits a command.',
    scope: 'run',
    headers: z.object({
      'idempotency-key': z
        .string()
        .min(1)
        .max(LIMITS.maxIdempotencyKeyChars)
        .optional()
        .describe('makes a retry the same command; another body with the same key is a conflict'),
    }),
    body: submitBody,
    answers: { 202: { type: 'json', shape: acceptedShape, says: 'It is stored and will run; `Location` names it.' } },
    errors: [
      'FORBIDDEN',
      'ORIGIN_UNKNOWN',
      'POOL_UNKNOWN',
      'IDEMPOTENCY_CONFLICT',
      'PATTERN_INVALID',
      'SECRETS_UNAVAILABLE',
      'CONTAINMENT_UNAVAILABLE',
      'LIMIT_EXCEEDED',
    ],
  },
  getCommand: {
    method: 'get',
    path: '/v1/commands/{id}',
    summary: 'A command as it is now, or when it has ended.',
    scope: 'read',
    params: idParams,
    query: z.object({
      waitMs: z.coerce
        .number()
        .int()
        .min(0)
        .max(LIMITS.maxWaitMs)
        .default(0)
        .describe('how long to wait for its end; answers as it is when that has passed'),
    }),
    answers: { 200: { type: 'json', shape: snapshotShape, says: 'The command.' } },
    errors: ['FORBIDDEN', 'UNKNOWN_COMMAND'],
  },
  killCommand: {
    method: 'post',
    path: '/v1/commands/{id}/kill',
    summary: 'Ends a command: a signal, its kill grace, then SIGKILL for all of its processes.',
    scope: 'kill',
    params: idParams,
    body: methods['command.kill'].omit({ commandId: true }).default({}),
    answers: { 200: { type: 'json', shape: killedShape, says: 'Asked for, or over already.' } },
    errors: ['FORBIDDEN', 'UNKNOWN_COMMAND'],
  },
  writeStdin: {
    method: 'post',
    path: '/v1/commands/{id}/stdin',
    summary: 'Writes to the stdin of a command: while no connection of its owner is there, or as a delegate.',
    scope: 'run',
    params: idParams,
    body: methods['command.write'].omit({ commandId: true }),
    answers: { 200: { type: 'json', shape: results['command.write'], says: 'What was written is stored.' } },
    errors: ['FORBIDDEN', 'UNKNOWN_COMMAND', 'NOT_OWNER', 'COMMAND_ENDED', 'STDIN_CLOSED', 'STDIN_FULL'],
  },
  resizeTerminal: {
    method: 'post',
    path: '/v1/commands/{id}/resize',
    summary:
      'Gives the terminal of a command another size: while no connection of its owner is there, or as a delegate.',
    scope: 'run',
    params: idParams,
    body: methods['command.resize'].omit({ commandId: true }),
    answers: { 200: { type: 'json', shape: results['command.resize'], says: 'Done.' } },
    errors: ['FORBIDDEN', 'UNKNOWN_COMMAND', 'NOT_OWNER', 'COMMAND_ENDED'],
  },
  adoptCommand: {
    method: 'post',
    path: '/v1/commands/{id}/adopt',
    summary: 'Gives a parked or kept command to an open session of its principal.',
    scope: 'run',
    params: idParams,
    body: z.object({ sessionId: z.string().max(128) }),
    answers: { 200: { type: 'json', shape: snapshotShape, says: 'The command with its new owner.' } },
    errors: ['FORBIDDEN', 'UNKNOWN_COMMAND', 'ORIGIN_UNKNOWN', 'NOT_OWNER'],
  },
  readLog: {
    method: 'get',
    path: '/v1/commands/{id}/log',
    summary: 'The log as it is now, whole: raw output, or an entry a line.',
    scope: 'read',
    params: idParams,
    query: z.object({
      format: z.enum(['text', 'jsonl']).default('text'),
      fromSeq: z.coerce.number().int().min(0).optional().describe('the first entry wanted'),
      tailBytes: z.coerce
        .number()
        .int()
        .min(1)
        .optional()
        .describe(
          'only the last bytes of output: exactly so many as text, from the entry that holds the first of them as jsonl',
        ),
      gaps: z
        .enum(['state', 'omit'])
        .default('state')
        .describe('text only: output that was not kept is stated in a line of its own, or left out without a word'),
      download: z.stringbool().default(false).describe('asks browsers to save it as a file'),
    }),
    answers: {
      200: {
        type: 'text',
        media: { 'text/plain': undefined, 'application/jsonl': entryShape },
        says: 'The output as the command wrote it, or one entry (JSON) a line.',
      },
    },
    errors: ['FORBIDDEN', 'UNKNOWN_COMMAND'],
  },
  followCommand: {
    method: 'get',
    path: '/v1/commands/{id}/events',
    summary: 'Follows a command: each entry as a server-sent event, until `command.ended`.',
    scope: 'read',
    params: idParams,
    query: z.object({ fromSeq: z.coerce.number().int().min(0).optional().describe('the first entry wanted') }),
    headers: z.object({ 'last-event-id': lastEventId }),
    answers: {
      200: eventStream(
        '`event` is the name of the notification (`command.output` …), `data` its params, `id` the seq. A comment comes at least every 15 s.',
      ),
      204: { type: 'none', says: 'Everything was seen, the end too: do not come back.' },
    },
    errors: ['FORBIDDEN', 'UNKNOWN_COMMAND', 'LIMIT_EXCEEDED'],
  },
  listCommands: {
    method: 'get',
    path: '/v1/conversations/{conversation}/commands',
    summary: 'Commands of a conversation, newest first.',
    scope: 'read',
    params: conversationParams,
    query: z.object({
      ...page,
      state: z.enum(['queued', 'running', 'ended']).optional(),
      label: z.string().max(512).optional().describe('`name` or `name=value`'),
    }),
    answers: { 200: { type: 'json', shape: commandPageShape, says: 'A page.' } },
    errors: ['FORBIDDEN'],
  },
  listSessions: {
    method: 'get',
    path: '/v1/conversations/{conversation}/sessions',
    summary: 'Open sessions of a conversation, latest user activity first.',
    scope: 'read',
    params: conversationParams,
    query: z.object(page),
    answers: { 200: { type: 'json', shape: sessionPageShape, says: 'A page.' } },
    errors: ['FORBIDDEN'],
  },
  followConversation: {
    method: 'get',
    path: '/v1/conversations/{conversation}/events',
    summary: 'Follows the commands of a conversation, present and to come, as server-sent events.',
    scope: 'read',
    params: conversationParams,
    query: z.object({
      principal: principal.describe(
        'whose commands: one’s own unless given; a delegate gets those of everybody, or of the one it names',
      ),
      cursor: z.string().max(LIMITS.maxCursorChars).optional().describe('an `id` to go on after'),
    }),
    headers: z.object({ 'last-event-id': lastEventId }),
    answers: {
      200: eventStream(
        'As for one command; `id` is an opaque cursor. Without a cursor: commands that have not ended, or ended in the last minute, from their first entry, and all later ones. In order for each command; it does not end by itself.',
      ),
    },
    errors: ['FORBIDDEN', 'LIMIT_EXCEEDED'],
  },
  describe: {
    method: 'get',
    path: '/openapi.json',
    summary: 'This description.',
    answers: { 200: { type: 'json', shape: z.looseObject({}), says: 'OpenAPI 3.1.' } },
    errors: [],
    open: true,
  },
} as const satisfies Readonly<Record<string, HttpRoute>>;

export type HttpRouteName = keyof typeof httpRoutes;
