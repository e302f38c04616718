/** What becomes of entries as text and bytes. */
import { expect, test } from 'vitest';
import { createLogReader } from '../../src/client/log-reader.js';
import { createOutputReader } from '../../src/client/output.js';
import { createSseReader } from '../../src/client/sse-reader.js';
import type { Entry } from '../../src/protocol/entries.js';

const base = { commandId: 'cmd' as never, ts: 1 };
const bytes = (seq: number, data: Uint8Array, stream: 'out' | 'err' = 'out'): Entry => ({
  ...{ ...base, seq, type: 'output', at: 0, stream },
  base64: Buffer.from(data).toString('base64'),
});
const gap = (seq: number): Entry => ({
  ...base,
  type: 'gap',
  seq,
  fromSeq: seq,
  toSeq: seq,
  bytes: 9,
  reason: 'flood',
});
const ended = (seq: number): Entry => ({ ...base, type: 'ended', seq, outcome: {} as never });

function readerOf(entries: readonly Entry[]) {
  const consumed: number[] = [];
  const log = createLogReader(0, 1_000_000, {
    fetchPage: () => Promise.reject(new Error('nothing is missing')),
    onConsumed: (seq) => consumed.push(seq),
    onActive: () => undefined,
  });
  for (const entry of entries) log.offer(entry);
  return { consumed, log, output: createOutputReader(log) };
}
async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

const half = [Uint8Array.of(0xc3), Uint8Array.of(0xa4)] as const;

test('[DE3] text says where output is missing, in its own line or as the application wants it', async () => {
  const entries = [bytes(1, Buffer.from('head')), gap(2), bytes(3, Buffer.from('tail')), ended(4)];
  const said = '\n[homing: 9 bytes of output are missing here (flood)]\n';
  expect((await all(readerOf(entries).output.text())).join('')).toBe(`head${said}tail`);
  const own = readerOf(entries).output.text({ onGap: (missing) => `<${missing.bytes}>` });
  expect((await all(own)).join('')).toBe('head<9>tail');
});

test('[DE3] bytes leave nothing out without saying so', async () => {
  const told: unknown[] = [];
  const parts = await all(
    readerOf([bytes(1, half[0]), gap(2), ended(3)]).output.bytes({ onGap: (missing) => told.push(missing) }),
  );
  expect(Buffer.concat(parts)).toEqual(Buffer.from(half[0]));
  expect(told).toMatchObject([{ fromSeq: 2, toSeq: 2, bytes: 9 }]);
});

test('a character in two pieces is one, for each stream on its own, and one that stays half is shown as such', async () => {
  const entries = [
    bytes(1, half[0]),
    bytes(2, Buffer.from('!'), 'err'),
    bytes(3, half[1]),
    bytes(4, half[0]),
    ended(5),
  ];
  expect((await all(readerOf(entries).output.text())).join('')).toBe('!ä\ufffd');
});

test('[DE6] what a loop was given counts as consumed when it comes back or leaves, and not what it never got', async () => {
  const { output, consumed } = readerOf([bytes(1, Buffer.from('a')), bytes(2, Buffer.from('b'))]);
  for await (const piece of output.text()) {
    expect([piece, consumed]).toEqual(['a', []]);
    break;
  }
  expect(consumed).toEqual([1]);
  expect((await output.items().next()).value).toMatchObject({ text: 'b' });
});

test('a loop that is aborted while it waits leaves what comes next to the next loop', async () => {
  const { output, log, consumed } = readerOf([]);
  const stop = new AbortController();
  const waiting = expect(all(output.text({ signal: stop.signal }))).rejects.toThrow('enough');
  await Promise.resolve();
  stop.abort(new Error('enough'));
  await waiting;
  log.offer(bytes(1, Buffer.from('late')));
  await new Promise((resolve) => setTimeout(resolve, 0));
  expect(consumed).toEqual([]);
  log.offer(ended(2));
  expect(await all(output.text())).toEqual(['late']);
});

test('server-sent events are read whatever the pieces and the line ends are', () => {
  const text =
    'retry: 700\n\n: a comment\r\nevent: x\rid: 1\ndata: {"ä":\ndata: 1}\n\ndata: two\r\n\r\nid: 3\n\nevent: lost\n';
  const wanted = [
    { event: 'x', data: '{"ä":\n1}', lastEventId: '1' },
    { event: 'message', data: 'two', lastEventId: '1' },
  ];
  const whole = Buffer.from(text);
  for (let split = 0; split <= whole.length; split += 1) {
    const reader = createSseReader();
    const events = [...reader.push(whole.subarray(0, split)), ...reader.push(whole.subarray(split))];
    expect(events, `split at ${split}`).toEqual(wanted);
    expect(reader.retryMs()).toBe(700);
  }
});
