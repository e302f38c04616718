/**
 * What a page itself costs between a key and the frame that shows it: time of the processor that its main thread took, from
 * Chromium's trace. By the clock alone one measures who else wants the processor.
 */
import type { Browser, Page } from 'playwright-core';

export interface PageWork {
  /** The longest time the main thread took without letting anything in between. */
  readonly longestTaskMs: number;
  /** For each key that was pressed, in order of size. */
  readonly keys: readonly KeyWork[];
}

export interface KeyWork {
  /** Of the processor, by the main thread between the key and its frame. */
  readonly ownMs: number;
  /** By the clock, from the key to its frame, as the page is told by its browser (to 8 ms). */
  readonly clockMs: number;
}

interface TraceEvent {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  /** All in microseconds; `tdur` is time of the processor, which a thread that has to wait for it does not take. */
  readonly ts: number;
  readonly dur?: number;
  readonly tdur?: number;
  readonly args?: { readonly data?: { readonly startTime?: number } };
}

type Watched = Window & { pressed?: { startTime: number; duration: number }[] };

/** Frames shorter than this are not told of: such a key waited for nothing. */
const SHORTEST_TOLD_MS = 16;
const MARK = 'page-work';

/** @param meanwhile presses keys, and says how many when it is done */
export async function measurePageWork(
  browser: Browser,
  page: Page,
  meanwhile: () => Promise<number>,
): Promise<PageWork> {
  await browser.startTracing(page, { categories: ['toplevel', 'blink.user_timing'] });
  await page.evaluate(
    ([mark, durationThreshold]) => {
      const pressed: { startTime: number; duration: number }[] = [];
      (window as Watched).pressed = pressed;
      performance.mark(mark);
      new PerformanceObserver((list) => {
        for (const { name, startTime, duration } of list.getEntries()) {
          if (name === 'keydown') pressed.push({ startTime, duration });
        }
      }).observe({ type: 'event', durationThreshold } as PerformanceObserverInit);
    },
    [MARK, SHORTEST_TOLD_MS] as const,
  );
  const count = await meanwhile();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
  const pressed = await page.evaluate(() => (window as Watched).pressed ?? []);
  return workOf(traceEvents, pressed.slice(0, count));
}

function workOf(events: readonly TraceEvent[], pressed: readonly { startTime: number; duration: number }[]): PageWork {
  const mark = events.find(({ name }) => name === MARK);
  if (mark === undefined) throw new Error('the trace does not hold the mark of the page');
  const offsetUs = mark.ts - (mark.args?.data?.startTime ?? Number.NaN) * 1_000;
  const tasks = events
    .filter(({ name, ph, pid, tid }) => ph === 'X' && name.endsWith('RunTask') && pid === mark.pid && tid === mark.tid)
    // Where the system does not tell the time of the processor, that of the clock is the most it can be.
    .map(({ ts, dur = 0, tdur = dur }) => ({ fromUs: ts, toUs: ts + dur, ownUs: tdur }))
    .sort((a, b) => a.fromUs - b.fromUs || b.toUs - a.toUs);
  // One within another is counted with it.
  let endUs = 0;
  const outer = tasks.filter(({ fromUs, toUs }) => {
    if (fromUs < endUs) return false;
    endUs = toUs;
    return true;
  });
  const keys = pressed.map(({ startTime, duration }) => {
    const fromUs = startTime * 1_000 + offsetUs;
    const toUs = fromUs + duration * 1_000;
    // Of a task that reaches beyond either end, no more can belong to the key than lies between.
    const own = outer.map((task) =>
      Math.max(0, Math.min(task.ownUs, Math.min(task.toUs, toUs) - Math.max(task.fromUs, fromUs))),
    );
    return { ownMs: own.reduce((sum, us) => sum + us, 0) / 1_000, clockMs: duration };
  });
  // A trace that is full says nothing any more, and every later key would have cost nothing.
  if (keys.some(({ ownMs }) => ownMs === 0)) throw new Error('the trace holds no work for a key: it is cut short');
  return {
    longestTaskMs: Math.max(...outer.map(({ ownUs }) => ownUs)) / 1_000,
    keys: keys.sort((a, b) => a.ownMs - b.ownMs),
  };
}
