import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createSpool, type SpoolEntry, type SpoolOptions } from '../../src/domain/spool.js';

const KIB = 1024;
const started = { type: 'started', pid: 1, workerId: 'w', containment: 'group' } as const;
const ended = {
  type: 'ended',
  outcome: { reason: 'exited', code: 0, signal: null, durationMs: 1, outputBytes: 0, tail: '', leftovers: 0 },
} as const;
const output = (bytes: number, fill = 0) =>
  ({ type: 'output', stream: 'out', bytes: new Uint8Array(bytes).fill(fill) }) as const;

const make = (options: Partial<SpoolOptions> = {}) =>
  createSpool({ spoolBytes: 64 * KIB, firstBytes: 0, lastBytes: 16 * KIB, rewindBytes: 32 * KIB, ...options });

const bytesOf = (entry: SpoolEntry) => entry.endOffset - (entry.startOffset ?? Number.NaN);
const sizes = (entries: readonly SpoolEntry[]) => entries.map((entry) => [entry.fromSeq, entry.seq, entry.body.type]);

function takeAll(spool: ReturnType<typeof make>): SpoolEntry[] {
  const all: SpoolEntry[] = [];
  while (!spool.drained) {
    const batch = spool.take(8 * KIB, 4);
    all.push(...batch);
    spool.confirm(batch.at(-1)!.seq, 0);
  }
  return all;
}

describe('the spool', () => {
  it('numbers entries from 1 and hands them out in order', () => {
    const spool = make();
    spool.add(started, 5, 'flood');
    spool.add(output(10), 6, 'flood');
    spool.add(ended, 7, 'flood');
    expect(sizes(takeAll(spool))).toEqual([
      [1, 1, 'started'],
      [2, 2, 'output'],
      [3, 3, 'ended'],
    ]);
  });

  it('hands out the same entries again until they are confirmed', () => {
    const spool = make();
    spool.add(output(10), 0, 'flood');
    const first = spool.take(KIB, 10);
    spool.add(output(10), 0, 'flood');
    expect(spool.take(KIB, 1)).toEqual(first);
  });

  it('[CO7] replaces the oldest never-sent output by one gap and keeps the newest last bytes', () => {
    const spool = make();
    spool.add(started, 0, 'flood');
    for (let i = 0; i < 70; i++) spool.add(output(KIB), 0, 'flood');
    const all = takeAll(spool);
    expect(sizes(all.slice(0, 3))).toEqual([
      [1, 1, 'started'],
      [2, expect.any(Number), 'gap'],
      [expect.any(Number), expect.any(Number), 'output'],
    ]);
    expect(all.filter((entry) => entry.body.type === 'gap')).toHaveLength(1);
    expect(all.slice(1).reduce((sum, entry) => sum + bytesOf(entry), 0)).toBe(70 * KIB);
    const kept = all.slice(2).reduce((sum, entry) => sum + bytesOf(entry), 0);
    expect(kept).toBeGreaterThanOrEqual(12 * KIB);
  });

  it.each([
    ['at once', 1],
    ['while some of it leaves', 16],
  ])('[CO7] keeps the first bytes of a flood as well, %s', (_when, every) => {
    const spool = make({ firstBytes: 8 * KIB });
    const sent: SpoolEntry[] = [];
    for (let i = 0; i < 500; i++) {
      spool.add(output(KIB), 0, 'flood');
      if (every === 1 || i % every !== 0 || i > 3 * every) continue;
      const batch = spool.take(KIB, 1);
      sent.push(...batch);
      spool.confirm(batch.at(-1)!.seq, 0);
    }
    const all = [...sent, ...takeAll(spool)];
    expect(all.slice(0, 8).map(({ body }) => body.type)).toEqual(Array(8).fill('output'));
    expect(all.filter(({ body }) => body.type === 'gap')).toMatchObject([{ startOffset: 8 * KIB }]);
    expect(all.reduce((sum, entry) => sum + bytesOf(entry), 0)).toBe(500 * KIB);
  });

  it('[CO7] never changes what was sent once', () => {
    const spool = make();
    for (let i = 0; i < 3; i++) spool.add(output(KIB, 1), 0, 'flood');
    const sent = spool.take(100 * KIB, 3);
    for (let i = 0; i < 200; i++) spool.add(output(KIB), 0, 'spool');
    expect(spool.take(100 * KIB, 3)).toEqual(sent);
    const all = takeAll(spool);
    expect(all[3]).toMatchObject({ fromSeq: 4, body: { type: 'gap', reason: 'spool' } });
  });

  it('[CO7] merges a gap with the one before it', () => {
    const spool = make();
    for (let i = 0; i < 1000; i++) spool.add(output(KIB), 0, 'flood');
    const all = takeAll(spool);
    expect(all.filter((entry) => entry.body.type === 'gap')).toHaveLength(1);
    expect(all[0]).toMatchObject({ fromSeq: 1, startOffset: 0 });
  });

  it('bounds many tiny entries too', () => {
    const spool = make();
    for (let i = 0; i < 10_000; i++) spool.add(output(1), 0, 'spool');
    expect(spool.waitingBytes).toBeLessThanOrEqual(64 * KIB);
    expect(takeAll(spool).length).toBeLessThan(300);
  });

  it('[DE1] rewinds to the same seq and content', () => {
    const spool = make();
    for (let i = 0; i < 10; i++) spool.add(output(KIB, i), i, 'flood');
    const all = takeAll(spool);
    spool.rewind(4, 99);
    expect(spool.drained).toBe(false);
    expect(takeAll(spool)).toEqual(all.slice(4));
  });

  it('[DE3] states exactly the range that a rewind can not bring back', () => {
    const spool = make({ rewindBytes: 5 * KIB });
    for (let i = 0; i < 10; i++) spool.add(output(KIB), 0, 'flood');
    takeAll(spool);
    spool.rewind(2, 50);
    const again = takeAll(spool);
    const gap = again[0]!;
    expect(gap).toMatchObject({ fromSeq: 3, startOffset: undefined, body: { type: 'gap', reason: 'redis_lost' } });
    expect(again[1]!.fromSeq).toBe(gap.seq + 1);
    expect(again[1]!.startOffset).toBe(gap.endOffset);
    expect(again.at(-1)!.seq).toBe(10);
  });

  it('[DE3] knows the bytes of a lost range that begins at the beginning', () => {
    const spool = make({ rewindBytes: 5 * KIB });
    for (let i = 0; i < 10; i++) spool.add(output(KIB), 0, 'flood');
    takeAll(spool);
    spool.rewind(0, 50);
    const again = takeAll(spool);
    expect(again.reduce((sum, entry) => sum + bytesOf(entry), 0)).toBe(10 * KIB);
  });

  it('repeats its last confirmed entry on a recheck, however old', () => {
    const spool = make();
    spool.add(output(1), 0, 'flood');
    spool.add(output(2), 0, 'flood');
    takeAll(spool);
    spool.forget(Number.MAX_SAFE_INTEGER);
    spool.recheck();
    expect(sizes(spool.take(KIB, 10))).toEqual([[2, 2, 'output']]);
    spool.confirm(2, 0);
    expect(spool.drained).toBe(true);
  });

  it('takes a head that is further than what was just sent, as after a repeat', () => {
    const spool = make();
    for (let i = 0; i < 6; i++) spool.add(output(1), 0, 'flood');
    takeAll(spool);
    spool.rewind(1, 0);
    spool.take(KIB, 2);
    spool.confirm(6, 0);
    expect(spool.drained).toBe(true);
  });

  it('[CO7][DE1] keeps order, range and byte count through any mix of floods, sends, rewinds and forgetting', () => {
    const step = fc.oneof(
      fc.record({
        do: fc.constant('add' as const),
        n: fc.integer({ min: 1, max: 40 }),
        size: fc.integer({ min: 0, max: 3 * KIB }),
      }),
      fc.record({ do: fc.constant('send' as const), n: fc.integer({ min: 1, max: 8 }) }),
      fc.record({ do: fc.constant('back' as const), n: fc.integer({ min: 1, max: 30 }) }),
      fc.record({ do: fc.constant('recheck' as const) }),
      fc.record({ do: fc.constant('forget' as const), n: fc.integer({ min: 0, max: 100 }) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const spool = make();
        let log: SpoolEntry[] = [];
        let clock = 0;
        let added = 0;
        let lost = false;
        const head = () => log.at(-1)?.seq ?? 0;
        const send = (n: number) => {
          const batch = spool.take(16 * KIB, n);
          if (batch.length === 0) return;
          // As the append script: a repeat is success, anything else must begin right after the head.
          if (head() < batch.at(-1)!.seq) {
            if (batch[0]!.fromSeq !== head() + 1) {
              spool.rewind(head(), clock);
              return;
            }
            log.push(...batch);
          }
          spool.confirm(head(), clock);
        };
        for (const it of steps) {
          clock++;
          if (it.do === 'add') {
            for (let i = 0; i < it.n; i++) spool.add(output(it.size), clock, 'flood');
            added += it.n * it.size;
          } else if (it.do === 'send') send(it.n);
          else if (it.do === 'back') {
            log = log.slice(0, Math.max(0, log.length - it.n));
            lost = true;
          } else if (it.do === 'recheck') spool.recheck();
          else spool.forget(it.n);
          expect(spool.waitingBytes).toBeLessThanOrEqual(64 * KIB);
        }
        // The log catches up once the writer is told that it went back.
        if (lost) spool.recheck();
        for (let i = 0; i < 5_000 && !spool.drained; i++) send(8);
        expect(spool.drained).toBe(true);
        let next = 1;
        let offset = 0;
        for (const entry of log) {
          expect(entry.fromSeq).toBe(next);
          expect(entry.startOffset ?? offset).toBe(offset);
          next = entry.seq + 1;
          offset = entry.endOffset;
        }
        expect(next - 1).toBe(spool.lastSeq);
        expect(offset).toBe(added);
      }),
      { numRuns: 300 },
    );
  });
});
