/** Steps of a server's clock, as an observer with a clock of its own sees them, and an observer that stood still (R4). */
import { describe, expect, it } from 'vitest';
import { type Clocks, elapsedMs, type Health, noteClocks, noteLook } from '../../src/domain/liveness.js';

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
  const health: Health = { identity: 'a', judgeFromMs: 0 };

  it('judges by what it saw as long as it looks often', () => {
    expect(noteLook(health, undefined, 50_000, 2_000)).toBe(health);
    expect(noteLook(health, 50_000, 51_000, 2_000)).toBe(health);
  });

  it('that had not looked for half a lease gives everybody a lease', () => {
    expect(noteLook(health, 50_000, 51_001, 2_000)).toEqual({ identity: 'a', judgeFromMs: 53_001 });
    // Another reason to wait is not shortened.
    expect(noteLook({ ...health, judgeFromMs: 90_000 }, 50_000, 60_000, 2_000).judgeFromMs).toBe(90_000);
  });
});
