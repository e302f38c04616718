/** The checks after random faults notice what they are there for, and a seed means the same schedule every time. */
import { describe, expect, it } from 'vitest';
import { commandFaults, type Listed, type Page, type Tally } from '../support/fault-checks.js';
import type { Asked, Seen } from '../support/fault-load.js';
import { createSchedule } from '../support/fault-schedule.js';
import { createSeeded } from '../support/seeded.js';

const OUTPUT = 'app0.1 1\napp0.1 2\n';
const entry = (type: string, seq: number, more: Partial<Seen> = {}): Seen => ({
  ...{ type, fromSeq: seq, seq, ts: seq, arrivedMs: seq, view: false },
  ...more,
});
const output = (seq: number, at: number, text: string) => entry('output', seq, { at, bytes: Buffer.from(text) });
const whole = (): Seen[] => [
  entry('started', 1),
  output(2, 0, 'app0.1 1\n'),
  output(3, 9, 'app0.1 2\n'),
  entry('ended', 4),
];
const page = (name: string, seen: readonly Seen[], more: Partial<Page> = {}): Page => ({
  ...{ name, principal: 'ann', conversation: 'talk', state: 'open' as const },
  seen: new Map(seen.length === 0 ? [] : [['cmd', [...seen]]]),
  ...more,
});
const listed: Listed = {
  ...{ commandId: 'cmd', label: 'app0.1', principal: 'ann', conversation: 'talk', state: 'ended', reason: 'exited' },
  ...{ code: 0, workerId: 'wrk', headSeq: 4, text: OUTPUT, starts: 1 },
};

function faultsOf(pages: readonly Page[], command: Partial<Listed> = {}, byState: Page['state'] = 'open') {
  const tally: Tally = { delivered: 0, lost: 0, duplicated: 0, misdelivered: 0 };
  const asked = { label: 'app0.1', output: OUTPUT, code: 0, by: { name: 'app0', state: byState }, killed: false };
  const faults = commandFaults({ ...listed, ...command }, asked as unknown as Asked, pages, new Set(['harmed']), tally);
  return { faults: faults.map((fault) => fault.slice('app0.1 (cmd): '.length)), tally };
}

describe('after random faults', () => {
  it('[DE1] nothing is said of a command that came whole, nor of one that moved with what was not consumed', () => {
    expect(faultsOf([page('app0', whole())])).toEqual({
      faults: [],
      tally: { delivered: 4, lost: 0, duplicated: 0, misdelivered: 0 },
    });
    const former = page('app0', whole().slice(0, 2), { state: 'closed' });
    const heir = page('app1', whole().slice(1));
    expect(faultsOf([former, heir], {}, 'closed').faults).toEqual([]);
  });

  it('[DE1] [DE3] a hole, a repeat, a gap, other bytes and nothing at all are each said and counted', () => {
    const without = (seq: number) => whole().filter((one) => one.seq !== seq);
    expect(faultsOf([page('app0', without(3))])).toMatchObject({
      faults: [matching(/seqs 3 to 3/)],
      tally: { lost: 1 },
    });
    expect(faultsOf([page('app0', [...whole().slice(0, 2), ...whole().slice(1)])])).toMatchObject({
      faults: expect.arrayContaining([matching(/seq 2 came again/)]),
      tally: { duplicated: 1 },
    });
    const gap = [whole()[0] as Seen, entry('gap', 3, { fromSeq: 2, reason: 'spool' }), whole()[3] as Seen];
    expect(faultsOf([page('app0', gap)]).faults).toEqual([matching(/a gap at 2–3: spool/)]);
    const other = whole().map((one) => (one.seq === 3 ? output(3, 9, 'app9.9 2\n') : one));
    expect(faultsOf([page('app0', other)]).faults).toEqual([matching(/not those of the log/)]);
    expect(faultsOf([page('app0', [])])).toMatchObject({ tally: { lost: 4 } });
    expect(faultsOf([page('app0', whole().slice(0, 3))]).faults).toEqual([
      matching(/nobody saw 4 to 4/),
      matching(/no application saw its end/),
    ]);
  });

  it('[IS2] [OW1] a stranger, and a tab that is not the owner, are each said and counted', () => {
    const stranger = page('app7', whole(), { principal: 'bob' });
    expect(faultsOf([page('app0', whole()), stranger]).tally.misdelivered).toBe(8);
    const sibling = page('app1', whole().slice(2));
    expect(faultsOf([page('app0', whole()), sibling]).faults).toEqual([matching(/app1 got it, though app0/)]);
  });

  it('[CO2] [CO3] [CO8] a second start, another code, and an ending without a cause are each said', () => {
    const pages = [page('app0', whole())];
    expect(faultsOf(pages, { starts: 2 }).faults).toEqual(['it was started 2 times']);
    expect(faultsOf(pages, { code: 3 }).faults).toEqual(['it exited with 3, not 0']);
    expect(faultsOf(pages, { text: 'app0.1 1\n' }).faults).toContainEqual(matching(/its log has 9 bytes/));
    expect(faultsOf(pages, { reason: 'cancelled' }).faults).toEqual([matching(/nobody asked/)]);
    expect(faultsOf(pages, { reason: 'lost' }).faults).toEqual([matching(/nothing happened to its worker/)]);
    expect(faultsOf(pages, { reason: 'lost', workerId: 'harmed' }).faults).toEqual([]);
    expect(faultsOf(pages, { reason: 'spawn_failed' }).faults).toEqual(['it ended as spawn_failed']);
  });
});

describe('a schedule', () => {
  const world = { nodes: 2, workers: 2, tabs: 8 };
  const drawn = (seed: number) => createSchedule(createSeeded(seed).fork('faults'), 60_000, world);

  it('is the same for the same seed, another for another, and breaks nothing twice at a time', () => {
    expect(drawn(7)).toEqual(drawn(7));
    expect(drawn(7)).not.toEqual(drawn(8));
    for (const seed of [1, 2, 3]) {
      const until = new Map<string, number>();
      for (const { target, atMs, forMs } of drawn(seed)) {
        const name = JSON.stringify(target);
        expect(atMs).toBeGreaterThanOrEqual(until.get(name) ?? 0);
        until.set(name, atMs + forMs);
      }
    }
  });

  it('has every kind of fault at every part in a few minutes', () => {
    const kinds = new Set([1, 2, 3, 4, 5].flatMap(drawn).map(({ kind, target }) => `${kind} ${target.part}`));
    expect(kinds.size).toBe(3 * 4 + 3 * 3);
  });
});

const matching = (pattern: RegExp) => expect.stringMatching(pattern);
