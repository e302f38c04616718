/**
 * Proof that messages really come back: publishes on an own channel about every second and notes when that was heard.
 * Finds what pings can not see: a connection that answers and has no subscription.
 */
import type { Chance, Meter } from '../domain/ports.js';

export interface BusProbe {
  /** To be called with each message of the probe's channel. */
  heard(message: string): void;
  /** The subscription was made anew: what was not heard before proves nothing now. */
  restarted(): void;
  /** Milliseconds since the last one was heard; Infinity before the first. */
  ageMs(): number;
  /** For how long Redis has taken probes of which none was heard; 0 while it does not take any. */
  deafMs(): number;
  close(): void;
}

export interface BusProbePorts {
  publish(message: string): Promise<unknown>;
  /** Redis took probes for `LOST_MS` and none was heard. */
  lost(): void;
  readonly meter: Meter;
  readonly chance: Chance;
}

const INTERVAL_MS = 1_000;
/** Until the first one is heard, since its subscription may be acknowledged after it: a start is not to wait a second. */
const FIRST_INTERVAL_MS = 20;
const LOST_MS = 3_000;

export function createBusProbe({ publish, lost, meter, chance }: BusProbePorts): BusProbe {
  let closed = false;
  let sequence = 0;
  let publishedMs = 0;
  let heardMs: number | undefined;
  /** When Redis took the first probe that was not heard; begun anew with each connection. */
  let unheardSinceMs: number | undefined;
  /** The same over all connections. */
  let deafSinceMs: number | undefined;
  let timer: NodeJS.Timeout | undefined;

  async function probe(): Promise<void> {
    sequence += 1;
    publishedMs = performance.now();
    const heardBefore = heardMs;
    try {
      await publish(String(sequence));
    } catch {
      // Redis is away for everyone: no proof against the subscriber. The age tells, the connections report.
      unheardSinceMs = undefined;
      deafSinceMs = undefined;
      return;
    }
    // The message comes on another socket and may overtake the answer to its publish.
    if (heardMs !== heardBefore) return;
    const nowMs = performance.now();
    unheardSinceMs ??= nowMs;
    deafSinceMs ??= nowMs;
    if (closed || nowMs - unheardSinceMs < LOST_MS) return;
    unheardSinceMs = undefined;
    lost();
  }

  const intervalMs = (): number =>
    heardMs === undefined ? Math.min(FIRST_INTERVAL_MS * 2 ** Math.min(sequence - 1, 10), INTERVAL_MS) : INTERVAL_MS;

  async function round(): Promise<void> {
    await probe();
    if (closed) return;
    timer = setTimeout(() => void round(), intervalMs() * (0.75 + chance.random() / 2));
    timer.unref();
  }
  void round();

  return {
    heard(message) {
      heardMs = performance.now();
      unheardSinceMs = undefined;
      deafSinceMs = undefined;
      if (message === String(sequence)) meter.observe('homing_bus_probe_ms', heardMs - publishedMs);
    },
    restarted() {
      unheardSinceMs = undefined;
    },
    ageMs: () => (heardMs === undefined ? Number.POSITIVE_INFINITY : performance.now() - heardMs),
    deafMs: () => (deafSinceMs === undefined ? 0 : performance.now() - deafSinceMs),
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}
