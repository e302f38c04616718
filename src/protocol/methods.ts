/**
 * The shapes of every request, once: WebSocket, HTTP, SDK and CLI all parse with these.
 * Receivers ignore fields they do not know, so objects strip them.
 */
import { z } from 'zod';
import { LIMITS } from './limits.js';

const text = (maxBytes: number) =>
  z
    .string()
    .refine((value) => !value.includes('\0'), 'must not contain a NUL character')
    .refine(
      (value) => new TextEncoder().encode(value).length <= maxBytes,
      `must be at most ${maxBytes} bytes of UTF-8`,
    );

const positiveMs = z.int().min(1).max(LIMITS.maxTimeoutMs);
const envName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/, 'must be a name of letters, digits and underscores');
const commandId = z.string().max(128);
const seq = z.int().min(0);

export const conversationName = z
  .string()
  .regex(LIMITS.conversation, 'must be 1 to 128 characters of A-Z a-z 0-9 . _ : -')
  .describe('1 to 128 characters of A-Z a-z 0-9 . _ : -');

/** `next` of a page. */
export const pageCursor = z.string().regex(/^[0-9]{1,16}$/, 'must be `next` of the page before');

export const poolName = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1 to 64 characters of A-Z a-z 0-9 _ -');

/** What to run: the body of `command.run` and of `POST /v1/commands`. */
export const commandSpec = z
  .object({
    argv: z
      .array(text(LIMITS.maxArgBytes * 2))
      .min(1)
      .max(LIMITS.maxArgs)
      .optional()
      .describe('program and arguments; this or `script`'),
    script: text(1024 * 1024)
      .optional()
      .describe('text for the shell; this or `argv`'),
    shell: text(LIMITS.maxCwdBytes).optional().describe('what runs `script`; /bin/sh unless given'),
    cwd: text(LIMITS.maxCwdBytes).optional().describe('folder it starts in'),
    env: z
      .record(envName, text(LIMITS.maxArgBytes * 2))
      .refine((env) => Object.keys(env).length <= LIMITS.maxEnv, `must have at most ${LIMITS.maxEnv} variables`)
      .optional(),
    secrets: z
      .record(envName, text(LIMITS.maxSecretBytes))
      .refine(
        (secrets) => new TextEncoder().encode(Object.values(secrets).join('')).length <= LIMITS.maxSecretBytes,
        `must have at most ${LIMITS.maxSecretBytes} bytes of values together`,
      )
      .optional(),
    stdin: z.enum(['none', 'pipe']).default('none').describe('`pipe`: it is written with `command.write`'),
    pty: z.object({ cols: z.int().min(1).max(1000), rows: z.int().min(1).max(1000) }).optional(),
    streams: z
      .enum(['merged', 'split'])
      .default('merged')
      .describe('`merged`: one pipe, in the true order; `split`: told apart, the order between the two is lost'),
    timeouts: z
      .object({
        queueMs: positiveMs.optional().describe('how long it may wait for a worker, after its delay'),
        runMs: positiveMs.optional(),
        idleMs: positiveMs.optional().describe('how long it may print nothing'),
        graceMs: z.int().min(0).max(600_000).optional().describe('kill grace: between the signal and SIGKILL'),
      })
      .default({}),
    notify: z
      .object({
        watch: z
          .array(
            z.object({ pattern: z.string().min(1).max(LIMITS.maxPatternChars), kind: z.enum(['literal', 'regex']) }),
          )
          .max(LIMITS.maxWatchPatterns)
          .optional(),
        heartbeatMs: z.int().min(60_000).optional(),
        webhook: z
          .url('must be a URL')
          .optional()
          .describe('is sent the outcome, signed; the server must allow the address'),
      })
      .optional(),
    pool: poolName.default('default'),
    priority: z.int().min(1).max(100).default(50).describe('1 is first'),
    delayMs: z.int().min(0).max(LIMITS.maxTimeoutMs).optional(),
    labels: z
      .record(z.string().min(1).max(LIMITS.maxLabelNameChars), z.string().max(LIMITS.maxLabelValueChars))
      .refine(
        (labels) => Object.keys(labels).length <= LIMITS.maxLabels,
        `must have at most ${LIMITS.maxLabels} labels`,
      )
      .optional(),
    idempotencyKey: z
      .string()
      .min(1)
      .max(LIMITS.maxIdempotencyKeyChars)
      .optional()
      .describe('makes a repeat the same command'),
    onOwnerGone: z
      .enum(['adopt', 'park', 'kill'])
      .default('adopt')
      .describe('when its owner closes: it goes to another session of the principal, to nobody by itself, or ends'),
    detached: z.boolean().default(false).describe('a child that outlives its parent command'),
    containment: z.enum(['pidns']).optional(),
    leftovers: z.enum(['reap', 'keep']).default('reap').describe('processes that it leaves behind'),
    resources: z
      .object({
        cpuSeconds: z.number().positive().optional(),
        memoryBytes: z.int().positive().optional(),
        openFiles: z.int().positive().optional(),
        fileBytes: z.int().positive().optional(),
        processes: z.int().positive().optional(),
        outputBytes: z.int().positive().optional(),
      })
      .optional(),
    sandbox: z.object({ profile: z.string().min(1).max(64) }).optional(),
  })
  .refine((spec) => (spec.argv === undefined) !== (spec.script === undefined), {
    message: 'exactly one of argv and script must be given',
    path: ['argv'],
  });

/** A parsed spec, defaults filled in. */
export type CommandSpec = z.output<typeof commandSpec>;
/** A spec as a caller writes it. */
export type CommandSpecInput = z.input<typeof commandSpec>;

export const submitBody = z.intersection(
  commandSpec,
  z.object({
    conversation: conversationName,
    originSessionId: z
      .string()
      .max(128)
      .optional()
      .describe('the tab it is for; another principal’s only with the scope `delegate`'),
    principal: z.string().min(1).max(256).optional().describe('whose it is; another’s only with the scope `delegate`'),
  }),
);

const cursors = z
  .record(commandId, seq)
  .refine((value) => Object.keys(value).length <= 1_000, 'must have at most 1000 cursors');
const opaque = z.string().min(1).max(256);

export const methods = {
  'session.open': z.object({
    conversation: conversationName,
    token: z.string().max(16_384).optional(),
    pageNonce: opaque.optional().describe('made at page load, kept in memory only: tells a duplicated tab apart'),
    batch: z.boolean().default(false),
    client: z.string().max(256).optional(),
  }),
  'session.resume': z.object({
    sessionId: z.string().max(128),
    resumeToken: opaque,
    token: z.string().max(16_384).optional(),
    pageNonce: opaque.optional(),
    batch: z.boolean().default(false),
    cursors: cursors.default({}).describe('the last seq received of each command'),
  }),
  'session.close': z.object({}),
  'session.touch': z.object({}),
  'session.refresh': z.object({ token: z.string().min(1).max(16_384) }),
  'command.run': commandSpec,
  'command.list': z.object({
    cursor: pageCursor.optional(),
    limit: z.int().min(1).max(LIMITS.maxPageSize).default(LIMITS.pageSize),
    state: z.enum(['queued', 'running', 'ended']).optional(),
    label: z
      .string()
      .max(LIMITS.maxLabelNameChars + LIMITS.maxLabelValueChars + 1)
      .optional(),
  }),
  'command.get': z.object({ commandId }),
  'command.log': z.object({
    commandId,
    fromSeq: seq.optional(),
    tailBytes: z
      .int()
      .min(1)
      .max(16 * 1024 * 1024)
      .optional(),
    limitBytes: z.int().min(1).max(LIMITS.maxLogBytes).default(LIMITS.maxLogBytes),
  }),
  'command.kill': z.object({
    commandId,
    signal: z
      .string()
      .regex(/^(SIG)?[A-Z0-9+]{2,12}$/, 'must be the name of a signal, such as SIGTERM')
      .optional(),
    graceMs: z.int().min(0).max(600_000).optional(),
  }),
  'command.write': z.object({
    commandId,
    offset: seq.describe('of the first byte, in all that is written to it'),
    data: z.string().optional(),
    base64: z.base64().optional(),
    eof: z.boolean().optional(),
  }),
  'command.resize': z.object({ commandId, cols: z.int().min(1).max(1000), rows: z.int().min(1).max(1000) }),
  'command.adopt': z.object({ commandId }),
  'command.attach': z.object({ commandId, fromSeq: seq.optional() }),
  'command.detach': z.object({ commandId }),
} as const;

export type MethodName = keyof typeof methods;
export type MethodParams<M extends MethodName> = z.output<(typeof methods)[M]>;

/** The one notification a client sends. Unknown commands and seqs beyond the head are ignored. */
export const outputAck = z.object({ cursors });

/** A snapshot of a command as every door shows it. */
export interface CommandSnapshot {
  readonly commandId: string;
  readonly state: 'queued' | 'running' | 'ended';
  readonly originSessionId: string | null;
  readonly ownerSessionId: string | null;
  /** Why its owner has it; absent while that is the origin, or nobody. */
  readonly why?: OwnerWhy;
  readonly parentCommandId?: string;
  readonly argv?: readonly string[];
  readonly script?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly stdin?: 'pipe';
  readonly pty?: { readonly cols: number; readonly rows: number };
  readonly conversation: string;
  readonly pool: string;
  readonly createdAt: number;
  readonly startedAt?: number;
  readonly endedAt?: number;
  readonly firstSeq: number;
  readonly headSeq: number;
  readonly ackedSeq: number;
  readonly outputBytes: number;
  /** Of a queued command, where known: 1 is next. Of those held back with it, where it is held back. */
  readonly position?: number;
  /** What holds a queued command back. */
  readonly held?: 'delayed' | 'session' | 'tenant';
  readonly workerId?: string;
  readonly containment?: string;
  readonly outcome?: import('./entries.js').Outcome;
  /** In the answers of open and resume only. */
  readonly recovered?: boolean;
  readonly fromSeq?: number;
}

export type OwnerWhy = 'origin_closed' | 'owner_closed' | 'no_origin' | 'unparked' | 'adopted' | 'inherited';
