/** How long a worker keeps what ended, by fake timers. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { CommandRestored } from '../../src/domain/ports.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { createKeptRuns } from '../../src/worker/kept-runs.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const KEEP_MS = 15_000;
const commandId = 'cmd_a' as CommandId;

/** An ended run for which Redis gives these answers; undefined: none. The last one stays. */
function ended(answers: (CommandRestored['type'] | undefined)[]) {
  const told = { rechecked: 0, closed: 0, asked: 0 };
  const next = () => (answers.length > 1 ? answers.shift() : answers[0]);
  const run = {
    commandId,
    async isUnfinished() {
      const [type] = answers;
      if (type === undefined) throw new Error(`Redis does not answer${next() ?? ''}`);
      return type !== 'ended';
    },
    async sayAgain() {
      told.asked += 1;
      const type = next();
      if (type === undefined) throw new Error('Redis does not answer');
      return { type };
    },
    recheck() {
      told.rechecked += 1;
    },
    close() {
      told.closed += 1;
    },
  };
  return { run, told };
}

it('[L3] what ended is let go after its time, when Redis has its end', async () => {
  const kept = createKeptRuns(KEEP_MS, () => 0.5);
  const { run, told } = ended(['ended']);
  kept.keep(run);
  await vi.advanceTimersByTimeAsync(KEEP_MS - 1);
  expect([kept.has(commandId), told]).toEqual([true, { rechecked: 0, closed: 0, asked: 0 }]);
  await vi.advanceTimersByTimeAsync(1);
  expect([kept.has(commandId), told]).toEqual([false, { rechecked: 0, closed: 1, asked: 0 }]);
});

it('[L3] a failover that takes longer than that costs no end: it is kept until Redis answers, and ended there again', async () => {
  const kept = createKeptRuns(KEEP_MS, () => 0.5);
  const { run, told } = ended([undefined, undefined, undefined, 'held', 'ended']);
  kept.keep(run);
  await vi.advanceTimersByTimeAsync(KEEP_MS + 2_000);
  expect([kept.has(commandId), told.rechecked, told.closed]).toEqual([true, 0, 0]);
  await vi.advanceTimersByTimeAsync(30_000);
  expect([kept.has(commandId), told]).toEqual([false, { rechecked: 1, closed: 1, asked: 4 }]);
});

it('[L3] what somebody else has ended is let go at once, and nothing is asked of what was closed', async () => {
  const kept = createKeptRuns(KEEP_MS, () => 0.5);
  const one = ended(['lost']);
  kept.keep(one.run);
  await kept.recheck();
  expect(one.told).toEqual({ rechecked: 0, closed: 1, asked: 1 });
  const other = ended([undefined]);
  kept.keep(other.run);
  await vi.advanceTimersByTimeAsync(KEEP_MS);
  kept.close();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(other.told).toEqual({ rechecked: 0, closed: 1, asked: 0 });
});
