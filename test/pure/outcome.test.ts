import { describe, expect, it } from 'vitest';
import { createEndRace, decideEnding } from '../../src/domain/outcome.js';
import { unsupportedField } from '../../src/domain/supported.js';
import { createTokenBucket } from '../../src/domain/token-bucket.js';
import { commandSpec } from '../../src/protocol/methods.js';

const kill = { type: 'kill', request: { signal: 'SIGTERM', graceMs: 2000, reason: 'cancelled' } } as const;

describe('the end of a command', () => {
  it('[CO8] is exited with its code, also when the code is not zero, and that is no error', () => {
    expect(decideEnding({ type: 'exit' }, { code: 3, signal: null }, [])).toEqual({
      reason: 'exited',
      code: 3,
      signal: null,
      leftovers: 0,
    });
  });

  it('[CO8] is signaled when a signal came from elsewhere', () => {
    expect(decideEnding({ type: 'exit' }, { code: null, signal: 'SIGSEGV' }, [])).toMatchObject({
      reason: 'signaled',
      signal: 'SIGSEGV',
    });
  });

  it('[CO8] is cancelled when the kill came first, whatever the exit was', () => {
    expect(decideEnding(kill, { code: 0, signal: null }, [])).toMatchObject({ reason: 'cancelled', code: 0 });
    expect(decideEnding(kill, { code: null, signal: 'SIGTERM' }, [])).toMatchObject({ reason: 'cancelled' });
  });

  it('[CO5] is kill_failed when the process is still there', () => {
    const left = [
      { pid: 7, name: 'stuck' },
      { pid: 9, name: 'sleep' },
    ];
    expect(decideEnding(kill, undefined, left)).toEqual({
      reason: 'kill_failed',
      code: null,
      signal: null,
      leftovers: 2,
      error: 'still there after SIGKILL: 7 (stuck), 9 (sleep)',
    });
  });

  it('[CO8] keeps the reason of the kill', () => {
    const drained = { ...kill, request: { ...kill.request, reason: 'worker_drained' as const } };
    expect(decideEnding(drained, { code: null, signal: 'SIGKILL' }, []).reason).toBe('worker_drained');
  });

  it('[CO8] names the limit that was reached', () => {
    expect(decideEnding({ type: 'timed_out', limitMs: 500 }, { code: null, signal: 'SIGTERM' }, [])).toMatchObject({
      reason: 'timed_out',
      error: 'the limit of 500 ms of run time was reached',
    });
  });

  it('[CO8] tells a program that was not found as shells do', () => {
    expect(decideEnding({ type: 'spawn_failed', error: 'no such program', code: 127 }, undefined, [])).toEqual({
      reason: 'spawn_failed',
      code: 127,
      signal: null,
      leftovers: 0,
      error: 'no such program',
    });
  });

  it('[CO8] is decided by the first cause alone', async () => {
    const race = createEndRace();
    expect(race.settle(kill)).toBe(true);
    expect(race.settle({ type: 'exit' })).toBe(false);
    expect(await race.first).toBe(kill);
    expect(race.cause).toBe(kill);
  });
});

describe('what workers do not offer yet', () => {
  it('is named by its field, never ignored', () => {
    const spec = (more: object) => commandSpec.parse({ argv: ['true'], ...more });
    expect(unsupportedField(spec({}))).toBeUndefined();
    expect(unsupportedField(spec({ secrets: {}, resources: {}, notify: {} }))).toBeUndefined();
    expect(unsupportedField(spec({ sandbox: { profile: 'none-of-ours' } }))).toMatchObject({
      field: 'sandbox.profile',
      code: 'INVALID_PARAMS',
      message: expect.stringMatching(/^sandbox.profile: /),
    });
  });
});

describe('the token bucket', () => {
  it('lets one second pass at once, then holds the rate', () => {
    const bucket = createTokenBucket(1000, 0);
    expect(bucket.waitMs(0)).toBe(0);
    bucket.take(1500, 0);
    expect(bucket.waitMs(0)).toBe(501);
    expect(bucket.waitMs(501)).toBe(0);
  });

  it('does not mind a clock that steps back', () => {
    const bucket = createTokenBucket(1000, 10_000);
    bucket.take(2000, 5_000);
    expect(bucket.waitMs(6_001)).toBeLessThanOrEqual(1);
  });
});
