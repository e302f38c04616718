import type { Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import type { WebSocket } from 'ws';
import { type Address, createOutbox, timeOf } from '../../src/gateway/outbox.js';
import { serializeEntry } from '../../src/protocol/entries.js';
import { type CommandId, makeCommandId, tagFromDigest } from '../../src/protocol/ids.js';

/** A socket whose peer takes what is sent only when told to. */
function setUp(options: { limitBytes?: number; permits?: (address: Address) => boolean } = {}) {
  const frames: string[] = [];
  const callbacks: (() => void)[] = [];
  const observed: [string, number][] = [];
  let rooms = 0;
  const socket = {
    send(data: Buffer, _options: object, done: () => void) {
      frames.push(data.toString());
      callbacks.push(done);
    },
  } as unknown as WebSocket;
  const stream = { cork() {}, uncork() {} } as unknown as Socket;
  const outbox = createOutbox({
    meter: { count() {}, gauge() {}, observe: (name, value) => void observed.push([name, value]) },
    socket,
    stream,
    limitBytes: options.limitBytes ?? 1_000,
    host: {
      permits: options.permits ?? (() => true),
      onRoom() {
        rooms += 1;
      },
    },
  });
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const take = () => {
    for (const done of callbacks.splice(0)) done();
  };
  return { outbox, frames, observed, turn, take, rooms: () => rooms };
}

const commandId: CommandId = makeCommandId(tagFromDigest(new Uint8Array(32)), new Uint8Array(16));
const mine: Address = { type: 'owner', sessionId: 's', attachmentId: 'a' };
const other: Address = { type: 'owner', sessionId: 't', attachmentId: 'a' };

test('what is put in leaves in the same order, each notification in its own frame', async () => {
  const { outbox, frames, turn } = setUp();
  outbox.answer('{"id":1}');
  outbox.entries(['{"seq":1}', '{"seq":2}'], mine);
  outbox.notice('{"n":1}');
  await turn();
  expect(frames).toEqual(['{"id":1}', '{"seq":1}', '{"seq":2}', '{"n":1}']);
});

test('where batches were asked for, notifications of one turn are one array, and answers stay alone', async () => {
  const { outbox, frames, turn } = setUp();
  outbox.useBatches();
  outbox.entries(['{"seq":1}', '{"seq":2}'], mine);
  outbox.notice('{"n":1}');
  outbox.answer('{"id":1}');
  outbox.entries(['{"seq":3}'], mine);
  await turn();
  expect(frames).toEqual(['[{"seq":1},{"seq":2},{"n":1}]', '{"id":1}', '{"seq":3}']);
});

test('[IS2] an entry for another session is not sent, whoever put it in', async () => {
  const { outbox, frames, turn } = setUp({ permits: (address) => address === mine });
  outbox.entries(['{"seq":1}'], other);
  outbox.entries(['{"seq":2}'], mine);
  await turn();
  expect(frames).toEqual(['{"seq":2}']);
  expect(outbox.waitingBytes()).toBe('{"seq":2}'.length);
});

test('[DE5] there is no room above the limit, and again when half of it was taken', async () => {
  const { outbox, turn, take, rooms } = setUp({ limitBytes: 10 });
  expect(outbox.room()).toBe(true);
  outbox.entries(['éééééé'], mine); // twelve bytes, six characters
  expect(outbox.waitingBytes()).toBe(12);
  expect(outbox.room()).toBe(false);
  await turn();
  expect(rooms()).toBe(0);
  take();
  expect(rooms()).toBe(1);
  expect(outbox.room()).toBe(true);
  expect([outbox.waitingBytes(), outbox.takenBytes()]).toEqual([0, 12]);
});

test('after it was closed nothing leaves', async () => {
  const { outbox, frames, turn } = setUp();
  outbox.notice('{"n":1}');
  outbox.close();
  outbox.notice('{"n":2}');
  await turn();
  expect(frames).toEqual([]);
});

test('how long an entry took from its worker is measured by samples of what is live, and never below zero', async () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  const { outbox, observed, turn } = setUp();
  const textAt = (ts: number) =>
    serializeEntry({ type: 'output', commandId, seq: 1, ts, at: 0, stream: 'out', data: '"ts":5' });
  outbox.entries([textAt(Date.now() - 60_000)], mine);
  outbox.entries([textAt(Date.now() - 2_000), textAt(Date.now())], mine, true);
  await turn();
  expect(observed).toHaveLength(1);
  expect(observed[0]?.[1]).toBeCloseTo(2, 0);
  outbox.entries([textAt(Date.now())], mine, true);
  await turn();
  expect(observed).toHaveLength(1);
  vi.setSystemTime(Date.now() + 10);
  outbox.entries([textAt(Date.now() + 60_000)], mine, true);
  await turn();
  vi.useRealTimers();
  expect(observed[1]).toEqual(['homing_delivery_seconds', 0]);
});

test('the time of an entry is found without parsing it, whatever its command prints', () => {
  const entry = { commandId, seq: 7, ts: 1_764_000_000_123 };
  for (const text of [
    serializeEntry({ type: 'output', ...entry, at: 0, stream: 'out', data: '"ts":1' }),
    serializeEntry({ type: 'heartbeat', ...entry, elapsedMs: 1, bytesSinceLast: 0 }),
  ]) {
    expect(timeOf(Buffer.from(text))).toBe(entry.ts);
  }
  expect(timeOf(Buffer.from('{"seq":1}'))).toBeUndefined();
  expect(timeOf(Buffer.from('{"ts":null}'))).toBeUndefined();
});
