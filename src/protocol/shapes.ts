/**
 * What a server sends, as schemas: for the description of HTTP, the protocol reference, and tests that hold real answers
 * against them. The types beside the code (`entries.ts`, `methods.ts`) say the same; a test keeps the two alike.
 */
import { z } from 'zod';
import { ERROR_CODES, type ErrorCode } from '../errors.js';

const time = z.int().min(0).describe('milliseconds since 1970');
const id = z.string();
const seq = z.int().min(0);

export const END_REASONS = [
  'exited',
  'signaled',
  'cancelled',
  'timed_out',
  'idle_timeout',
  'expired',
  'spawn_failed',
  'output_limit',
  'out_of_memory',
  'resource_limit',
  'owner_gone',
  'worker_drained',
  'lost',
  'kill_failed',
  'refused',
] as const;

export const outcomeShape = z
  .object({
    reason: z.enum(END_REASONS).describe('why it ended; a non-zero exit is `exited`'),
    code: z.int().nullable().describe('exit status, where it exited'),
    signal: z.string().nullable().describe('name of the signal that ended it'),
    durationMs: z.int().min(0),
    outputBytes: z.int().min(0),
    tail: z.string().describe('the last 2,000 characters of output'),
    leftovers: z.int().min(0).describe('processes of the command that were still there'),
    error: z.string().optional().describe('a sentence'),
  })
  .meta({ id: 'Outcome' });

export const ownerWhyShape = z.enum(['origin_closed', 'owner_closed', 'no_origin', 'unparked', 'adopted', 'inherited']);

/** Of a command that is queued. */
const waitingFields = {
  position: z
    .int()
    .optional()
    .describe('of a queued command, where known: 1 is next; of those held back with it, where it is held back'),
  held: z
    .enum(['delayed', 'session', 'tenant'])
    .optional()
    .describe('what holds a queued command back: its delay, or a limit of its session or tenant'),
};

export const snapshotShape = z
  .object({
    commandId: id,
    state: z.enum(['queued', 'running', 'ended']),
    originSessionId: id.nullable().describe('the session that asked for it'),
    ownerSessionId: id.nullable().describe('the session that gets its entries now; null while parked'),
    why: ownerWhyShape.optional().describe('why its owner has it; absent while that is the origin'),
    parentCommandId: id.optional(),
    argv: z.array(z.string()).optional(),
    script: z.string().optional(),
    labels: z.record(z.string(), z.string()),
    stdin: z.literal('pipe').optional(),
    pty: z.object({ cols: z.int(), rows: z.int() }).optional(),
    conversation: z.string(),
    pool: z.string(),
    createdAt: time,
    startedAt: time.optional(),
    endedAt: time.optional(),
    firstSeq: seq,
    headSeq: seq.describe('the last seq of its log'),
    ackedSeq: seq.describe('the highest seq that its owner acknowledged'),
    outputBytes: z.int().min(0),
    ...waitingFields,
    workerId: id.optional(),
    containment: z.string().optional(),
    outcome: outcomeShape.optional(),
    recovered: z.boolean().optional().describe('in answers to open and resume: false with a gap to follow'),
    fromSeq: seq.optional().describe('in answers to open and resume: the entries from here on follow'),
  })
  .meta({ id: 'Command' });

const trace = z.string().optional().describe('W3C traceparent, where the operator traces');
const entryFields = { commandId: id, seq: z.int().min(1), ts: time };

/** The params of the notifications that carry entries, by type. */
export const entryShapes = {
  started: z.object({
    ...entryFields,
    pid: z.int(),
    workerId: id,
    containment: z.enum(['pidns', 'group']),
    originClosed: z.boolean().optional().describe('the origin had closed before it started'),
    trace,
  }),
  output: z.object({
    ...entryFields,
    at: z.int().min(0).describe('offset of its first byte in the whole output of all streams'),
    stream: z.enum(['out', 'err', 'pty']),
    data: z.string().optional(),
    base64: z.string().optional().describe('instead of `data`, for bytes that are not UTF-8'),
  }),
  gap: z.object({
    ...entryFields,
    fromSeq: z.int().min(1),
    toSeq: z.int().min(1).describe('the same as `seq`; the next entry is toSeq + 1'),
    bytes: z.int().min(0).optional().describe('how much output is missing, where known; the next `at` tells otherwise'),
    reason: z.enum(['flood', 'spool', 'trimmed', 'expired', 'redis_lost']),
  }),
  watch: z.object({
    ...entryFields,
    pattern: z.string().optional(),
    text: z.string().optional(),
    suppressed: z.int().optional().describe('matches not reported since the last one'),
    disabled: z.boolean().optional(),
    why: z.string().optional(),
  }),
  heartbeat: z.object({ ...entryFields, elapsedMs: z.int(), bytesSinceLast: z.int() }),
  ended: z.object({ ...entryFields, outcome: outcomeShape, trace }),
} as const;

/** An entry as logs show it: its params and their type. */
export const entryShape = z
  .discriminatedUnion('type', [
    entryShapes.started.extend({ type: z.literal('started') }),
    entryShapes.output.extend({ type: z.literal('output') }),
    entryShapes.gap.extend({ type: z.literal('gap') }),
    entryShapes.watch.extend({ type: z.literal('watch') }),
    entryShapes.heartbeat.extend({ type: z.literal('heartbeat') }),
    entryShapes.ended.extend({ type: z.literal('ended') }),
  ])
  .meta({ id: 'Entry' });

export const sessionShape = z
  .object({
    sessionId: id,
    state: z.enum(['live', 'away', 'closing', 'closed']),
    generation: z.int(),
    nodeId: z.string(),
    createdAt: time,
    lastActiveAt: time.describe('user activity; decides who takes over'),
    owned: z.int().min(0).describe('commands it owns'),
  })
  .meta({ id: 'Session' });

export const acceptedShape = z
  .object({
    commandId: id,
    state: z.enum(['queued', 'running', 'ended']),
    repeated: z.boolean().optional().describe('it had been submitted before, with the same idempotency key'),
    ...waitingFields,
  })
  .meta({ id: 'Accepted' });

export const killedShape = z.object({ state: z.enum(['requested', 'ended']) }).meta({ id: 'Killed' });

export const commandPageShape = z
  .object({ commands: z.array(snapshotShape), next: z.string().optional().describe('`cursor` of the next page') })
  .meta({ id: 'CommandPage' });

export const sessionPageShape = z
  .object({ sessions: z.array(sessionShape), next: z.string().optional().describe('`cursor` of the next page') })
  .meta({ id: 'SessionPage' });

const codes = Object.keys(ERROR_CODES) as [ErrorCode, ...ErrorCode[]];

export const errorShape = z
  .object({
    code: z.enum([...codes, 'NOT_FOUND', 'INTERNAL']),
    message: z.string().describe('a sentence that names the field, the limit with its unit and what was got'),
    retryable: z.boolean().describe('whether the same request may succeed later'),
    field: z.string().optional(),
    retryAfterMs: z.int().min(0).optional(),
  })
  .meta({ id: 'Error' });

const welcomeShape = z.object({
  sessionId: id,
  resumeToken: z.string().describe('secret; only its hash is stored'),
  generation: z.int().min(1),
  nodeId: z.string(),
  graceMs: z.int().min(0).describe('how long the session is kept after its socket is gone'),
  heartbeatMs: z.int().min(1),
  limits: z.record(z.string(), z.number()),
  commands: z
    .array(snapshotShape)
    .describe('what it owns that is live or unacknowledged, adopted ones too; at most 200'),
  more: z.boolean().describe('there are more than that'),
});

const empty = z.object({});

/** Results of the requests over a WebSocket. */
export const results = {
  'session.open': welcomeShape,
  'session.resume': welcomeShape,
  'session.close': empty,
  'session.touch': empty,
  'session.refresh': empty,
  'command.run': acceptedShape,
  'command.list': commandPageShape,
  'command.get': snapshotShape,
  'command.log': z.object({ entries: z.array(entryShape), headSeq: seq, nextSeq: z.int().min(1) }),
  'command.kill': killedShape,
  'command.write': z.object({ nextOffset: z.int().min(0) }),
  'command.resize': empty,
  'command.adopt': snapshotShape,
  'command.attach': snapshotShape,
  'command.detach': empty,
} as const;

const view = { view: z.literal(true).optional().describe('sent because it was asked to look (`command.attach`)') };

/** Params of the notifications to a client. */
export const notifications = {
  'command.started': entryShapes.started.extend(view),
  'command.output': entryShapes.output.extend(view),
  'command.gap': entryShapes.gap.extend(view),
  'command.watch': entryShapes.watch.extend(view),
  'command.heartbeat': entryShapes.heartbeat.extend(view),
  'command.ended': entryShapes.ended.extend(view),
  'command.owner': z.object({
    commandId: id,
    snapshot: snapshotShape,
    fromSeq: z.int().min(0).describe('the first entry that nobody acknowledged'),
    why: ownerWhyShape,
  }),
  'session.heartbeat': z.object({
    heads: z.record(z.string(), seq).describe('the last seq of each running command'),
    bus: z.enum(['ok', 'down']),
  }),
  'session.expiring': z.object({ expiresInMs: z.int().min(0) }),
  'session.draining': z.object({ reconnectWithinMs: z.int().min(0) }),
} as const;
