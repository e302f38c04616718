/** Bounds and ends of event streams, without a network. */
import { expect, test } from 'vitest';
import { AppError } from '../../src/errors.js';
import { createEventStreams, type Pace } from '../../src/gateway/event-streams.js';
import { eventText } from '../../src/gateway/sse.js';
import { serializeEntry } from '../../src/protocol/entries.js';
import { LIMITS } from '../../src/protocol/limits.js';
import { ANONYMOUS } from '../../src/protocol/token.js';
import { silentLog } from '../support/stores.js';
import { until } from '../support/wait.js';

const gauges = new Map<string, number>();
const meter = { count() {}, gauge: (name: string, value: number) => void gauges.set(name, value), observe() {} };
const create = () => createEventStreams({ log: silentLog, meter, now: Date.now, random: () => 0 });

async function* idle(pace: Pace): AsyncGenerator<string> {
  while (await pace.next()) yield '';
}

test('[DE5] one principal has a bounded number of streams at a node; others are not concerned, and ends make room', async () => {
  const streams = create();
  const bob = { ...ANONYMOUS, principal: 'bob' };
  const open = Array.from({ length: LIMITS.maxEventStreams }, () => streams.open(ANONYMOUS, idle));
  expect(() => streams.open(ANONYMOUS, idle)).toThrow(
    `at most ${LIMITS.maxEventStreams} event streams of one principal at a node, got ${LIMITS.maxEventStreams + 1}`,
  );
  open.push(streams.open(bob, idle));
  open[0]?.destroy();
  await until('room', () => gauges.get('homing_event_streams') === LIMITS.maxEventStreams);
  streams.open(ANONYMOUS, idle).destroy();
  for (const stream of open) stream.destroy();
  await until('all of them gone', () => gauges.get('homing_event_streams') === 0);
  streams.close();
});

test('[SE6] a drain ends every stream, also one whose reader does not read', async () => {
  const streams = create();
  const read = streams.open(ANONYMOUS, idle).resume();
  streams.drain(10);
  await until('its end', () => read.readableEnded);
  streams.close();
});

test('a look that finds Redis away is made again later, and our own faults are not hidden', async () => {
  const streams = create();
  const looks: number[] = [];
  let away = true;
  const stream = streams.open(ANONYMOUS, async function* (pace) {
    while (await pace.next()) {
      looks.push(performance.now());
      const found = await pace.attempt(async () => {
        if (away) throw new AppError('REDIS_UNAVAILABLE', 'away');
        return 'found';
      });
      yield found === 'failed' ? '' : 'x';
      if (found !== 'failed') return;
    }
  });
  let text = '';
  stream.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  await until('the first look', () => looks.length === 1);
  away = false;
  await until('the end', () => stream.readableEnded);
  expect(text).toMatch(/^retry: \d+\n\nx$/);
  expect((looks[1] ?? 0) - (looks[0] ?? 0)).toBeGreaterThan(900);

  const faulty = streams.open(ANONYMOUS, async function* (pace) {
    await pace.attempt(() => Promise.reject(new TypeError('a bug')));
    yield 'never';
  });
  const failed = new Promise((resolve) => faulty.once('error', resolve));
  faulty.resume();
  expect(await failed).toBeInstanceOf(TypeError);
  streams.close();
});

test('[DE1] an event is cut from the stored text without being parsed, whatever is in it', () => {
  const data = 'quotes " and \\ and "params":{ and "method":" and\nbreaks \u2028';
  const entry = { type: 'output', commandId: 'cmd' as never, seq: 7, ts: 1, at: 0, stream: 'out', data } as const;
  const [event, id, body, ...rest] = eventText(serializeEntry(entry), '7').split('\n');
  expect([event, id, rest]).toEqual(['event: command.output', 'id: 7', ['', '']]);
  const { type: _, ...params } = entry;
  expect(JSON.parse((body ?? '').slice('data: '.length))).toEqual(params);
});
