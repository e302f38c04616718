import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  base32,
  makeCommandId,
  makeSessionId,
  parseCommandId,
  parseSessionId,
  tagFromDigest,
  tagOf,
  tagSource,
} from '../../src/protocol/ids.js';

const tag = (tenant: string, conversation: string) =>
  tagFromDigest(createHash('sha256').update(tagSource(tenant, conversation)).digest());

test('base32 is that of RFC 4648, lower case, without padding', () => {
  const of = (text: string) => base32(new TextEncoder().encode(text));
  expect(['', 'f', 'fo', 'foo', 'foob', 'fooba', 'foobar'].map(of)).toEqual([
    '',
    'my',
    'mzxq',
    'mzxw6',
    'mzxw6yq',
    'mzxw6ytb',
    'mzxw6ytboi',
  ]);
});

test('[IS1] tenant and conversation can not be shifted into each other', () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.string(), fc.string(), (a, b, c, d) => {
      fc.pre(a !== c || b !== d);
      expect(tagSource(a, b)).not.toBe(tagSource(c, d));
    }),
  );
});

test('an id tells its tag, and only the right kind parses', () => {
  const random = new Uint8Array(16).fill(7);
  const at = tag('default', 'chat');
  const session = makeSessionId(at, random);
  const command = makeCommandId(at, random);
  expect(tagOf(session)).toBe(at);
  expect(parseSessionId(session)).toBe(session);
  expect(parseCommandId(command)).toBe(command);
  expect(parseSessionId(command)).toBeUndefined();
  for (const bad of [undefined, 5, '', `${session}x`, session.toUpperCase(), 'ses__']) {
    expect(parseSessionId(bad)).toBeUndefined();
  }
});
