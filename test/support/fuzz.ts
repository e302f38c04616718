/** Hostile values for tests: seeded, so that a run can be had again, and short unless more is asked for. */
import fc from 'fast-check';
import { z } from 'zod';

/** For each test. `HOMING_TEST_FUZZ_RUNS=20000` takes minutes. */
export const RUNS = Number(process.env.HOMING_TEST_FUZZ_RUNS ?? 100);
export const SEED = Number(process.env.HOMING_TEST_FUZZ_SEED ?? 20_240_229);

/** Runs a property on these values; a failure names the seed and the smallest value. */
export function fuzz<T extends readonly unknown[]>(
  arbitraries: { readonly [K in keyof T]: fc.Arbitrary<T[K]> },
  holds: (...values: T) => void,
): void {
  fc.assert(
    fc.property(...(arbitraries as unknown as [fc.Arbitrary<unknown>]), holds as unknown as (value: unknown) => void),
    {
      numRuns: RUNS,
      seed: SEED,
    },
  );
}

/** Words that have broken parsers, stores and shells before. */
const NASTY = [
  '',
  '\0',
  'a\0b',
  '\ud800',
  'x\udfffy',
  '\ufeff',
  '\u2028',
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '*',
  '?',
  '[a-z]',
  '{tag}',
  '}{',
  '{',
  'a:b:c',
  '../../etc/passwd',
  '%00',
  '%2e%2e%2f',
  '\r\nX-Injected: 1',
  '$(id)',
  '`id`',
  "'; FLUSHALL; --",
  'nan',
  '-0',
  '1e400',
  '9007199254740993',
  '0x10',
  '１２',
  'ses_aaaaaaaaaaaaaaaa_bbbbbbbbbbbbbbbbbbbbbbbbbb_',
  'cmd_{*}_aaaaaaaaaaaaaaaaaaaaaaaaaa',
  'hush-hush',
  'x'.repeat(5_000),
  '💥'.repeat(300),
];

export const hostileText: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(...NASTY),
  fc.string({ unit: 'binary', maxLength: 200 }),
  fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map((code) => String.fromCharCode(code)), maxLength: 50 }),
  fc.json(),
  fc.json().map((text) => text.slice(0, -1)),
);

const hostileNumber = fc.oneof(
  fc.constantFrom(0, -0, -1, 1, 0.5, 2 ** 31, 2 ** 53, -(2 ** 53), 1e21, 1e308, Number.MIN_VALUE),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer(),
);

/** JSON of any kind, with own members named `__proto__`, as JSON.parse makes them. */
export const hostile: fc.Arbitrary<unknown> = fc.letrec<{ any: unknown; list: unknown[]; object: unknown }>((tie) => ({
  any: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom<unknown>(null, true, false, [], {}),
    hostileText,
    hostileNumber,
    tie('list'),
    tie('object'),
  ),
  list: fc.array(tie('any'), { maxLength: 5 }),
  object: fc
    .array(fc.tuple(hostileText, tie('any')), { maxLength: 5 })
    .map(
      (members) =>
        JSON.parse(
          `{${members.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`).join(',')}${
            members.length === 0 ? '' : ',"__proto__":{"polluted":true}'
          }}`,
        ) as unknown,
    ),
})).any;

/** Names of the members of a shape, also of two shapes put together. */
function namesOf(shape: z.ZodType): string[] {
  if (shape instanceof z.ZodObject) return Object.keys(shape.shape as object);
  if (shape instanceof z.ZodDefault) return namesOf(shape.unwrap() as z.ZodType);
  const { left, right } = shape.def as unknown as { left?: z.ZodType; right?: z.ZodType };
  return left === undefined || right === undefined ? [] : [...namesOf(left), ...namesOf(right)];
}

/** What fits often enough to be worth something, in the single fields. */
const plausible = fc.oneof(
  fc.constantFrom<unknown>(
    'default',
    'none',
    'pipe',
    ['true'],
    { A: 'hush-hush' },
    'cmd_x',
    true,
    1,
    80,
    1_000,
    'chat',
    'SIGTERM',
  ),
  fc.record({ cols: hostileNumber, rows: fc.constantFrom(24, 25) }),
  fc
    .record({ pattern: fc.constantFrom('(a+)+$', 'x', '('), kind: fc.constantFrom('regex', 'literal') })
    .map((one) => ({ watch: [one] })),
);

/** Objects with the names of a shape and values that fit, nearly fit, or do not at all; and sometimes no object. */
export function nearly(shape: z.ZodType): fc.Arbitrary<unknown> {
  const fields = Object.fromEntries(namesOf(shape).map((name) => [name, fc.oneof(plausible, plausible, hostile)]));
  const object = fc
    .tuple(fc.record(fields, { requiredKeys: [] }), fc.oneof(fc.constant({}), hostile))
    .map(([known, more]) =>
      typeof more === 'object' && more !== null && !Array.isArray(more) ? { ...more, ...known } : known,
    );
  return fc.oneof({ weight: 9, arbitrary: object }, { weight: 1, arbitrary: hostile });
}
