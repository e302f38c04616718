/**
 * The life of a process, and how signals move it along: the first asks for a graceful end, the second forces one.
 *
 * - `starting`: settings are read, Redis is asked, nothing is listened on and no work is taken.
 * - `running`: takes work. A node is ready for sockets, a worker for jobs.
 * - `draining`: takes no new work and finishes or hands over what it has, within `HOMING_DRAIN_MS`. A node tells its
 *   clients when to come back (SE6); a worker lets its commands end, then ends them.
 * - `stopped`: everything is released. The process ends by itself, or by the signal that stopped it, so that its exit
 *   status is honest.
 */
export type LifeState = 'starting' | 'running' | 'draining' | 'stopped';

export interface Lifecycle {
  readonly state: LifeState;
  running(): void;
  /** Drains, then stops; the first call decides, later ones wait for the same end. */
  stop(why: string): Promise<void>;
  /** Skips what is left of a drain; closing follows. */
  force(): void;
  /** Resolves when stopped. */
  readonly stopped: Promise<void>;
}

export interface LifecycleSteps {
  /** Its failure is reported and does not keep `close` from running. */
  drain(why: string): Promise<void>;
  /** Runs also after a forced end, since it is what kills commands; given up after `closeLimitMs`. */
  close(): Promise<void>;
  readonly closeLimitMs: number;
  failed(step: 'drain' | 'close', error: unknown): void;
}

export function createLifecycle(steps: LifecycleSteps): Lifecycle {
  let state: LifeState = 'starting';
  let force!: () => void;
  let finish!: () => void;
  const forced = new Promise<void>((resolve) => {
    force = resolve;
  });
  const stopped = new Promise<void>((resolve) => {
    finish = resolve;
  });

  async function run(step: 'drain' | 'close', work: () => Promise<void>, cutShort: Promise<void>): Promise<void> {
    try {
      await Promise.race([work(), cutShort]);
    } catch (error) {
      steps.failed(step, error);
    }
  }

  async function close(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`not closed within ${steps.closeLimitMs} ms`)), steps.closeLimitMs);
    });
    await run('close', steps.close, late);
    clearTimeout(timer);
  }

  return {
    get state() {
      return state;
    },
    running() {
      if (state === 'starting') state = 'running';
    },
    async stop(why) {
      if (state === 'draining' || state === 'stopped') return stopped;
      const wasRunning = state === 'running';
      state = 'draining';
      if (wasRunning) await run('drain', () => steps.drain(why), forced);
      await close();
      state = 'stopped';
      finish();
    },
    force,
    stopped,
  };
}

/** What of a process is needed to follow its signals. */
export interface SignalSource {
  on(signal: 'SIGINT' | 'SIGTERM', handler: (signal: 'SIGINT' | 'SIGTERM') => void): unknown;
  off(signal: 'SIGINT' | 'SIGTERM', handler: (signal: 'SIGINT' | 'SIGTERM') => void): unknown;
}

/** First signal: `graceful`; second: `forceful`; from the third on: `atOnce`. @returns stops listening */
export function onSignals(
  source: SignalSource,
  steps: Readonly<Record<'graceful' | 'forceful' | 'atOnce', (signal: string) => void>>,
): () => void {
  let seen = 0;
  const handler = (signal: 'SIGINT' | 'SIGTERM') => {
    seen += 1;
    if (seen === 1) steps.graceful(signal);
    else if (seen === 2) steps.forceful(signal);
    else steps.atOnce(signal);
  };
  source.on('SIGINT', handler);
  source.on('SIGTERM', handler);
  return () => {
    source.off('SIGINT', handler);
    source.off('SIGTERM', handler);
  };
}
