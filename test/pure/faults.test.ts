import { expect, test } from 'vitest';
import { parseShape } from '../../src/protocol/faults.js';
import { commandSpec, methods } from '../../src/protocol/methods.js';

const said = (value: unknown): string => {
  const parsed = parseShape(commandSpec, value);
  return parsed.ok ? 'nothing' : parsed.message;
};

test('a fault is one sentence with the field, the limit with its unit, and what was got', () => {
  expect(said({ argv: ['a'], timeouts: { runMs: 0 } })).toBe('timeouts.runMs: must be at least 1 ms, got 0 ms');
  expect(said({ argv: [] })).toBe('argv: must be at least 1 member, got 0 members');
  expect(said({ argv: ['a'], priority: '1' })).toBe('priority: must be a number, got "1"');
  expect(said({ argv: ['a'], streams: 'both' })).toBe('streams: must be "merged" or "split", got "both"');
  expect(said({ argv: ['a'], notify: { webhook: 'here' } })).toBe('notify.webhook: must be a URL, got "here"');
  expect(said({})).toBe('argv: exactly one of argv and script must be given');
  expect(said(7)).toBe('must be an object, got 7');
  expect(parseShape(methods['command.get'], {})).toMatchObject({
    message: 'commandId: is missing',
    field: 'commandId',
  });
});

test('[IS1] values that may be secret are told by their size alone', () => {
  for (const spec of [
    { argv: ['sudo hunter2\0'] },
    { argv: ['a'], env: { PASSWORD: 'hunter2\0' } },
    { argv: ['a'], secrets: { PASSWORD: 'hunter2\0' } },
    { script: 'echo hunter2\0' },
    { argv: ['a'], env: { 'hunter2 =': 'x' } },
  ]) {
    expect(said(spec)).not.toContain('hunter2\0');
    expect(said(spec)).toMatch(/, got \d+ characters?$/);
  }
  const long = parseShape(methods['session.refresh'], { token: 'x'.repeat(20_000) });
  expect(long).toMatchObject({ message: 'token: must be at most 16384 characters, got 20000 characters' });
});
