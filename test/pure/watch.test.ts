/** What an owner is told of its command's output. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BREAKER, createBreaker, createWatch, type WatchNotice, withoutCodes } from '../../src/domain/watch.js';

const literal = (pattern: string) => ({ pattern, test: (text: string) => text.includes(pattern) });
const bytes = (text: string) => Buffer.from(text);
const isNotice = (notice: WatchNotice) => 'pattern' in notice;

describe('a watch', () => {
  it('tells the line that matches, without its colours, wherever the chunks are cut', () => {
    const text = 'one\n\u001b[31mERROR\u001b[0m: é went wrong\nthree\n';
    const all = bytes(text);
    for (let cut = 0; cut <= all.length; cut += 1) {
      const watch = createWatch([literal('ERROR: é')]);
      const told = [...watch.push('out', all.subarray(0, cut), 0), ...watch.push('out', all.subarray(cut), 0)];
      expect(told).toEqual([{ pattern: 'ERROR: é', text: 'ERROR: é went wrong', suppressed: 0 }]);
    }
  });

  it('sees what stands at the end when nothing follows, and does not tell it again with its line', () => {
    const watch = createWatch([literal('Password:')]);
    expect(watch.push('pty', bytes('Password: '), 0)).toEqual([]);
    expect(watch.idle(100)).toEqual([{ pattern: 'Password:', text: 'Password:', suppressed: 0 }]);
    expect(watch.idle(20_000)).toEqual([]);
    expect(watch.push('pty', bytes('\n'), 20_000)).toEqual([]);
    expect(watch.push('pty', bytes('Password:\n'), 20_000)).toHaveLength(1);
  });

  it('finds a match anywhere in a line without an end, in bounded memory', () => {
    fc.assert(
      fc.property(fc.nat({ max: 40_000 }), fc.integer({ min: 1, max: 9_000 }), (before, step) => {
        const line = bytes(`${'x'.repeat(before)}needle${'y'.repeat(20_000)}`);
        const watch = createWatch([literal('needle')]);
        const told: WatchNotice[] = [];
        for (let at = 0; at < line.length; at += step) told.push(...watch.push('out', line.subarray(at, at + step), 0));
        told.push(...watch.end(0));
        expect(told.filter(isNotice)[0]).toMatchObject({ pattern: 'needle' });
      }),
      { numRuns: 60 },
    );
  });

  it('tells streams apart', () => {
    const watch = createWatch([literal('ab')]);
    watch.push('out', bytes('a'), 0);
    expect(watch.push('err', bytes('b\n'), 0)).toEqual([]);
    expect(watch.push('out', bytes('b\n'), 0)).toHaveLength(1);
  });

  it('is quiet for 15 s after a notice, and says with the next one what it swallowed', () => {
    const watch = createWatch([literal('x')]);
    expect(watch.push('out', bytes('x1\n'), 0)).toMatchObject([{ text: 'x1', suppressed: 0 }]);
    expect(watch.push('out', bytes('x2\nx3\n'), 14_999)).toEqual([]);
    expect(watch.push('out', bytes('x4\n'), 15_000)).toMatchObject([{ text: 'x4', suppressed: 2 }]);
    expect(watch.push('out', bytes('x5\n'), 40_000)).toMatchObject([{ text: 'x5', suppressed: 0 }]);
  });

  it('tells at the end what was swallowed since the last notice, and nothing after it', () => {
    const watch = createWatch([literal('x')]);
    watch.push('out', bytes('x1\nx2\nx3'), 0);
    expect(watch.end(1)).toEqual([{ pattern: 'x', text: 'x3', suppressed: 2 }]);
    expect(watch.push('out', bytes('x\n'), 60_000)).toEqual([]);
  });

  it('says that it stops after 3 pauses that swallowed something', () => {
    const watch = createWatch([literal('x')]);
    const told: WatchNotice[] = [];
    for (let second = 0; second < 120; second += 1) told.push(...watch.push('out', bytes('x\n'), second * 1_000));
    expect(told.map((notice) => ('pattern' in notice ? notice.suppressed : notice.why))).toEqual([
      0,
      14,
      14,
      'matches came faster than one in 15 s, 3 times; only the ending will be told',
    ]);
    expect(told.at(-1)).toMatchObject({ disabled: true, suppressed: 15 });
    expect(watch.silent).toBe(true);
    expect(watch.end(200_000)).toEqual([]);
  });

  it('says that it stops after 8 notices', () => {
    const watch = createWatch([literal('x')]);
    const told: WatchNotice[] = [];
    for (let i = 0; i < 20; i += 1) told.push(...watch.push('out', bytes('x\n'), i * 16_000));
    expect(told.filter(isNotice)).toHaveLength(8);
    expect(told).toHaveLength(9);
    expect(told.at(-1)).toMatchObject({ disabled: true, why: '8 notices were sent; only the ending will be told' });
  });
});

describe('a breaker', () => {
  it('lets 15 pass in 10 s, tells the one that is too many, and is open for 30 s', () => {
    const breaker = createBreaker();
    const answers = Array.from({ length: 18 }, (_, i) => breaker.ask(i));
    expect(answers).toEqual([...Array(15).fill('pass'), 'trip', 'open', 'open']);
    expect(breaker.ask(15 + BREAKER.openMs - 1)).toBe('open');
    expect(breaker.ask(15 + BREAKER.openMs)).toBe('pass');
    expect(breaker.isIdle(15 + BREAKER.openMs)).toBe(false);
    expect(breaker.isIdle(15 + BREAKER.openMs + BREAKER.windowMs)).toBe(true);
  });

  it('never opens for one that keeps to its pace', () => {
    const breaker = createBreaker();
    for (let i = 0; i < 1_000; i += 1) expect(breaker.ask(i * 700)).toBe('pass');
  });
});

describe('codes of a terminal', () => {
  it('are no text', () => {
    const text = '\u001b[1;32mok\u001b[0m \u001b]0;title\u0007a\u001b]8;;http://x\u001b\\link\u0008\u001b(B\tend';
    expect(withoutCodes(text)).toBe('ok alink(B\tend'.replace('(B', '(B'));
  });
});
