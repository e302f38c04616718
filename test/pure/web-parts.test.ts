/** The small parts of the web app: what is typed, what is said, what a token tells, and how a log gets into a terminal. */
import { describe, expect, it } from 'vitest';
import type { Entry } from '../../src/client/index.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { parseArgv, parseDuration } from '../../src/web/state/argv.js';
import { createEarlyEntries } from '../../src/web/state/early-entries.js';
import { createPageMemory } from '../../src/web/state/page-memory.js';
import { firstConversation, readFragment, readToken } from '../../src/web/state/token.js';
import { commandTitle, duration, gapSentence, sessionName, size } from '../../src/web/state/words.js';
import { type FeedProgress, startFeed } from '../../src/web/terminal/feed.js';
import { gapText } from '../../src/web/terminal/gap-text.js';
import { createPool } from '../../src/web/terminal/pool.js';
import { unsignedToken } from '../support/tokens.js';
import { until } from '../support/wait.js';

describe('a program line', () => {
  it.each([
    ['ls -la /tmp', ['ls', '-la', '/tmp']],
    [`grep 'a b' "c \\" d" e\\ f`, ['grep', 'a b', 'c " d', 'e f']],
    [`x '' ""`, ['x', '', '']],
    [`a'b'"c"`, ['abc']],
    ['  echo   $HOME  ', ['echo', '$HOME']],
  ])('%s', (line, argv) => {
    expect(parseArgv(line)).toEqual({ ok: true, argv });
  });

  it.each([`'open`, '"open', 'end\\', '   '])('is refused with a sentence: %j', (line) => {
    expect(parseArgv(line)).toEqual({ ok: false, message: expect.stringMatching(/\.$/) });
  });

  it('is what its title says, back and forth', () => {
    for (const argv of [
      ['a', 'b c', ''],
      ["it's", '$x', '"'],
    ]) {
      expect(parseArgv(commandTitle({ argv }))).toEqual({ ok: true, argv });
    }
  });

  it('knows durations', () => {
    expect(['90', '90s', '1.5m', '2h', '10ms'].map(parseDuration)).toEqual([90_000, 90_000, 90_000, 7_200_000, 10]);
    expect(['', 'soon', '-1', '0', '5d'].map(parseDuration)).toEqual(Array(5).fill(undefined));
  });
});

describe('words', () => {
  it('say sizes and times in the unit a reader expects', () => {
    expect([0, 999, 1_000, 12_345, 9_950_000, 50_000_000].map(size)).toEqual([
      '0 B',
      '999 B',
      '1.0 kB',
      '12 kB',
      '9.9 MB',
      '50 MB',
    ]);
    expect([5, 4_250, 59_999, 187_000, 7_500_000].map(duration)).toEqual([
      '5 ms',
      '4.2 s',
      '59 s',
      '3 min 07 s',
      '2 h 05 min',
    ]);
  });

  it('name tabs from where the reader stands', () => {
    const mine = { sessionId: 'ses_a_1111', formerSessionIds: ['ses_a_0000'] };
    expect(['ses_a_1111', 'ses_a_0000', 'ses_a_2222', null, undefined].map((id) => sessionName(id, mine))).toEqual([
      'this tab',
      'this tab, before',
      'tab 2222',
      'nobody',
      'not known yet',
    ]);
  });

  it('[DE3] a gap says how much is missing, and why, on a line of its own', () => {
    expect(gapSentence(1_234_567, 'flood')).toBe('1,234,567 bytes left out: written faster than can be kept');
    expect(gapSentence(undefined, 'trimmed')).toContain('some output no longer kept');
    expect(gapText({ bytes: 5, reason: 'spool' }, true)).not.toContain('\x1b[0m\r\n\x1b[7m');
    expect(gapText({ bytes: 5, reason: 'spool' }, false)).toContain('\x1b[0m\r\n\x1b[7m');
  });
});

describe('a token', () => {
  it('comes in the fragment, with or without a conversation', () => {
    expect(readFragment('#token=a.b-c_d.e')).toEqual({ token: 'a.b-c_d.e' });
    expect(readFragment('#token=t&conversation=my-chat')).toEqual({ token: 't', conversation: 'my-chat' });
    expect(readFragment('#conversation=no%20name')).toEqual({});
    expect(readFragment('')).toEqual({});
  });

  it('says who acts, until when and where to begin', () => {
    const facts = readToken(unsignedToken({ sub: 'änn', conversations: ['team-*', 'chat'], scope: 'read' }));
    expect(facts).toMatchObject({ principal: 'änn', scopes: ['read'], pools: ['default'] });
    expect(facts?.expiresAtMs).toBeGreaterThan(Date.now());
    expect(firstConversation(facts)).toBe('chat');
    expect(firstConversation(undefined)).toBe('default');
    expect(readToken('no token')).toBeUndefined();
  });

  it('a storage that is forbidden or holds nonsense costs comfort only', () => {
    const broken = {
      getItem: () => '{"conversations": 7',
      setItem: () => {
        throw new Error('full');
      },
      removeItem: () => undefined,
    };
    const memory = createPageMemory(broken, broken);
    memory.setToken('t');
    expect(memory.token()).toBeUndefined();
    expect(memory.page()).toBeUndefined();
    expect(memory.conversation('x')).toEqual({ notices: [], formerSessionIds: [] });
    expect(memory.taste().theme).toBe('system');
  });
});

describe('a feed', () => {
  const output = (seq: number, data: string): Entry => ({
    type: 'output',
    commandId: 'cmd' as CommandId,
    seq,
    ts: 0,
    at: 0,
    stream: 'out',
    data,
  });

  /** A log whose entries are there at once, and a terminal that works them off when it is told to. */
  function setUp(entries: readonly Entry[]) {
    const written: (() => void)[] = [];
    const progress: FeedProgress[] = [];
    let given = 0;
    const log = {
      headSeq: () => entries.length,
      next: () =>
        given < entries.length
          ? Promise.resolve({ done: false as const, value: entries[given++] as Entry })
          : new Promise<never>(() => {}),
    };
    const feed = startFeed(log, {
      write: () => new Promise((resolve) => written.push(resolve)),
      onProgress: (next) => progress.push(next),
    });
    return { feed, written, progress, given: () => given };
  }

  it('[CO7] reads no further than a bound ahead of its terminal, and goes on when that has worked', async () => {
    const piece = 'x'.repeat(64 * 1024);
    const { feed, written, given } = setUp(Array.from({ length: 40 }, (_, i) => output(i + 1, piece)));
    await until('the bound', () => written.length === 4);
    await new Promise(setImmediate);
    expect(given()).toBe(4);
    for (const done of written.splice(0)) done();
    await until('the next ones', () => written.length === 4);
    expect(given()).toBe(8);
    feed.close();
  });

  it('[DE4] reads nothing while it is paused, and goes on at the same place', async () => {
    const { feed, written, given, progress } = setUp(Array.from({ length: 10 }, (_, i) => output(i + 1, 'x')));
    feed.pause(true);
    await until('the pause', () => progress.at(-1)?.state === 'paused');
    const before = given();
    await new Promise(setImmediate);
    expect(given()).toBe(before);
    feed.pause(false);
    await until('the rest', () => written.length === 10);
    expect(progress.at(-1)).toMatchObject({ state: 'live', seq: 10 });
    feed.close();
  });
});

it('a pool keeps the latest and closes what it drops', () => {
  const closed: string[] = [];
  const pool = createPool<{ close(): void }>(2);
  const use = (key: string) => pool.use(key, () => ({ close: () => closed.push(key) }));
  use('a');
  use('b');
  use('a');
  use('c');
  expect(closed).toEqual(['b']);
  pool.clear();
  expect(closed).toEqual(['b', 'a', 'c']);
});

describe('the first entries of a command', () => {
  const output = (commandId: string, seq: number, data = 'x'): Entry =>
    ({ type: 'output', commandId, seq, ts: 1, at: 0, stream: 'out', data }) as Entry;

  it('are kept for its terminal, once, and only of the command that was run last', () => {
    const early = createEarlyEntries(10_000);
    early.begin('a');
    early.keep(output('a', 1));
    early.keep(output('other', 1));
    early.begin('b');
    early.keep(output('b', 1));
    early.keep(output('a', 2));
    expect(early.take('a')).toBeUndefined();
    expect(early.take('b')).toEqual([output('b', 1)]);
    expect(early.take('b')).toBeUndefined();
  });

  it('are given up where they are too many: then the log has them', () => {
    const early = createEarlyEntries(10_000);
    early.begin('a');
    for (let seq = 1; seq <= 3; seq += 1) early.keep(output('a', seq, 'x'.repeat(2_000)));
    expect(early.take('a')).toBeUndefined();
  });
});
