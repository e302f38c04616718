/**
 * What a client does next: a pure state machine over what happens to its connection. It knows no socket and no timer;
 * `session.ts` carries out the effect of each step.
 */
import { type Backoff, fullJitterMs } from '../domain/backoff.js';

/** What was there before the session was attached and did not arrive yet. */
export interface Behind {
  readonly commands: number;
  readonly entries: number;
}

/**
 * - `connecting`: a socket is being opened, or the session is being opened or resumed on it.
 * - `catching-up`: attached, requests go out at once; entries of so many commands that were written before are on their way.
 * - `live`: attached, and everything up to now has arrived.
 * - `away`: no connection; the next attempt comes after `delayMs`. The session lives on in the cluster for its grace.
 * - `closed`: over, and it stays so; `reason` is a sentence.
 */
export type SessionState =
  | { readonly state: 'connecting'; readonly attempt: number }
  | ({ readonly state: 'catching-up'; readonly attempt: number; readonly sinceMs: number } & Behind)
  | { readonly state: 'live'; readonly attempt: number; readonly sinceMs: number }
  | { readonly state: 'away'; readonly attempt: number; readonly delayMs: number; readonly why: string }
  | { readonly state: 'closed'; readonly reason: string; readonly code?: number | string };

/** Whether there is a connection that holds the session. */
export const isAttached = (state: SessionState): state is Extract<SessionState, { state: 'live' | 'catching-up' }> =>
  state.state === 'live' || state.state === 'catching-up';

export type SessionEvent =
  /** The session was opened or resumed. */
  | { readonly type: 'established'; readonly nowMs: number; readonly behind: Behind }
  /** Some of what was missing arrived. */
  | { readonly type: 'progress'; readonly behind: Behind }
  /** The server answered open or resume with an error. */
  | {
      readonly type: 'refused';
      /** Of the contract; '' for an error without one. */
      readonly code: string;
      readonly message: string;
      readonly retryable: boolean;
      readonly retryAfterMs?: number;
      /** Whether the next attempt would bring another token than this one. */
      readonly tokenRenews: boolean;
    }
  /** The socket is gone, or never came to be. */
  | { readonly type: 'lost'; readonly code: number; readonly reason: string; readonly nowMs: number }
  /** Two heartbeats did not come. */
  | { readonly type: 'silent'; readonly nowMs: number }
  /** The time to leave a node that is stopping has come. */
  | { readonly type: 'drained' }
  /** The wait is over. */
  | { readonly type: 'retry' }
  /** The application wants no more. */
  | { readonly type: 'close'; readonly reason: string };

export type Effect =
  | { readonly type: 'none' }
  | { readonly type: 'connect' }
  | { readonly type: 'wait'; readonly delayMs: number }
  /** Forget the session's identity (and say so), then connect: a new session follows. */
  | { readonly type: 'replace'; readonly why: 'SESSION_GONE' | 'RESUME_DENIED' | 'SESSION_IN_USE' }
  | { readonly type: 'end' };

export interface Step {
  readonly state: SessionState;
  readonly effect: Effect;
}

export const RECONNECT: Backoff = { baseMs: 500, capMs: 20_000 };

/** A connection that held this long starts the back-off anew; a shorter one counts as one more failure. */
const STEADY_MS = 5_000;

/** Codes after which the same connection may work later; the rest would only repeat the fault that closed it. */
const comesBack = (code: number): boolean =>
  (code >= 4000 && code <= 4499) || [1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014].includes(code);

/** A frame was no JSON. A node that hears so looks into what it sends (DE3), so some more attempts are worth it; for ever would hide a fault. */
export const UNREADABLE = 1007;
const MAX_UNREADABLE = 5;

const TERMINAL_SENTENCES: Readonly<Record<number, string>> = {
  4500: 'another connection took this session over',
  4501: 'the token was not accepted',
  4502: 'the server found a fault in the protocol',
  4503: 'client and server speak different versions',
  4504: 'the session was closed',
};

const NONE: Effect = { type: 'none' };

const closed = (reason: string, code?: number | string): Step => ({
  state: code === undefined ? { state: 'closed', reason } : { state: 'closed', reason, code },
  effect: { type: 'end' },
});

const connect = (attempt: number): Step => ({ state: { state: 'connecting', attempt }, effect: { type: 'connect' } });

function wait(attempt: number, why: string, random: number, atLeastMs = 0): Step {
  const delayMs = fullJitterMs(attempt, RECONNECT, random, atLeastMs);
  return { state: { state: 'away', attempt: attempt + 1, delayMs, why }, effect: { type: 'wait', delayMs } };
}

/** Which attempt a loss counts as: a steady connection wipes the record of failures. */
const attemptAfter = (state: SessionState, nowMs: number): number => {
  if (state.state === 'closed') return 0;
  return isAttached(state) && nowMs - state.sinceMs >= STEADY_MS ? 0 : state.attempt;
};

function attached(attempt: number, sinceMs: number, behind: Behind): Step {
  const state: SessionState =
    behind.commands === 0 ? { state: 'live', attempt, sinceMs } : { state: 'catching-up', attempt, sinceMs, ...behind };
  return { state, effect: NONE };
}

function afterRefusal(attempt: number, event: Extract<SessionEvent, { type: 'refused' }>, random: number): Step {
  const { code, message } = event;
  if (code === 'SESSION_GONE' || code === 'RESUME_DENIED' || code === 'SESSION_IN_USE') {
    // A new session can not be refused with these, so this leads to at most one further attempt at once.
    return { state: { state: 'connecting', attempt }, effect: { type: 'replace', why: code } };
  }
  // An expired token is worth two more attempts, if the next one may be fresh; for ever would hide the fault.
  const renewable = code === 'TOKEN_EXPIRED' && event.tokenRenews && attempt < 2;
  if (event.retryable || renewable) return wait(attempt, message, random, event.retryAfterMs);
  return closed(message, code === '' ? undefined : code);
}

/** One step. An event that means nothing in a state changes nothing. @param random 0 ≤ n < 1, drawn for this step */
export function decideNext(state: SessionState, event: SessionEvent, random: number): Step {
  if (state.state === 'closed') return { state, effect: NONE };
  switch (event.type) {
    case 'established':
      if (state.state !== 'connecting') return { state, effect: NONE };
      return attached(state.attempt, event.nowMs, event.behind);
    case 'progress':
      if (state.state !== 'catching-up') return { state, effect: NONE };
      return attached(state.attempt, state.sinceMs, event.behind);
    case 'refused':
      return state.state === 'connecting' ? afterRefusal(state.attempt, event, random) : { state, effect: NONE };
    case 'lost': {
      if (state.state === 'away') return { state, effect: NONE };
      const attempt = attemptAfter(state, event.nowMs);
      if (!comesBack(event.code) && !(event.code === UNREADABLE && attempt < MAX_UNREADABLE)) {
        const sentence = TERMINAL_SENTENCES[event.code] ?? `the connection was closed with code ${event.code}`;
        return closed(event.reason === '' ? sentence : `${sentence}: ${event.reason}`, event.code);
      }
      return wait(attempt, event.reason || `connection lost (${event.code})`, random);
    }
    case 'silent':
      if (!isAttached(state)) return { state, effect: NONE };
      return wait(attemptAfter(state, event.nowMs), 'two heartbeats did not come', random);
    case 'drained':
      return isAttached(state) ? connect(0) : { state, effect: NONE };
    case 'retry':
      return state.state === 'away' ? connect(state.attempt) : { state, effect: NONE };
    case 'close':
      return closed(event.reason);
  }
}
