/**
 * After another Redis answers, or the same one with older data: says again what this node holds, and repeats the closes of
 * the last minutes, since a close that was lost would leave a session that nobody closes (FAULTS R2). Spread over a moment
 * and bounded in concurrency; the sweep finds what is missed here.
 */
import type { HeldSession, Log, Meter, Reassertion, SessionDirectory } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { AttachedSession } from './attached-session.js';

export interface Reasserter {
  /** The session was closed through this node. */
  closed(held: HeldSession): void;
  /** Begins, or begins again. Never rejects. */
  run(): void;
  close(): void;
}

export interface ReasserterOptions {
  readonly sessions: Pick<SessionDirectory, 'close'>;
  readonly reassertion: Reassertion;
  readonly log: Log;
  readonly meter: Meter;
  random(): number;
  all(): readonly { readonly session: AttachedSession }[];
}

/** Longer than a failover takes, with an operator asleep. */
const CLOSES_KEPT_MS = 5 * 60_000;
const MAX_CLOSES = 10_000;
const CONCURRENCY = 32;
const SPREAD_MS = 500;
const ATTEMPTS = 5;

export function createReasserter(options: ReasserterOptions): Reasserter {
  const { sessions, reassertion, log, meter, random, all } = options;
  const closes = new Map<string, { readonly held: HeldSession; readonly atMs: number }>();
  const waits = new Map<NodeJS.Timeout, () => void>();
  let round = 0;
  let over = false;

  function pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        waits.delete(timer);
        resolve();
      }, ms);
      timer.unref();
      waits.set(timer, resolve);
    });
  }

  async function work(jobs: (() => Promise<unknown>)[], mine: number): Promise<void> {
    const one = async () => {
      for (let job = jobs.pop(); job !== undefined && !over && mine === round; job = jobs.pop()) {
        for (let attempt = 1; attempt <= ATTEMPTS && !over; attempt += 1) {
          try {
            await job();
            break;
          } catch (error) {
            log.debug({ fault: messageOf(error), attempt }, 'could not be said again yet');
            await pause(SPREAD_MS * attempt * random());
          }
        }
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, one));
  }

  /** Back as it was before its close, or gone altogether: closed again, so that what it owned moves. */
  async function repeatClose(held: HeldSession): Promise<void> {
    const answer = await reassertion.session(held);
    if (answer.type === 'superseded' || answer.type === 'gone') return;
    const type = answer.type === 'away' ? 'again' : 'attachment';
    const result = await sessions.close(held.sessionId, { type, attachmentId: held.attachmentId });
    if (result.type === 'closed') meter.count('homing_closes_repeated_total');
    // Made away between the two calls: once more.
    else if (type === 'attachment') await repeatClose(held);
  }

  function forgetOld(): void {
    const before = performance.now() - CLOSES_KEPT_MS;
    for (const [id, { atMs }] of closes) {
      if (atMs > before && closes.size <= MAX_CLOSES) return;
      closes.delete(id);
    }
  }

  return {
    closed(held) {
      closes.delete(held.sessionId);
      closes.set(held.sessionId, { held, atMs: performance.now() });
      forgetOld();
    },
    run() {
      round += 1;
      const mine = round;
      forgetOld();
      const again = all().map(
        ({ session }) =>
          () =>
            session.reassert(),
      );
      const repeats = [...closes.values()].map(
        ({ held }) =>
          () =>
            repeatClose(held),
      );
      log.info({ sessions: again.length, closes: repeats.length }, 'another Redis answers, saying again what is held');
      void pause(SPREAD_MS * random()).then(() => work([...repeats, ...again], mine));
    },
    close() {
      over = true;
      for (const [timer, wake] of waits) {
        clearTimeout(timer);
        wake();
      }
      waits.clear();
    },
  };
}
