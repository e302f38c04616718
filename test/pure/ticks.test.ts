/** Timers that share their wake-ups. On the clock of the test. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createTicks } from '../../src/gateway/ticks.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const timed = (onTick: () => void) => ({ onTick });

it('come at the end of their tick: never early, never more than a tick late, and all of one tick at once', () => {
  const ticks = createTicks(100);
  const startMs = performance.now();
  const came: [number, number][] = [];
  for (let waitMs = 0; waitMs < 1_000; waitMs += 7) {
    ticks.after(
      waitMs,
      timed(() => came.push([waitMs, performance.now() - startMs])),
    );
  }
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(1_200);
  expect(came).toHaveLength(143);
  for (const [waitMs, atMs] of came) {
    expect(atMs).toBeGreaterThanOrEqual(waitMs);
    expect(atMs).toBeLessThanOrEqual(waitMs + 100);
  }
  expect(new Set(came.map(([, atMs]) => atMs)).size).toBeLessThanOrEqual(11);
  expect(vi.getTimerCount()).toBe(0);
});

it('are asked again from within, and called off, also by one of the same tick', () => {
  const ticks = createTicks(100);
  const said: string[] = [];
  const never = timed(() => said.push('never'));
  const late = timed(() => said.push('late'));
  const beat = timed(() => {
    said.push('beat');
    ticks.callOff(tick, never);
    if (said.length < 3) ticks.after(150, beat);
  });
  ticks.after(50, beat);
  const tick = ticks.after(50, never);
  ticks.callOff(ticks.after(1_000, late), late);
  vi.advanceTimersByTime(2_000);
  expect(said).toEqual(['beat', 'beat', 'beat']);
  expect(vi.getTimerCount()).toBe(0);
});

it('say nothing after the close', () => {
  const ticks = createTicks(100);
  const said: string[] = [];
  ticks.after(
    50,
    timed(() => said.push('never')),
  );
  ticks.close();
  ticks.after(
    50,
    timed(() => said.push('never')),
  );
  vi.advanceTimersByTime(1_000);
  expect(said).toEqual([]);
});
