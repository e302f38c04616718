import { describe, expect, test } from 'vitest';
import { decideLive, endsWithEnded, type HeldSession } from '../../src/domain/routing.js';
import { holdStream, releaseStream } from '../../src/domain/stream.js';
import type { AttachmentId, CommandId, SessionId } from '../../src/protocol/ids.js';
import { parseLiveMessage } from '../../src/protocol/live-message.js';

const known = 'cmd_known' as CommandId;
const session: HeldSession = {
  sessionId: 'ses_mine' as SessionId,
  attachmentId: 'att_mine' as AttachmentId,
  rev: 3,
  streamOf: (commandId) => (commandId === known ? releaseStream(holdStream(0, 0)) : undefined),
  room: true,
};
const text = '{"jsonrpc":"2.0","method":"command.output","params":{"data":"hi"}}';
const decide = (raw: string) => {
  const message = parseLiveMessage(raw);
  if (message === undefined) throw new Error('not a live message');
  return decideLive(session, message);
};

describe('who gets what', () => {
  test('[OW9] entries of an owned command follow its stream', () => {
    const decision = decide(`e ses_mine att_mine cmd_known 1 1 2\n${text}`);
    expect(decision).toMatchObject({ type: 'stream', commandId: known, step: { type: 'forward' } });
  });

  test("[IS2] another session's entries are stale, whatever the command", () => {
    expect(decide(`e ses_other att_mine cmd_known 1 1 2\n${text}`).type).toBe('stale');
  });

  test('[SE1] entries published under another attachment, or while away, are stale', () => {
    expect(decide(`e ses_mine att_before cmd_known 1 1 2\n${text}`).type).toBe('stale');
    expect(decide(`e ses_mine  cmd_known 1 1 2\n${text}`).type).toBe('stale');
  });

  test('[S4] entries of a command nobody told of are not sent but ask who owns what', () => {
    const decision = decide(`e ses_mine att_mine cmd_new 4 5 2\n${text}`);
    expect(decision).toEqual({ type: 'unknown_command', commandId: 'cmd_new', toSeq: 5 });
  });

  test('[SE1] the attachment moved away: superseded; moved here: nothing', () => {
    expect(decide('m att_other').type).toBe('superseded');
    expect(decide('m att_mine').type).toBe('ignore');
  });

  test('[S4] only a higher rev asks for a fresh look', () => {
    expect(decide('r 4')).toEqual({ type: 'refresh', rev: 4 });
    expect(decide('r 3').type).toBe('ignore');
    expect(decide('x').type).toBe('closing');
  });
});

test('[DE2] ended is recognised as the last of several notifications, and not inside of output', () => {
  const ended = '{"jsonrpc":"2.0","method":"command.ended","params":{}}';
  expect(endsWithEnded(ended)).toBe(true);
  expect(endsWithEnded(`${text}\n${ended}`)).toBe(true);
  expect(endsWithEnded(`${ended}\n${text}`)).toBe(false);
  expect(endsWithEnded(text.replace('hi', '\\"method\\":\\"command.ended\\"'))).toBe(false);
});
