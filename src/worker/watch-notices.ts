/**
 * Notices for whoever waits for a command without reading its output: watch and heartbeat entries. They are entries of the
 * log like any other, so they reach the owner by the one route, and survive a node (OW9).
 *
 * Patterns of users may cost at most a fifth of the time of this process for each command; what comes faster is not looked at,
 * and counted. The breaker for one origin counts the commands of this worker.
 */
import type { Meter, Patterns } from '../domain/ports.js';
import {
  BREAKER,
  type Breaker,
  createBreaker,
  createWatch,
  type WatchNotice,
  type WatchPattern,
} from '../domain/watch.js';
import type { OutputStream } from '../protocol/entries.js';
import type { CommandSpec } from '../protocol/methods.js';
import type { Publisher } from './publisher.js';

const IDLE_MS = 300;
const BUDGET_MS = 200;
const BUDGET_WINDOW_MS = 1_000;
/** Origins without a recent notice are forgotten when there are more. */
const MAX_BREAKERS = 1_000;

export interface Notices {
  /** To be called with what was added to the log just before. */
  output(stream: OutputStream, bytes: Uint8Array): void;
  /** The last ones; nothing is told afterwards. Idempotent. */
  end(): void;
}

/** One for each origin; shared by the commands of a worker. */
export interface Breakers {
  of(origin: string): Breaker;
}

export function createBreakers(): Breakers {
  const breakers = new Map<string, Breaker>();
  return {
    of(origin) {
      const known = breakers.get(origin);
      if (known !== undefined) return known;
      if (breakers.size >= MAX_BREAKERS) {
        const nowMs = performance.now();
        for (const [name, breaker] of breakers) if (breaker.isIdle(nowMs)) breakers.delete(name);
      }
      const made = createBreaker();
      breakers.set(origin, made);
      return made;
    },
  };
}

interface NoticesPorts {
  readonly patterns: Patterns | undefined;
  readonly breakers: Breakers;
  readonly publisher: Pick<Publisher, 'add' | 'outputBytes'>;
  readonly meter: Meter;
}

const NONE: Notices = { output() {}, end() {} };

/** @param origin whose breaker counts */
export function createNotices(ports: NoticesPorts, notify: CommandSpec['notify'], origin: string): Notices {
  const watching = createWatching(ports, notify?.watch ?? [], origin);
  const stopHeartbeat = startHeartbeat(ports, notify?.heartbeatMs);
  if (watching === NONE && stopHeartbeat === undefined) return NONE;
  return {
    output: watching.output,
    end() {
      stopHeartbeat?.();
      watching.end();
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

function createWatching({ patterns, breakers, publisher, meter }: NoticesPorts, asked: Asked, origin: string): Notices {
  const compiled = asked.flatMap((one): WatchPattern[] => {
    const found = patterns?.compile(one);
    return found?.ok ? [{ pattern: one.pattern, test: withinBudget(found.test, meter) }] : [];
  });
  if (compiled.length === 0) return NONE;
  const watch = createWatch(compiled);
  const breaker = breakers.of(origin);
  let idleTimer: NodeJS.Timeout | undefined;
  /** Matches that an open breaker swallowed. */
  let swallowed = 0;

  function tell(notices: readonly WatchNotice[], nowMs: number): void {
    for (const notice of notices) {
      // That it will be silent is told whatever others do.
      const answer = 'disabled' in notice ? 'pass' : breaker.ask(nowMs);
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
  }

  const lookIdle = () => {
    idleTimer = undefined;
    const nowMs = performance.now();
    tell(watch.idle(nowMs), nowMs);
  };

  return {
    output(stream, bytes) {
      if (watch.silent) return;
      const nowMs = performance.now();
      tell(watch.push(stream, bytes, nowMs), nowMs);
      clearTimeout(idleTimer);
      idleTimer = setTimeout(lookIdle, IDLE_MS);
      idleTimer.unref();
    },
    end() {
      clearTimeout(idleTimer);
      const nowMs = performance.now();
      tell(watch.end(nowMs), nowMs);
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
