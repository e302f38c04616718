/**
 * Who may read pages of logs, and when: a bounded number at a time for the whole node, one at a time for each session,
 * in turn, so that a tab with much to catch up holds back no other (DE4, DE5).
 */
import { type Backoff, fullJitterMs } from '../domain/backoff.js';

export interface Pullable {
  /** Reads and sends one page. `more`: again when it is its turn; `failed`: again after a wait. */
  pullPage(): Promise<'more' | 'idle' | 'failed'>;
}

export interface Puller {
  /** There is something to read for this one. Cheap, and idempotent. */
  schedule(pullable: Pullable): void;
  close(): void;
}

const RETRY: Backoff = { baseMs: 200, capMs: 3_000 };

export function createPuller(options: { readonly concurrency: number; random(): number }): Puller {
  const { concurrency, random } = options;
  const queue = new Set<Pullable>();
  /** Being read for; true when asked for once more meanwhile. */
  const running = new Map<Pullable, boolean>();
  const failures = new WeakMap<Pullable, number>();
  const timers = new Map<Pullable, NodeJS.Timeout>();
  let closed = false;

  function schedule(pullable: Pullable): void {
    if (closed || timers.has(pullable)) return;
    if (running.has(pullable)) running.set(pullable, true);
    else queue.add(pullable);
    fill();
  }

  function fill(): void {
    for (const pullable of queue) {
      if (running.size >= concurrency) return;
      queue.delete(pullable);
      void run(pullable);
    }
  }

  async function run(pullable: Pullable): Promise<void> {
    running.set(pullable, false);
    const outcome = await pullable.pullPage();
    const again = running.get(pullable) === true;
    running.delete(pullable);
    if (closed) return;
    if (outcome === 'failed') return wait(pullable);
    failures.delete(pullable);
    if (outcome === 'more' || again) queue.add(pullable);
    fill();
  }

  function wait(pullable: Pullable): void {
    const attempt = failures.get(pullable) ?? 0;
    failures.set(pullable, attempt + 1);
    const timer = setTimeout(
      () => {
        timers.delete(pullable);
        schedule(pullable);
      },
      50 + fullJitterMs(attempt, RETRY, random()),
    );
    timers.set(pullable, timer);
    fill();
  }

  return {
    schedule,
    close() {
      closed = true;
      queue.clear();
      for (const timer of timers.values()) clearTimeout(timer);
      timers.clear();
    },
  };
}
