import { expect, test } from 'vitest';
import { parseLiveMessage } from '../../src/protocol/live-message.js';

test('a message of entries keeps its texts as they are', () => {
  expect(parseLiveMessage('e ses att cmd 2 4 90\n{"a":1}\n{"b":"c d"}')).toEqual({
    type: 'entries',
    sessionId: 'ses',
    attachmentId: 'att',
    commandId: 'cmd',
    fromSeq: 2,
    toSeq: 4,
    endOffset: 90,
    texts: '{"a":1}\n{"b":"c d"}',
  });
});

test('the attachment is empty while the session is away', () => {
  expect(parseLiveMessage('e ses  cmd 1 1 0\n{}')).toMatchObject({ attachmentId: '', commandId: 'cmd' });
});

test('moves, revs and closes are one line', () => {
  expect(parseLiveMessage('m att')).toEqual({ type: 'moved', attachmentId: 'att' });
  expect(parseLiveMessage('r 12')).toEqual({ type: 'rev', rev: 12 });
  expect(parseLiveMessage('x')).toEqual({ type: 'closing' });
});

test('[V1] what a newer version sends, and what is cut short, is nothing', () => {
  for (const raw of ['', 'z 1', 'e ses att cmd 1 1 0', 'e ses\n{}']) expect(parseLiveMessage(raw)).toBeUndefined();
});
