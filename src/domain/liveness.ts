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

/**
 * What is seen of a look that is the first for more than half a lease: all anew. Who did not look for so long may have stood still,
 * and the others with it, as on a machine that did: they get a lease to beat again.
 * @param lookedAtMs when was looked before; undefined: never
 */
export function afterPause<Id extends string>(
  seen: Observations<Id>,
  lookedAtMs: number | undefined,
  nowMs: number,
  leaseMs: number,
): Observations<Id> {
  if (lookedAtMs === undefined || nowMs - lookedAtMs <= leaseMs / 2) return seen;
  return new Map([...seen].map(([id, { beat }]) => [id, { beat, sinceMs: nowMs }]));
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

/** A server's clock was set: from about `beforeMs` on it runs `byMs` further, or back. */
export interface ClockStep {
  readonly beforeMs: number;
  readonly byMs: number;
}

export interface Clocks {
  /** By server: what its clock said, and when that was on the observer's monotonic one. */
  readonly seen: ReadonlyMap<string, { readonly clockMs: number; readonly atMs: number }>;
  /** The latest ones, oldest first. */
  readonly steps: readonly ClockStep[];
}

/** An answer may take as long as a command may; less is no step. */
const STEP_LEAST_MS = 6_000;
const MAX_STEPS = 16;

/** Folds one look at the servers' clocks into what was seen before (R4). `stepped`: nobody is judged for a while (R3). */
export function noteClocks(
  before: Clocks,
  readings: readonly { readonly id: string; readonly clockMs: number }[],
  nowMs: number,
): { readonly clocks: Clocks; readonly stepped: boolean } {
  const steps = readings.flatMap(({ id, clockMs }): ClockStep[] => {
    const last = before.seen.get(id);
    if (last === undefined) return [];
    const byMs = clockMs - last.clockMs - (nowMs - last.atMs);
    return Math.abs(byMs) < STEP_LEAST_MS ? [] : [{ beforeMs: last.clockMs, byMs }];
  });
  const seen = new Map(readings.map(({ id, clockMs }) => [id, { clockMs, atMs: nowMs }]));
  return { clocks: { seen, steps: [...before.steps, ...steps].slice(-MAX_STEPS) }, stepped: steps.length > 0 };
}

/** Time between two readings of a server's clock, without the steps forward that lie between them. */
export function elapsedMs(sinceMs: number, untilMs: number, steps: readonly ClockStep[]): number {
  const stepped = steps.filter(({ beforeMs, byMs }) => byMs > 0 && sinceMs <= beforeMs && beforeMs + byMs <= untilMs);
  return untilMs - sinceMs - stepped.reduce((sum, { byMs }) => sum + byMs, 0);
}
