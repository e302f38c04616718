/** The WebSocket protocol as a readable reference, made from the schemas: what `docs/protocol.md` holds. Pure. */
import { z } from 'zod';
import { ERROR_CODES } from '../errors.js';
import { CLOSE, isTerminal } from './close-codes.js';
import { LIMITS } from './limits.js';
import { type MethodName, methods, outputAck } from './methods.js';
import { notifications, outcomeShape, results, snapshotShape } from './shapes.js';

/** What each method does, in one sentence or two. */
const SAYS: Readonly<Record<MethodName, string>> = {
  'session.open':
    'Makes a session on this connection. What is parked for its principal in the conversation comes to it.',
  'session.resume':
    'Takes a session up again, on any node. A command without a cursor goes on after what was acknowledged; 0 means from the beginning. The missing entries follow the answer, then live ones.',
  'session.close': 'Closes the session for good. What it owns moves to another session of the principal, or is parked.',
  'session.touch': 'The user is here: decides who takes over.',
  'session.refresh': 'A new token for this connection.',
  'command.run':
    'Runs a command with this session as its origin. With an idempotency key a repeat is the same command, and another body is a conflict.',
  'command.list': 'Commands of the conversation, the caller’s own, newest first.',
  'command.get': 'One command as it is now.',
  'command.log': 'A page of a log. It goes on at `nextSeq`.',
  'command.kill': 'Asks for the end of a command: the signal, the kill grace, then SIGKILL for all of its processes.',
  'command.write':
    'Writes to the stdin of a command that this session owns. `offset` counts all bytes written before; what was there already is dropped, so a repeat changes nothing.',
  'command.resize': 'Gives the terminal of a command that this session owns another size.',
  'command.adopt': 'Takes a parked or kept command.',
  'command.attach': 'Looks at a command without owning it: its entries come with `view: true`.',
  'command.detach': 'Stops looking.',
};

const NOTIFICATIONS: Readonly<Record<keyof typeof notifications, string>> = {
  'command.started': 'The process runs.',
  'command.output': 'Output, in order. `at` and the length tell what is next.',
  'command.gap':
    'Entries that are not there any more. `flood` and `spool` are in the log; the others are made at reading.',
  'command.watch': 'The output matched a pattern of `notify.watch`, or watching was given up.',
  'command.heartbeat': 'A long command is alive (`notify.heartbeatMs`).',
  'command.ended': 'The last entry, exactly once.',
  'command.owner': 'Not an entry: a command came to this session.',
  'session.heartbeat': 'Every `heartbeatMs`. Who misses two comes back over a new connection.',
  'session.expiring': 'The token is about to end: send `session.refresh`.',
  'session.draining': 'The node is stopping: come back within this time.',
};

interface Schema {
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly $ref?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly pattern?: string;
  readonly format?: string;
}

const schemaOf = (shape: z.ZodType, io: 'input' | 'output'): Schema =>
  z.toJSONSchema(shape, { io, target: 'draft-2020-12', unrepresentable: 'any' }) as Schema;

const code = (text: string): string => `\`${text.replaceAll('|', '\\|')}\``;

function typeOf(schema: Schema): string {
  if (schema.$ref !== undefined) return schema.$ref.split('/').at(-1) ?? 'object';
  if (schema.const !== undefined) return code(JSON.stringify(schema.const));
  if (schema.enum !== undefined) return schema.enum.map((value) => code(String(value))).join(' or ');
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return choices.map(typeOf).join(' or ');
  if (schema.type === 'array') return `list of ${schema.items === undefined ? 'anything' : typeOf(schema.items)}`;
  if (schema.type === 'object' && schema.properties === undefined) {
    const value = schema.additionalProperties;
    return `{name: ${typeof value === 'object' ? typeOf(value) : 'anything'}}`;
  }
  return typeof schema.type === 'string' ? schema.type : 'anything';
}

function boundsOf(schema: Schema): string[] {
  const { minimum, maximum, exclusiveMinimum, minLength, maxLength, minItems, maxItems } = schema;
  const between = (low: number | undefined, high: number | undefined, unit: string): string[] => {
    const top = high === Number.MAX_SAFE_INTEGER ? undefined : high;
    if (low === undefined && top === undefined) return [];
    if (top === undefined) return low === 0 ? [] : [`at least ${low}${unit}`];
    return [low === undefined ? `at most ${top}${unit}` : `${low} to ${top}${unit}`];
  };
  return [
    ...between(minimum === Number.MIN_SAFE_INTEGER ? undefined : minimum, maximum, ''),
    ...(exclusiveMinimum === undefined ? [] : [`more than ${exclusiveMinimum}`]),
    ...between(minLength, maxLength, ' characters'),
    ...between(minItems, maxItems, ' members'),
  ];
}

/** The rows of a table; nested objects follow the field they belong to. */
function rowsOf(schema: Schema, prefix = ''): string[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const optional = !(schema.required ?? []).includes(name);
    const notes = [
      ...(field.description === undefined ? [] : [field.description]),
      ...boundsOf(field),
      ...(field.default === undefined || typeof field.default === 'object'
        ? []
        : [`default ${code(String(field.default))}`]),
    ];
    const row = `| ${code(`${prefix}${name}${optional ? '?' : ''}`)} | ${typeOf(field)} | ${notes.join('; ').replaceAll('|', '\\|')} |`;
    const inner = field.type === 'array' ? field.items : field;
    const more =
      inner?.properties === undefined ? [] : rowsOf(inner, `${prefix}${name}${field.type === 'array' ? '[]' : ''}.`);
    return [row, ...more];
  });
}

function table(head: string, schema: Schema): string[] {
  const rows = rowsOf(schema);
  return rows.length === 0 ? [] : [`| ${head} | type | |`, '|---|---|---|', ...rows, ''];
}

function resultOf(schema: Schema): string[] {
  if (schema.$ref !== undefined) return [`Result: ${typeOf(schema)}.`, ''];
  const rows = table('result', schema);
  return rows.length === 0 ? ['Result: `{}`.', ''] : rows;
}

/** A named shape shows as its name wherever it is used, so it is unfolded here. */
function named(shape: z.ZodType): Schema {
  const schema = schemaOf(z.object({ it: shape }), 'output') as Schema & { $defs?: Record<string, Schema> };
  const name = schema.properties?.it?.$ref?.split('/').at(-1) ?? '';
  return schema.$defs?.[name] ?? schemaOf(shape, 'output');
}

/** A shape as it is used elsewhere: by its name where it has one. */
const used = (shape: z.ZodType): Schema => schemaOf(z.object({ it: shape }), 'output').properties?.it ?? {};

function methodPart(name: MethodName): string[] {
  return [
    `### ${name}`,
    '',
    SAYS[name],
    '',
    ...table('params', schemaOf(methods[name], 'input')),
    ...resultOf(used(results[name])),
  ];
}

/** The whole document. The same schemas give the same text. */
export function protocolReference(): string {
  const lines = [
    '# The WebSocket protocol',
    '',
    '<!-- Made by "npm run docs" from src/protocol. A test compares it; do not edit it. -->',
    '',
    `\`GET /v1/ws\`, subprotocol \`${LIMITS.subprotocol}\`: JSON-RPC 2.0 in text frames, both ways. A server sends batches only to who asked for them ` +
      `(\`batch: true\`), and takes batches of up to ${LIMITS.maxBatch}. The token comes as \`Authorization: Bearer …\` with the upgrade, or as ` +
      `\`token\` of open and resume; never in the URL. A socket without a session is closed after ${LIMITS.openWithinMs} ms. Frames from a client have at most ` +
      `${LIMITS.maxFrameBytes} bytes (a setting). An answer precedes every entry that it causes.`,
    '',
    'Times are integers in milliseconds, sizes are bytes. A `?` marks what may be absent. Fields you do not know are to be ignored.',
    'HTTP is described by `GET /openapi.json` of every node.',
    '',
    '## Requests',
    '',
    ...(Object.keys(methods) as MethodName[]).flatMap(methodPart),
    '## Notifications to the client',
    '',
    ...Object.entries(notifications).flatMap(([name, shape]) => [
      `### ${name}`,
      '',
      NOTIFICATIONS[name as keyof typeof notifications],
      '',
      ...table('params', schemaOf(shape, 'output')),
    ]),
    '## Notification from the client',
    '',
    '### output.ack',
    '',
    'The highest seq of each command that was consumed. At most one a second, or each 64 entries; only the owner’s count, and they only rise.',
    '',
    ...table('params', schemaOf(outputAck, 'input')),
    '## Shapes',
    '',
    '### Command',
    '',
    ...table('field', named(snapshotShape)),
    '### Outcome',
    '',
    ...table('field', named(outcomeShape)),
    '## Errors',
    '',
    'JSON-RPC’s own codes for malformed input (-32700, -32600, -32601, -32602, -32603); all others are -32000 with `error.data`: `code`, `retryable`, `field?`, `retryAfterMs?`.',
    'Messages name the field, the limit with its unit and what was got.',
    '',
    '| code | HTTP status | may the same request succeed later |',
    '|---|---|---|',
    ...Object.entries(ERROR_CODES).map(
      ([name, { status, retryable }]) => `| \`${name}\` | ${status} | ${retryable ? 'yes' : 'no'} |`,
    ),
    '',
    '## Close codes',
    '',
    'A client comes back after 4000–4499 (and 1001, 1006, 1011–1013), and not after 4500–4999.',
    '',
    '| code | | come back |',
    '|---|---|---|',
    ...Object.entries(CLOSE).map(
      ([name, number]) =>
        `| ${number} | ${name.toLowerCase().replaceAll('_', ' ')} | ${isTerminal(number) ? 'no' : 'yes'} |`,
    ),
    '',
  ];
  return lines.join('\n');
}
