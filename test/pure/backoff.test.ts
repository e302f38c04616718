/** Full jitter, as arithmetic. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { boundMs, fullJitterMs } from '../../src/domain/backoff.js';

const backoff = { baseMs: 100, capMs: 5_000 };
const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe('full jitter', () => {
  it('doubles its bound with each attempt, up to the cap', () => {
    expect([0, 1, 2, 3, 5, 6, 100].map((attempt) => boundMs(attempt, backoff))).toEqual([
      100, 200, 400, 800, 3_200, 5_000, 5_000,
    ]);
  });

  it('stays finite for any attempt', () => {
    expect(boundMs(5_000, backoff)).toBe(5_000);
    expect(boundMs(-1, backoff)).toBe(100);
  });

  it('lies between nothing and the bound, in whole milliseconds', () => {
    fc.assert(
      fc.property(fc.nat(2_000), chance, (attempt, random) => {
        const delayMs = fullJitterMs(attempt, backoff, random);
        expect(Number.isInteger(delayMs)).toBe(true);
        expect(delayMs).toBeGreaterThanOrEqual(0);
        expect(delayMs).toBeLessThanOrEqual(boundMs(attempt, backoff));
      }),
    );
  });

  it('uses the whole range, so that many clients spread', () => {
    expect(fullJitterMs(0, backoff, 0)).toBe(0);
    expect(fullJitterMs(0, backoff, 0.999)).toBe(99);
  });

  it('never comes back before the time the peer asked for, and spreads after it', () => {
    expect(fullJitterMs(0, backoff, 0, 3_000)).toBe(3_000);
    expect(fullJitterMs(0, backoff, 0.5, 3_000)).toBe(3_050);
  });
});
