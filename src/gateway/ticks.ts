/**
 * Timers for what every connection does again and again: they come up to a tick late, and those of one tick share a wake-up
 * of the process. Five thousand tabs with a timer each cost a node more than what they do. A timer is nothing but a place of
 * its owner in the set of a tick.
 */
export interface Timed {
  /** Its time has come. */
  onTick(): void;
}

/** The tick in which something is due. */
export type Tick = number;

export interface Ticks {
  /** Each waits once at most for the same tick. */
  after(waitMs: number, timed: Timed): Tick;
  /** Idempotent, also when its time has come. */
  callOff(tick: Tick, timed: Timed): void;
  /** Nothing is called any more. */
  close(): void;
}

export function createTicks(tickMs: number): Ticks {
  const due = new Map<Tick, Set<Timed>>();
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  const tickOf = (atMs: number) => Math.ceil(atMs / tickMs);

  function arm(): void {
    if (closed || timer !== undefined || due.size === 0) return;
    const nowMs = performance.now();
    // On the boundary, wherever the last turn ended.
    timer = setTimeout(run, tickMs - (nowMs % tickMs));
    timer.unref();
  }

  function run(): void {
    timer = undefined;
    const now = Math.floor(performance.now() / tickMs);
    for (const [tick, all] of due) {
      if (tick > now) continue;
      // One that is called off by another of this tick is not called.
      for (const timed of all) {
        all.delete(timed);
        timed.onTick();
      }
      if (due.get(tick) === all) due.delete(tick);
    }
    arm();
  }

  return {
    after(waitMs, timed) {
      const tick = tickOf(performance.now() + waitMs);
      const all = due.get(tick) ?? new Set();
      all.add(timed);
      due.set(tick, all);
      arm();
      return tick;
    },
    callOff(tick, timed) {
      const all = due.get(tick);
      all?.delete(timed);
      if (all?.size === 0) due.delete(tick);
    },
    close() {
      closed = true;
      clearTimeout(timer);
      due.clear();
    },
  };
}
