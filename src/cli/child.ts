/**
 * One supervised child process of `homing up`: started, watched until it says that it is ready, started again with
 * back-off when it dies, and stopped with its parent.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { type Backoff, fullJitterMs } from '../domain/backoff.js';
import type { Log } from '../domain/ports.js';
import { CliFault, EXIT } from './fault.js';
import { LIFELINE_ENV } from './lifeline.js';

export interface ReadyFacts {
  readonly pid: number;
  readonly url?: string;
  readonly opsUrl?: string;
  readonly nodeId?: string;
  readonly workerId?: string;
}

export interface SupervisedOptions {
  /** Shown to people, such as `gateway 0`. */
  readonly name: string;
  /** Arguments of `homing`; never a secret, since every user of the host sees them. */
  readonly args: readonly string[];
  /** The whole environment; asked for before each start, so that a port found once is kept. */
  env(): Readonly<Record<string, string | undefined>>;
  readonly log: Log;
  /** After each start, not only the first. */
  onReady(facts: ReadyFacts): void;
}

export interface Supervised {
  readonly name: string;
  /** Of the process running now. */
  readonly pid: number | undefined;
  /** The first time it is ready. Rejects when it ends before. */
  readonly ready: Promise<ReadyFacts>;
  /** Ends its lifeline: it drains as if its parent were gone, for a few seconds at most. */
  letGo(): void;
  /** Sends a signal and starts it no more; resolves when it is gone. */
  stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
}

const RESTART: Backoff = { baseMs: 500, capMs: 15_000 };
/** Longer alive than this: the next death counts as the first one. */
const STEADY_MS = 30_000;

export function superviseChild(options: SupervisedOptions): Supervised {
  const { name, log } = options;
  let child: ChildProcess | undefined;
  let gone: Promise<void> = Promise.resolve();
  let attempt = 0;
  let wasReady = false;
  let stopping = false;
  let restartTimer: NodeJS.Timeout | undefined;
  let resolveReady!: (facts: ReadyFacts) => void;
  let rejectReady!: (error: Error) => void;
  const ready = new Promise<ReadyFacts>((resolve, reject) => {
    resolveReady = resolve;
    rejectReady = reject;
  });
  ready.catch(() => undefined); // Whoever started it awaits it; a stop before that is no fault.

  function start(): void {
    const startedMs = performance.now();
    const started = spawn(process.execPath, [process.argv[1] ?? '', ...options.args], {
      env: { ...options.env(), ...LIFELINE_ENV },
      stdio: ['pipe', 'pipe', 'inherit'],
      // Ctrl-C at the terminal reaches the whole group: the parent alone shall decide when to drain.
      detached: true,
    });
    child = started;
    started.stdin?.on('error', () => undefined); // It closed its end: its exit tells the rest.
    if (started.stdout !== null) createInterface({ input: started.stdout }).on('line', takeLine);
    gone = new Promise((resolve) => {
      let over = false;
      const end = (why: string) => {
        if (over) return;
        over = true;
        if (child === started) child = undefined;
        resolve();
        if (!stopping) died(why, performance.now() - startedMs);
      };
      started.on('error', (error) => end(error.message));
      started.on('exit', (code, signal) => end(signal === null ? `it ended with status ${code}` : `signal ${signal}`));
    });
  }

  function takeLine(line: string): void {
    const facts = parseReady(line);
    if (facts === undefined) return;
    wasReady = true;
    resolveReady(facts);
    options.onReady(facts);
  }

  function died(why: string, aliveMs: number): void {
    if (!wasReady) {
      rejectReady(new CliFault(EXIT.failure, `${name} could not start: ${why}.`));
      return;
    }
    attempt = aliveMs >= STEADY_MS ? 0 : attempt + 1;
    const delayMs = fullJitterMs(attempt, RESTART, Math.random(), 100);
    log.warn({ child: name, why, delayMs }, 'a process died, starting it again');
    restartTimer = setTimeout(start, delayMs);
  }

  start();
  return {
    name,
    get pid() {
      return child?.pid;
    },
    ready,
    letGo: () => void child?.stdin?.end(),
    async stop(signal) {
      stopping = true;
      clearTimeout(restartTimer);
      rejectReady(new CliFault(EXIT.failure, `${name} was stopped.`));
      child?.kill(signal);
      await gone;
    },
  };
}

function parseReady(line: string): ReadyFacts | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const facts = JSON.parse(line) as ReadyFacts & { event?: string };
    return facts.event === 'ready' ? facts : undefined;
  } catch {
    return undefined; // Some other line; it is nobody's business here.
  }
}
