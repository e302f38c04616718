/**
 * Moves a log into a terminal: in order, in pieces, never more than a bound ahead of what the terminal has worked off. A pause
 * stops the reading; what comes meanwhile stays in the log (DE4), so nothing is lost and nothing grows.
 */
import { AppError, type Entry } from '../../client/index.js';

export interface FeedPorts {
  /** Resolves when the terminal has worked it off. */
  write(entry: Extract<Entry, { type: 'output' | 'gap' }>): Promise<void>;
  onProgress(progress: FeedProgress): void;
}

export interface FeedProgress {
  /** `reading`: entries that are there already; `live`: as they come; `over`: the command ended. */
  readonly state: 'reading' | 'live' | 'paused' | 'over' | 'failed';
  readonly seq: number;
  readonly headSeq: number;
  readonly message?: string;
}

export interface Feed {
  pause(on: boolean): void;
  close(): void;
}

/** Written and not yet worked off. */
const MAX_IN_FLIGHT_BYTES = 256 * 1024;
/** Without an entry for so long, there is none: the log is empty so far. */
const LIVE_AFTER_MS = 60;
const RETRY_MS = 1_000;

export const outputSize = (entry: Entry): number =>
  entry.type === 'output' ? (entry.data?.length ?? 0) + (entry.base64?.length ?? 0) : 0;

export function startFeed(log: AsyncIterator<Entry> & { headSeq(): number }, ports: FeedPorts): Feed {
  let closed = false;
  let paused = false;
  let resume: (() => void) | undefined;
  let seq = 0;
  let inFlightBytes = 0;
  let drained: (() => void) | undefined;
  let liveTimer: ReturnType<typeof setTimeout> | undefined;

  const say = (state: FeedProgress['state'], message?: string) =>
    ports.onProgress({ state, seq, headSeq: log.headSeq(), ...(message === undefined ? {} : { message }) });

  async function write(entry: Extract<Entry, { type: 'output' | 'gap' }>): Promise<void> {
    const bytes = outputSize(entry) + 1;
    inFlightBytes += bytes;
    void ports.write(entry).then(() => {
      inFlightBytes -= bytes;
      if (inFlightBytes < MAX_IN_FLIGHT_BYTES) drained?.();
    });
    if (inFlightBytes >= MAX_IN_FLIGHT_BYTES) await new Promise<void>((resolve) => (drained = resolve));
  }

  async function pump(): Promise<void> {
    say('reading');
    while (!closed) {
      if (paused) {
        say('paused');
        await new Promise<void>((resolve) => (resume = resolve));
        if (!closed) say('reading');
        continue;
      }
      liveTimer = setTimeout(() => say('live'), LIVE_AFTER_MS);
      const next = await log.next().finally(() => clearTimeout(liveTimer));
      if (closed || next.done) return;
      const entry = next.value;
      seq = entry.seq;
      if (entry.type === 'output' || entry.type === 'gap') await write(entry);
      if (entry.type === 'ended') return say('over');
      say(seq >= log.headSeq() ? 'live' : 'reading');
    }
  }

  /** While the connection is away the log can not be read; then it is tried again. */
  async function keepPumping(): Promise<void> {
    while (!closed) {
      try {
        return await pump();
      } catch (error) {
        if (closed) return;
        const retryable = error instanceof AppError && error.retryable;
        say('failed', retryable ? 'waiting for the connection' : (error as Error).message);
        if (!retryable) return;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }
  void keepPumping();

  return {
    pause(on) {
      paused = on;
      if (!on) resume?.();
    },
    close() {
      closed = true;
      clearTimeout(liveTimer);
      resume?.();
      drained?.();
    },
  };
}
