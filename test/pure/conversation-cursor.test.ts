import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatCursor, parseCursor } from '../../src/domain/conversation-cursor.js';
import { base32, makeCommandId, type Tag } from '../../src/protocol/ids.js';
import { LIMITS } from '../../src/protocol/limits.js';

const tag = base32(new Uint8Array(10).fill(7)).slice(0, 16) as Tag;
const other = base32(new Uint8Array(10).fill(9)).slice(0, 16) as Tag;
const time = fc.integer({ min: 0, max: 4_000_000_000_000 });
const command = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => makeCommandId(tag, bytes));
const cursor = fc.record({
  mark: time,
  sinceMs: time,
  told: fc.array(fc.tuple(command, fc.nat()), { maxLength: LIMITS.maxFollowedCommands }).map((pairs) => new Map(pairs)),
});

test('[DE4] any state of a conversation stream survives as an id that fits into a header and an event', () => {
  fc.assert(
    fc.property(cursor, (state) => {
      const text = formatCursor(state);
      expect(text).toMatch(/^[a-z0-9.,-]+$/);
      expect(text.length).toBeLessThan(LIMITS.maxCursorChars);
      expect(parseCursor(tag, text)).toEqual(state);
    }),
  );
});

test('[IS1] a cursor names commands of its own conversation only, and nonsense is none', () => {
  const id = makeCommandId(tag, new Uint8Array(16));
  const text = formatCursor({ mark: 1, sinceMs: 2, told: new Map([[id, 3]]) });
  expect([...(parseCursor(other, text)?.told.keys() ?? [])][0]).toMatch(`cmd_${other}_`);
  for (const wrong of [
    '',
    '1',
    '2.1.1.',
    '1.-1.1.',
    '1.1.1.x-1',
    '1.1.1..',
    '1.zzzzzzzzzzzz.1.',
    `${text}.`,
    `${text},`,
  ]) {
    expect(parseCursor(tag, wrong), wrong).toBeUndefined();
  }
});
