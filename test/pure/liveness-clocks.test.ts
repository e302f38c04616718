/** Steps of a server's clock, as an observer with a clock of its own sees them, and an observer that stood still (R4). */
import { describe, expect, it } from 'vitest';
import { afterPause, type Clocks, deadOnes, elapsedMs, noteClocks, observe } from '../../src/domain/liveness.js';

const HOUR_MS = 3_600_000;
const none: Clocks = { seen: new Map(), steps: [] };
const look = (before: Clocks, clockMs: number, nowMs: number) => noteClocks(before, [{ id: 'a', clockMs }], nowMs);

describe('[R4] the clock of a server', () => {
  it('is trusted at first sight, while it runs as ours does, and when an answer was late', () => {
    const first = look(none, 1_000_000, 0);
    expect(first.stepped).toBe(false);
    expect(look(first.clocks, 1_060_000, 60_000).stepped).toBe(false);
    expect(look(first.clocks, 1_055_500, 60_000).stepped).toBe(false);
  });

  it('was set when it ran further than ours, or less far; each step is noted once', () => {
    const first = look(none, 1_000_000, 0).clocks;
    const on = look(first, 1_001_000 + HOUR_MS, 1_000);
    expect(on).toMatchObject({ stepped: true, clocks: { steps: [{ beforeMs: 1_000_000, byMs: HOUR_MS }] } });
    expect(look(on.clocks, 1_002_000 + HOUR_MS, 2_000).stepped).toBe(false);
    expect(look(first, 1_001_000 - HOUR_MS, 1_000).clocks.steps).toEqual([{ beforeMs: 1_000_000, byMs: -HOUR_MS }]);
  });

  it('of each server is its own: one that was not seen before is no step', () => {
    const first = look(none, 1_000_000, 0).clocks;
    expect(noteClocks(first, [{ id: 'b', clockMs: 5 }], 1_000).stepped).toBe(false);
  });

  it('what waited over a step forward did not wait that long', () => {
    const steps = [{ beforeMs: 10_000, byMs: HOUR_MS }];
    expect(elapsedMs(9_000, 12_000 + HOUR_MS, steps)).toBe(3_000);
    // Before it, or after it, it does not count.
    expect(elapsedMs(1_000, 9_000, steps)).toBe(8_000);
    expect(elapsedMs(11_000 + HOUR_MS, 12_000 + HOUR_MS, steps)).toBe(1_000);
  });
});

describe('[R4] an observer', () => {
  const seen = observe(new Map(), [{ id: 'a', beat: '1' }], 50_000);

  it('judges by what it saw as long as it looks often', () => {
    expect(afterPause(seen, undefined, 52_000, 2_000)).toBe(seen);
    expect(afterPause(seen, 51_000, 52_000, 2_000)).toBe(seen);
    expect(deadOnes(seen, 2_000, 52_000)).toEqual(['a']);
  });

  it('that had not looked for half a lease gives everybody a lease', () => {
    const anew = afterPause(seen, 50_999, 52_000, 2_000);
    expect(deadOnes(anew, 2_000, 53_999)).toEqual([]);
    expect(deadOnes(anew, 2_000, 54_000)).toEqual(['a']);
  });
});
