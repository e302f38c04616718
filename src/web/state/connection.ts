/** What a page says about its connection, from what the client knows of it. */
import type { SessionState } from '../../client/index.js';

export type ConnectionView =
  | { readonly state: 'connecting'; readonly attempt: number }
  /** `leavingByMs` is set while the node is stopping: the connection moves by itself before that time. */
  | { readonly state: 'live'; readonly leavingByMs?: number }
  /** No connection; the session lives on for its grace. */
  | { readonly state: 'away'; readonly attempt: number; readonly retryAtMs: number; readonly why: string }
  | { readonly state: 'over'; readonly cause: OverCause; readonly reason: string };

/** Attached: requests are answered, and entries come. */
export const isAttached = ({ state }: SessionState): boolean => state === 'live' || state === 'catching-up';

/**
 * - `superseded`: another connection holds this session.
 * - `closed`: it was closed, here or elsewhere; closing is final.
 * - `token`: a token is missing, over, or does not cover this conversation.
 * - `fault`: anything else that a new attempt would only repeat.
 */
export type OverCause = 'superseded' | 'closed' | 'token' | 'fault';

const CAUSES: Readonly<Record<string, OverCause>> = {
  4500: 'superseded',
  4501: 'token',
  4504: 'closed',
  UNAUTHENTICATED: 'token',
  TOKEN_EXPIRED: 'token',
  FORBIDDEN: 'token',
  SESSION_GONE: 'closed',
};

export const overCauseOf = (code: number | string | undefined): OverCause =>
  code === undefined ? 'closed' : (CAUSES[code] ?? 'fault');

export function connectionViewOf(status: SessionState, nowMs: number): ConnectionView {
  switch (status.state) {
    case 'connecting':
      return { state: 'connecting', attempt: status.attempt };
    // What is on its way is shown for each command.
    case 'catching-up':
    case 'live':
      return { state: 'live' };
    case 'away':
      return { state: 'away', attempt: status.attempt, retryAtMs: nowMs + status.delayMs, why: status.why };
    case 'closed':
      return { state: 'over', cause: overCauseOf(status.code), reason: status.reason };
  }
}
