/**
 * Notices for whoever waits for a command without reading its output: watch and heartbeat entries. They are entries of the
 * log like any other, so they reach the owner by the one route, and survive a node (OW9).
 *
 * Patterns of users may cost at most a fifth of the time of this process for each command; what comes faster is not looked at,
 * and counted. The breaker for one origin counts the commands of all workers (`breakers.ts`), so a notice may be told a moment
 * after the output it is about; `end` waits for that.
 */
import type { Meter, Patterns } from '../domain/ports.js';
import { BREAKER, createWatch, type WatchNotice, type WatchPattern } from '../domain/watch.js';
import type { OutputStream } from '../protocol/entries.js';
import type { CommandSpec } from '../protocol/methods.js';
import type { AskBreaker } from './breakers.js';
import type { Publisher } from './publisher.js';

const IDLE_MS = 300;
const BUDGET_MS = 200;
const BUDGET_WINDOW_MS = 1_000;

export interface Notices {
  /** To be called with what was added to the log just before. */
  output(stream: OutputStream, bytes: Uint8Array): void;
  /** The last ones; nothing is told after it resolved, soon whatever Redis does. Idempotent. */
  end(): Promise<void>;
}

interface NoticesPorts {
  readonly patterns: Patterns | undefined;
  /** That of the command's origin. */
  readonly breaker: AskBreaker;
  readonly publisher: Pick<Publisher, 'add' | 'outputBytes'>;
  readonly meter: Meter;
}

const NONE: Notices = { output() {}, end: async () => {} };

export function createNotices(ports: NoticesPorts, notify: CommandSpec['notify']): Notices {
  const watching = createWatching(ports, notify?.watch ?? []);
  const stopHeartbeat = startHeartbeat(ports, notify?.heartbeatMs);
  if (watching === NONE && stopHeartbeat === undefined) return NONE;
  return {
    output: watching.output,
    end() {
      stopHeartbeat?.();
      return watching.end();
    },
  };
}

/** Told only when there is something new. */
function startHeartbeat({ publisher }: NoticesPorts, everyMs: number | undefined): (() => void) | undefined {
  if (everyMs === undefined) return undefined;
  const beganMs = performance.now();
  let toldBytes = 0;
  const timer = setInterval(() => {
    const bytesSinceLast = publisher.outputBytes - toldBytes;
    if (bytesSinceLast === 0) return;
    toldBytes = publisher.outputBytes;
    publisher.add({ type: 'heartbeat', elapsedMs: Math.round(performance.now() - beganMs), bytesSinceLast });
  }, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}

type Asked = NonNullable<NonNullable<CommandSpec['notify']>['watch']>;

function createWatching({ patterns, breaker, publisher, meter }: NoticesPorts, asked: Asked): Notices {
  const compiled = asked.flatMap((one): WatchPattern[] => {
    const found = patterns?.compile(one);
    return found?.ok ? [{ pattern: one.pattern, test: withinBudget(found.test, meter) }] : [];
  });
  if (compiled.length === 0) return NONE;
  const watch = createWatch(compiled);
  const ended = new AbortController();
  let idleTimer: NodeJS.Timeout | undefined;
  /** Matches that an open breaker swallowed. */
  let swallowed = 0;
  /** Told one after the other. A watch has few notices, so what waits here is bounded. */
  let telling: Promise<void> = Promise.resolve();

  function tell(notices: readonly WatchNotice[]): void {
    for (const notice of notices) telling = telling.then(() => tellOne(notice));
  }

  async function tellOne(notice: WatchNotice): Promise<void> {
    // That it will be silent is told whatever others do.
    const answer = 'disabled' in notice ? 'pass' : await breaker(ended.signal);
    const suppressed = notice.suppressed + swallowed;
    meter.count('homing_watch_notices_total', { answer });
    if (answer === 'pass') {
      publisher.add({ type: 'watch', ...notice, suppressed });
      swallowed = 0;
    } else if (answer === 'trip') {
      const why = `more than ${BREAKER.notices} notices of one origin in ${BREAKER.windowMs / 1_000} s; none for ${BREAKER.openMs / 1_000} s`;
      publisher.add({ type: 'watch', disabled: true, why, suppressed: suppressed + 1 });
      swallowed = 0;
    } else {
      swallowed += 1 + notice.suppressed;
    }
  }

  const lookIdle = () => {
    idleTimer = undefined;
    tell(watch.idle(performance.now()));
  };

  return {
    output(stream, bytes) {
      if (watch.silent) return;
      tell(watch.push(stream, bytes, performance.now()));
      clearTimeout(idleTimer);
      idleTimer = setTimeout(lookIdle, IDLE_MS);
      idleTimer.unref();
    },
    end() {
      clearTimeout(idleTimer);
      tell(watch.end(performance.now()));
      ended.abort();
      return telling;
    },
  };
}

/** A flood of lines must not keep the process from everything else. */
function withinBudget(test: (text: string) => boolean, meter: Meter): (text: string) => boolean {
  let windowMs = Number.NEGATIVE_INFINITY;
  let spentMs = 0;
  return (text) => {
    const beganMs = performance.now();
    if (beganMs - windowMs >= BUDGET_WINDOW_MS) {
      windowMs = beganMs;
      spentMs = 0;
    }
    if (spentMs >= BUDGET_MS) {
      meter.count('homing_watch_skipped_total');
      return false;
    }
    const found = test(text);
    spentMs += performance.now() - beganMs;
    return found;
  };
}
