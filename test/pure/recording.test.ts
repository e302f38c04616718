/** The checks that journeys rely on notice what they are for: each gets a good recording and spoilt copies of it. */
import { describe, expect, it } from 'vitest';
import { type Arrival, answerOrderFaults, deliveryFaults, foreignFaults, lateFaults } from '../support/recording.js';

const ID = 'cmd_a';
let at = 0;
// biome-ignore lint/suspicious/noExplicitAny: hand-made arrivals
const arrive = (method: string, params: any, more: Partial<Arrival> = {}): Arrival => {
  at += 1;
  return { at, timeMs: at, connection: 1, type: 'notification', method, params, ...more };
};
const output = (seq: number, offset: number, data: string) =>
  arrive('command.output', { commandId: ID, seq, at: offset, stream: 'out', data });

/** A run of five entries, as a node should send them. */
const good = (): Arrival[] => [
  arrive('command.run', { commandId: ID }, { type: 'answer' }),
  arrive('command.started', { commandId: ID, seq: 1, pid: 1 }),
  output(2, 0, 'one\n'),
  output(3, 4, 'zwölf\n'),
  arrive('command.gap', { commandId: ID, seq: 6, fromSeq: 4, toSeq: 6, bytes: 90, reason: 'flood' }),
  output(7, 101, 'last\n'),
  arrive('command.ended', { commandId: ID, seq: 8, outcome: { reason: 'exited', outputBytes: 106 } }),
];
const faults = (recording: Arrival[]) => deliveryFaults(recording, { commandId: ID, gaps: true });
/** The good recording with one thing done to it. */
const spoilt = (spoil: (recording: Arrival[]) => void) => {
  const recording = good();
  spoil(recording);
  return recording;
};

describe('checks of a recording', () => {
  it('[DE1] a delivery without fault is found without fault', () => {
    expect(faults(good())).toEqual([]);
    expect(answerOrderFaults(good())).toEqual([]);
    expect(foreignFaults(good(), [ID])).toEqual([]);
  });

  it.each<[string, (recording: Arrival[]) => void]>([
    ['[DE1] twin: an entry that is missing', (r) => r.splice(2, 1)],
    ['[DE1] twin: an entry that came twice', (r) => r.splice(3, 0, r[2] as Arrival)],
    ['[DE1] twin: an entry that came again later', (r) => r.push(r[2] as Arrival)],
    ['[DE1] twin: two entries in the wrong order', (r) => r.splice(2, 2, r[3] as Arrival, r[2] as Arrival)],
    ['[DE1] twin: bytes that do not follow on', (r) => r.splice(3, 1, output(3, 5, 'zwölf\n'))],
    ['[DE2] twin: no ending', (r) => r.pop()],
    ['[DE2] twin: two endings', (r) => r.push(r.at(-1) as Arrival)],
    ['[DE2] twin: output after the ending', (r) => r.push(output(9, 106, 'late\n'))],
    [
      '[DE3] twin: a gap that does not begin where the entries stopped',
      (r) => {
        r.splice(4, 1, arrive('command.gap', { commandId: ID, seq: 6, fromSeq: 5, toSeq: 6, bytes: 90 }));
      },
    ],
    [
      '[DE3] twin: a gap that hides more bytes than it says',
      (r) => {
        r.splice(4, 1, arrive('command.gap', { commandId: ID, seq: 6, fromSeq: 4, toSeq: 6, bytes: 80 }));
      },
    ],
  ])('%s is noticed', (_title, spoil) => {
    expect(faults(spoilt(spoil))).not.toEqual([]);
  });

  it('[DE3] twin: a gap is a fault where every byte must come', () => {
    expect(deliveryFaults(good(), { commandId: ID })).toHaveLength(1);
  });

  it('[IS2] twin: one foreign entry or change of owner among the own is noticed', () => {
    for (const method of ['command.output', 'command.ended', 'command.owner', 'command.gap']) {
      const recording = spoilt((r) => r.splice(3, 0, arrive(method, { commandId: 'cmd_b', seq: 1 })));
      expect(foreignFaults(recording, [ID])).toHaveLength(1);
    }
  });

  it('[SE1] twin: an event on a connection that lost its session is noticed', () => {
    const recording = good();
    const since = (recording[4] as Arrival).timeMs;
    expect(lateFaults(recording, 1, since)).toHaveLength(2);
    expect(lateFaults(recording, 2, since)).toEqual([]);
  });

  it('[DE1] twin: an entry before the answer that causes it is noticed', () => {
    const recording = good();
    const early = { ...(recording[1] as Arrival), at: 0 };
    expect(answerOrderFaults([early, ...recording])).toHaveLength(1);
  });
});
