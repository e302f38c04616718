/**
 * Runs a node or a worker as a process: says on stdout that it is ready, drains on SIGTERM, ends at once on a second one,
 * and does not outlive the `homing up` that started it.
 */
import { constants } from 'node:os';
import type { Part } from '../compose.js';
import type { Settings } from '../config.js';
import type { Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import { createLifecycle, onSignals } from '../lifecycle.js';
import { createLog } from '../ops/log.js';
import { watchLifeline } from './lifeline.js';
import { watchPipes } from './output.js';

/** What an orphan may still take: its Redis most likely ended with its parent, so there is little to wait for. */
const ORPHAN_DRAIN_MS = 3_000;
/** Killing what still runs takes a worker up to 5 s, closing its queue 2 s. */
const CLOSE_LIMIT_MS = 10_000;

/** The line on stdout that tells operators and `homing up` that work is taken, and where. */
export const readyLine = (program: string, facts: object): string =>
  `${JSON.stringify({ event: 'ready', program, pid: process.pid, ...facts })}\n`;

/** Resolves with the exit status when the process has nothing left to do. */
export async function serve<Facts extends object>(
  program: 'gateway' | 'worker',
  settings: Settings,
  start: (log: Log, drainAsked: () => void) => Promise<Part<Facts>>,
): Promise<number> {
  // The log goes on without whoever read stdout.
  watchPipes(() => undefined);
  const log = createLog(settings.HOMING_LOG_LEVEL, { program, pid: process.pid });
  let part: Part<Facts> | undefined;
  let drainMs = settings.HOMING_DRAIN_MS;
  let status = 0;

  const life = createLifecycle({
    async drain(why) {
      log.info({ why, withinMs: drainMs }, 'draining');
      await part?.drain(drainMs);
    },
    close: async () => part?.close(),
    closeLimitMs: CLOSE_LIMIT_MS,
    failed(step, error) {
      status = 1;
      log.error({ step, error: messageOf(error) }, 'could not end cleanly');
    },
  });
  const stopSignals = onSignals(process, {
    graceful: (signal) => void life.stop(signal),
    forceful(signal) {
      status = 1;
      log.warn({ signal }, 'ending the drain');
      life.force();
    },
    atOnce: (signal) => process.exit(128 + constants.signals[signal as 'SIGTERM']),
  });
  let orphanTimer: NodeJS.Timeout | undefined;
  const stopLifeline = watchLifeline(process.env, () => {
    drainMs = Math.min(drainMs, ORPHAN_DRAIN_MS);
    orphanTimer = setTimeout(life.force, ORPHAN_DRAIN_MS);
    void life.stop('the parent process is gone');
  });

  try {
    part = await start(log, () => void life.stop('an operator asked for it'));
    if (life.state === 'starting') {
      life.running();
      process.stdout.write(readyLine(program, part.facts));
    } else {
      await part.close(); // Told to stop before it was up.
    }
    await life.stopped;
  } finally {
    stopSignals();
    stopLifeline();
    clearTimeout(orphanTimer);
  }
  log.info({ status }, 'stopped');
  return status;
}
