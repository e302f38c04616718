/**
 * Who is dead, judged by observed change (R4): a beat that has not moved for a lease of the observer's own monotonic time.
 * Stored times are never compared with a clock. After an outage nobody is judged for a while (R3). Pure.
 */

export interface Observed {
  readonly beat: string;
  /** Monotonic, ms: when this beat was first seen. */
  readonly sinceMs: number;
}

export type Observations<Id extends string> = ReadonlyMap<Id, Observed>;

/** Folds one look at the beats into what was seen before. Ids that are gone are forgotten. */
export function observe<Id extends string>(
  before: Observations<Id>,
  beats: readonly { readonly id: Id; readonly beat: string }[],
  nowMs: number,
): Observations<Id> {
  return new Map(
    beats.map(({ id, beat }) => {
      const seen = before.get(id);
      return [id, seen !== undefined && seen.beat === beat ? seen : { beat, sinceMs: nowMs }];
    }),
  );
}

/** Ids whose beat has not changed for a lease. */
export function deadOnes<Id extends string>(seen: Observations<Id>, leaseMs: number, nowMs: number): Id[] {
  return [...seen].filter(([, { sinceMs }]) => nowMs - sinceMs >= leaseMs).map(([id]) => id);
}

export interface Health {
  /** '' before the first answer of Redis. */
  readonly identity: string;
  /** Monotonic, ms: nobody is judged before. */
  readonly judgeFromMs: number;
}

/**
 * Folds one look at the server (`identity` undefined: it did not answer) into the time from which judging is allowed:
 * one lease after any outage, the longer of lease and session grace after the server changed (R3).
 */
export function noteHealth(
  before: Health,
  identity: string | undefined,
  nowMs: number,
  spans: { readonly leaseMs: number; readonly graceMs: number },
): Health {
  if (identity === undefined) return { ...before, judgeFromMs: Math.max(before.judgeFromMs, nowMs + spans.leaseMs) };
  if (before.identity === '' || before.identity === identity) return { ...before, identity };
  return { identity, judgeFromMs: Math.max(before.judgeFromMs, nowMs + Math.max(spans.leaseMs, spans.graceMs)) };
}
