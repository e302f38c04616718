/** What is wrong with a value that does not fit its shape, as one sentence: the field, the limit with its unit, what was got. */
import type { z } from 'zod';

/** Fields whose values may be secret or long: only their size is told. */
const HIDDEN = /^(env|secrets|argv|script|token|resumeToken|data|base64)(\.|$)/;
const MAX_SHOWN_CHARS = 64;

/** Fields carry their unit in their name. */
const UNITS: readonly (readonly [RegExp, string])[] = [
  [/Ms$/, ' ms'],
  [/Bytes$/, ' bytes'],
  [/Seconds$/, ' s'],
];

const unitOf = (field: string): string => UNITS.find(([name]) => name.test(field))?.[1] ?? '';

const plural = (count: number | bigint, word: string): string => `${count} ${word}${Number(count) === 1 ? '' : 's'}`;

/** The value as people may see it: numbers and short words as they are, everything else by its size. */
function shown(field: string, value: unknown): string {
  if (value === null) return 'null';
  switch (typeof value) {
    case 'undefined':
      return 'nothing';
    case 'number':
    case 'boolean':
      return `${value}${typeof value === 'number' ? unitOf(field) : ''}`;
    case 'string':
      if (HIDDEN.test(field) || value.length > MAX_SHOWN_CHARS) return plural(value.length, 'character');
      return JSON.stringify(value);
    case 'object':
      if (Array.isArray(value)) return plural(value.length, 'member');
      return plural(Object.keys(value as object).length, 'field');
    default:
      return `a ${typeof value}`;
  }
}

function limit(issue: { readonly origin: string }, field: string, bound: number | bigint): string {
  switch (issue.origin) {
    case 'string':
      return plural(bound, 'character');
    case 'array':
    case 'set':
      return plural(bound, 'member');
    case 'object':
    case 'record':
      return plural(bound, 'field');
    default:
      return `${bound}${unitOf(field)}`;
  }
}

const TYPES: Readonly<Record<string, string>> = {
  array: 'a list',
  boolean: 'true or false',
  int: 'a whole number',
  number: 'a number',
  object: 'an object',
  record: 'an object',
  string: 'a string',
};

function demand(issue: z.core.$ZodIssue, field: string): string {
  switch (issue.code) {
    case 'too_big':
      return `must be at most ${limit(issue, field, issue.maximum)}`;
    case 'too_small':
      return `must be ${issue.inclusive === false ? 'more than' : 'at least'} ${limit(issue, field, issue.minimum)}`;
    case 'invalid_type':
      return issue.input === undefined
        ? 'is missing'
        : `must be ${TYPES[issue.expected] ?? `of type ${issue.expected}`}`;
    case 'invalid_value':
      return `must be ${issue.values.map((value) => JSON.stringify(value)).join(' or ')}`;
    default:
      return issue.message;
  }
}

/** An issue of a union or a record hides the one that tells more. */
function innermost(issue: z.core.$ZodIssue): z.core.$ZodIssue {
  if (issue.code === 'invalid_key') {
    const inner = issue.issues[0];
    return inner === undefined ? issue : { ...inner, path: issue.path };
  }
  return issue;
}

/** Names of members may come from outside, such as those of cursors, and be as long as a frame. */
const shortened = (name: string): string =>
  name.length > MAX_SHOWN_CHARS ? `${name.slice(0, MAX_SHOWN_CHARS)}…` : name;

/** The first fault of a failed parse. The parse must have been asked to report inputs (`parseShape` does). */
export function describeIssue(error: z.ZodError): { message: string; field?: string } {
  const first = error.issues[0];
  if (first === undefined) return { message: 'invalid parameters' };
  const issue = innermost(first);
  const field = issue.path.map((part) => shortened(String(part))).join('.');
  const asked = demand(issue, field);
  // A fault of the whole, such as two fields that exclude each other, is told by its own sentence.
  const got =
    asked === 'is missing' || issue.input === undefined || (typeof issue.input === 'object' && issue.code === 'custom')
      ? ''
      : `, got ${shown(field, issue.input)}`;
  const sentence = `${asked}${got}`;
  return field === '' ? { message: sentence } : { message: `${field}: ${sentence}`, field };
}

/** Parses, and keeps what was got for the sentence about it. */
export function parseShape<T>(
  shape: z.ZodType<T>,
  value: unknown,
):
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly message: string; readonly field?: string } {
  const parsed = shape.safeParse(value, { reportInput: true });
  return parsed.success ? { ok: true, value: parsed.data } : { ok: false, ...describeIssue(parsed.error) };
}
