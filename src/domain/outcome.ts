/**
 * How a command ended. Several endings may happen at once (a kill, a time-out, an exit by itself): the first cause
 * decides the reason, the exit of the process only fills in code and signal (CO8).
 */
import { assertNever } from '../errors.js';
import type { Outcome } from '../protocol/entries.js';
import type { KillRequest } from './ports.js';

export interface Exit {
  readonly code: number | null;
  readonly signal: string | null;
}

export type EndCause =
  /** The leader of the command ended by itself. */
  | { readonly type: 'exit' }
  | { readonly type: 'kill'; readonly request: KillRequest }
  | { readonly type: 'timed_out'; readonly limitMs: number }
  | { readonly type: 'idle_timeout'; readonly limitMs: number }
  /** Never started. `code` as shells have it: 126 not executable, 127 not found. */
  | { readonly type: 'spawn_failed'; readonly error: string; readonly code: 126 | 127 | null }
  | { readonly type: 'refused'; readonly error: string };

export type Ending = Pick<Outcome, 'reason' | 'code' | 'signal' | 'leftovers' | 'error'>;

/**
 * @param exit undefined when the leader never started, or did not end although it was killed
 * @param leftovers processes of the command that are still there
 */
export function decideEnding(cause: EndCause, exit: Exit | undefined, leftovers: number): Ending {
  const { code, signal } = exit ?? { code: null, signal: null };
  const ended = { code, signal, leftovers };
  switch (cause.type) {
    case 'exit':
      return { reason: signal === null ? 'exited' : 'signaled', ...ended };
    case 'kill':
    case 'timed_out':
    case 'idle_timeout':
      return { ...ended, ...killed(cause, exit !== undefined) };
    case 'spawn_failed':
      return { reason: 'spawn_failed', code: cause.code, signal: null, leftovers, error: cause.error };
    case 'refused':
      return { reason: 'refused', code: null, signal: null, leftovers, error: cause.error };
    default:
      return assertNever(cause);
  }
}

function killed(
  cause: Extract<EndCause, { type: 'kill' | 'timed_out' | 'idle_timeout' }>,
  exited: boolean,
): Pick<Outcome, 'reason' | 'error'> {
  if (!exited && cause.type === 'kill' && cause.request.reason === 'cancelled') {
    return { reason: 'kill_failed', error: 'the process did not end after SIGKILL' };
  }
  if (cause.type === 'kill') return { reason: cause.request.reason };
  const what = cause.type === 'timed_out' ? 'run time' : 'time without output';
  return { reason: cause.type, error: `the limit of ${cause.limitMs} ms of ${what} was reached` };
}

/** Settles once: the first cause wins, later ones are told that they came late. */
export interface EndRace {
  readonly first: Promise<EndCause>;
  readonly cause: EndCause | undefined;
  /** @returns whether this cause decides */
  settle(cause: EndCause): boolean;
}

export function createEndRace(): EndRace {
  let won: EndCause | undefined;
  let resolve: (cause: EndCause) => void;
  const first = new Promise<EndCause>((settled) => {
    resolve = settled;
  });
  return {
    first,
    get cause() {
      return won;
    },
    settle(cause) {
      if (won !== undefined) return false;
      won = cause;
      resolve(cause);
      return true;
    },
  };
}
