/** What a client does about a loss, a refusal and silence. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decideNext,
  RECONNECT,
  type SessionEvent,
  type SessionState,
  UNREADABLE,
} from '../../src/client/session-state.js';

const connecting: SessionState = { state: 'connecting', attempt: 0 };
const live: SessionState = { state: 'live', attempt: 0, sinceMs: 0 };
const none = { commands: 0, entries: 0 };
const lost = (code: number, nowMs = 60_000): SessionEvent => ({ type: 'lost', code, reason: '', nowMs });
const refused = (code: string, more: object = {}): SessionEvent =>
  ({ type: 'refused', code, message: 'no', retryable: false, tokenRenews: false, ...more }) as SessionEvent;

describe('after a loss', () => {
  it.each([1001, 1006, 1011, 1012, 1013, 4000, 4001, 4002, 4003, 4004, 4005, 4499])(
    '[SE3] comes back after %i',
    (code) => {
      expect(decideNext(live, lost(code), 0.5)).toMatchObject({
        state: { state: 'away' },
        effect: { type: 'wait' },
      });
    },
  );

  it.each([1002, 1003, 1008, 1009, 4500, 4501, 4502, 4503, 4504, 4999])('[SE1] stays closed after %i', (code) => {
    expect(decideNext(live, lost(code), 0.5)).toMatchObject({
      state: { state: 'closed', code },
      effect: { type: 'end' },
    });
  });

  it('[DE3] comes back a few times after a frame that it could not read, since the node looks into them then', () => {
    let state: SessionState = live;
    for (let n = 0; n < 5; n += 1) {
      const waiting: SessionState = decideNext(state, lost(UNREADABLE, 1_000), 0.5).state;
      expect(waiting).toMatchObject({ state: 'away' });
      state = decideNext(waiting, { type: 'retry' }, 0).state;
    }
    expect(decideNext(state, lost(UNREADABLE, 1_000), 0.5).state).toMatchObject({ state: 'closed', code: UNREADABLE });
    // What held in between was worth it.
    const up: SessionState = { state: 'live', attempt: 5, sinceMs: 0 };
    expect(decideNext(up, lost(UNREADABLE), 0.5).state).toMatchObject({ state: 'away' });
  });

  it('draws a delay for each attempt, longer in bound each time, and from the start again after a steady connection', () => {
    let state: SessionState = live;
    const bounds: number[] = [];
    for (let n = 0; n < 8; n += 1) {
      const waiting = decideNext(state, lost(1006, 1_000), 0.9999);
      if (waiting.effect.type !== 'wait') throw new Error('should wait');
      bounds.push(waiting.effect.delayMs);
      state = decideNext(waiting.state, { type: 'retry' }, 0).state;
    }
    expect(bounds).toEqual([499, 999, 1_999, 3_999, 7_999, 15_998, 19_998, 19_998]);
    // A connection that breaks at once goes on where it was; one that held starts anew.
    const up = decideNext(state, { type: 'established', nowMs: 0, behind: none }, 0).state;
    expect(decideNext(up, lost(1006, 1_000), 0.9999).effect).toEqual({ type: 'wait', delayMs: 19_998 });
    expect(decideNext(up, lost(1006, 5_000), 0.9999).effect).toEqual({ type: 'wait', delayMs: 499 });
  });

  it('treats two missed heartbeats as a loss, and leaves a stopping node at once when its time has come', () => {
    expect(decideNext(live, { type: 'silent', nowMs: 9_000 }, 0)).toMatchObject({ state: { state: 'away' } });
    expect(decideNext(live, { type: 'drained' }, 0)).toMatchObject({ state: connecting, effect: { type: 'connect' } });
  });
});

describe('catching up', () => {
  it('[DE4] is said with how much is missing, until nothing is', () => {
    const behind = { commands: 2, entries: 9 };
    const first = decideNext(connecting, { type: 'established', nowMs: 5, behind }, 0).state;
    expect(first).toEqual({ state: 'catching-up', attempt: 0, sinceMs: 5, commands: 2, entries: 9 });
    const second = decideNext(first, { type: 'progress', behind: { commands: 1, entries: 3 } }, 0).state;
    expect(second).toMatchObject({ state: 'catching-up', commands: 1, entries: 3 });
    expect(decideNext(second, { type: 'progress', behind: none }, 0).state).toEqual({ ...live, sinceMs: 5 });
    expect(decideNext(live, { type: 'progress', behind }, 0).state).toBe(live);
    expect(decideNext(second, { type: 'drained' }, 0).effect).toEqual({ type: 'connect' });
    expect(decideNext(second, { type: 'silent', nowMs: 9 }, 0).state.state).toBe('away');
    expect(decideNext(second, lost(1006), 0).state.state).toBe('away');
  });
});

describe('after a refusal', () => {
  it.each(['SESSION_GONE', 'RESUME_DENIED', 'SESSION_IN_USE'])('[SE4] opens a new session after %s', (code) => {
    expect(decideNext(connecting, refused(code), 0)).toEqual({
      state: connecting,
      effect: { type: 'replace', why: code },
    });
  });

  it('tries again after what is retryable, not before the time it was told', () => {
    const step = decideNext(connecting, refused('REDIS_UNAVAILABLE', { retryable: true, retryAfterMs: 700 }), 0);
    expect(step).toMatchObject({ state: { state: 'away', attempt: 1 }, effect: { type: 'wait', delayMs: 700 } });
  });

  it('gives up on what would only be refused again', () => {
    for (const code of ['UNAUTHENTICATED', 'FORBIDDEN', 'INVALID_PARAMS', '']) {
      expect(decideNext(connecting, refused(code), 0)).toMatchObject({ state: { state: 'closed', reason: 'no' } });
    }
  });

  it('asks for a fresh token twice, and never with one that can not change', () => {
    const expired = refused('TOKEN_EXPIRED', { tokenRenews: true });
    expect(decideNext(connecting, expired, 0).state.state).toBe('away');
    expect(decideNext({ state: 'connecting', attempt: 2 }, expired, 0).state.state).toBe('closed');
    expect(decideNext(connecting, refused('TOKEN_EXPIRED'), 0).state.state).toBe('closed');
  });
});

describe('always', () => {
  const anyEvent: fc.Arbitrary<SessionEvent> = fc.oneof(
    fc.record({
      type: fc.constant('established' as const),
      nowMs: fc.nat(100_000),
      behind: fc.record({ commands: fc.nat(2), entries: fc.nat(9) }),
    }),
    fc.record({
      type: fc.constant('progress' as const),
      behind: fc.record({ commands: fc.nat(2), entries: fc.nat(9) }),
    }),
    fc.record({
      type: fc.constant('lost' as const),
      code: fc.integer({ min: 1000, max: 4999 }),
      reason: fc.string(),
      nowMs: fc.nat(100_000),
    }),
    fc.record({ type: fc.constant('silent' as const), nowMs: fc.nat(100_000) }),
    fc.record({
      type: fc.constant('refused' as const),
      code: fc.constantFrom('SESSION_GONE', 'REDIS_UNAVAILABLE', 'FORBIDDEN', ''),
      message: fc.string(),
      retryable: fc.boolean(),
      tokenRenews: fc.boolean(),
    }),
    fc.constantFrom({ type: 'retry' as const }, { type: 'drained' as const }),
  );

  it('has exactly one thing to wait for: a connection, a timer or nothing, and closed is final', () => {
    fc.assert(
      fc.property(
        fc.array(anyEvent),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (events, random) => {
          let state: SessionState = connecting as SessionState;
          for (const event of events) {
            const step = decideNext(state, event, random);
            if (state.state === 'closed') expect(step).toEqual({ state, effect: { type: 'none' } });
            else if (step.state !== state) {
              const wanted = {
                connecting: ['connect', 'replace'],
                'catching-up': ['none'],
                live: ['none'],
                away: ['wait'],
                closed: ['end'],
              };
              expect(wanted[step.state.state]).toContain(step.effect.type);
            }
            if (step.effect.type === 'wait') expect(step.effect.delayMs).toBeLessThanOrEqual(RECONNECT.capMs);
            state = step.state;
          }
        },
      ),
    );
  });
});
