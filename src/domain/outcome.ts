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
  | { readonly type: 'output_limit'; readonly limitBytes: number }
  /** `error`: a sentence that names the limit. */
  | { readonly type: 'resource_limit' | 'out_of_memory'; readonly error: string }
  /** Never started. `code` as shells have it: 126 not executable, 127 not found. */
  | { readonly type: 'spawn_failed'; readonly error: string; readonly code: 126 | 127 | null }
  | { readonly type: 'refused'; readonly error: string }
  /** Started before, and what became of that is not known. */
  | { readonly type: 'lost'; readonly error: string };

/** A process of the command that SIGKILL did not end. */
export interface Survivor {
  readonly pid: number;
  readonly name: string;
}

export type Ending = Pick<Outcome, 'reason' | 'code' | 'signal' | 'leftovers' | 'error'>;

const MAX_NAMED = 10;

/**
 * @param exit undefined when the leader never started, or did not end although it was killed
 * @param left processes of the command that are still there
 */
export function decideEnding(cause: EndCause, exit: Exit | undefined, left: readonly Survivor[]): Ending {
  const { reason, code, signal, error } = judge(cause, exit ?? { code: null, signal: null });
  const ending = { reason, code, signal, leftovers: left.length };
  if (left.length === 0) return error === undefined ? ending : { ...ending, error };
  const failed = cause.type === 'kill' && cause.request.reason === 'cancelled';
  return {
    ...ending,
    ...(failed ? { reason: 'kill_failed' as const } : {}),
    error: [error, `still there after SIGKILL: ${named(left)}`].filter((part) => part !== undefined).join('; '),
  };
}

function judge(cause: EndCause, { code, signal }: Exit): Omit<Ending, 'leftovers'> {
  switch (cause.type) {
    case 'exit':
      return { reason: signal === null ? 'exited' : 'signaled', code, signal };
    case 'kill':
      return { reason: cause.request.reason, code, signal };
    case 'timed_out':
      return { reason: cause.type, code, signal, error: `the limit of ${cause.limitMs} ms of run time was reached` };
    case 'idle_timeout':
      return {
        reason: cause.type,
        code,
        signal,
        error: `the limit of ${cause.limitMs} ms of time without output was reached`,
      };
    case 'output_limit':
      return {
        reason: cause.type,
        code,
        signal,
        error: `the limit of ${cause.limitBytes} bytes of output was reached`,
      };
    case 'resource_limit':
    case 'out_of_memory':
      return { reason: cause.type, code, signal, error: cause.error };
    case 'spawn_failed':
      return { reason: cause.type, code: cause.code, signal: null, error: cause.error };
    case 'refused':
    case 'lost':
      return { reason: cause.type, code: null, signal: null, error: cause.error };
    default:
      return assertNever(cause);
  }
}

function named(left: readonly Survivor[]): string {
  const names = left.slice(0, MAX_NAMED).map(({ pid, name }) => `${pid} (${name})`);
  const more = left.length - names.length;
  return `${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
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
