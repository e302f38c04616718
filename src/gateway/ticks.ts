/**
 * Timers for what every connection does again and again: they come up to a tick late, and those of one tick share a wake-up
 * of the process. Five thousand tabs with a timer each cost a node more than what they do.
 */
export interface Ticks {
  /** @returns calls it off; idempotent */
  after(waitMs: number, call: () => void): () => void;
  /** Nothing is called any more. */
  close(): void;
}

export function createTicks(tickMs: number): Ticks {
  /** By the number of the tick in which they are due. */
  const due = new Map<number, Set<() => void>>();
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
    for (const [tick, calls] of due) {
      if (tick > now) continue;
      due.delete(tick);
      // One that is called off by another of this tick is not called.
      for (const call of calls) {
        calls.delete(call);
        call();
      }
    }
    arm();
  }

  return {
    after(waitMs, call) {
      const tick = tickOf(performance.now() + waitMs);
      const calls = due.get(tick) ?? new Set();
      const once = () => call();
      calls.add(once);
      due.set(tick, calls);
      arm();
      return () => {
        calls.delete(once);
        if (calls.size === 0 && due.get(tick) === calls) due.delete(tick);
      };
    },
    close() {
      closed = true;
      clearTimeout(timer);
      due.clear();
    },
  };
}
