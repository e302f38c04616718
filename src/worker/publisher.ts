/**
 * Brings the entries of one command from its spool into the log, in order, once.
 *
 * One append is under way at a time, with up to 128 KiB; a repeat of it sends exactly the same texts. While Redis is away
 * it tries again for ever: the process of the command goes on, its output waits in the spool (CO9).
 *
 * Memory of one command: 1 MiB that was never sent, 4 MiB for rewinds, one append under way (128 KiB, and its texts, at most
 * about twice that; larger ones make garbage faster than it is collected), and some 300 bytes for each chunk that waits on the
 * disk. The rest of `HOMING_SPOOL_BYTES` is a file (`spool-files`), unless the disk refuses: then it is memory too.
 */
import { fullJitterMs } from '../domain/backoff.js';
import type {
  AppendRequest,
  AppendResult,
  CommandRestored,
  CommandStore,
  GapNotes,
  Log,
  Meter,
} from '../domain/ports.js';
import { createSpool, type Shelf, type SpoolBody } from '../domain/spool.js';
import { createTokenBucket } from '../domain/token-bucket.js';
import { assertNever, messageOf } from '../errors.js';
import type { ClaimId, CommandId, SessionId } from '../protocol/ids.js';
import { toStored } from './entry-text.js';

const BATCH_BYTES = 128 * 1024;
const BATCH_ENTRIES = 128;
const REWIND_BYTES = 4 * 1024 * 1024;
const MEMORY_BYTES = 1024 * 1024;
/** Output of one command in memory, while the disk takes the rest. */
export const HELD_BYTES = MEMORY_BYTES + REWIND_BYTES + BATCH_BYTES;
/** A failover of a Cluster takes 4 to 5 s, and the repair begins some time after it. */
export const REWIND_LEAST_MS = 15_000;
const BACKOFF = { baseMs: 50, capMs: 1_000 };
const LOG_EVERY_MS = 30_000;

export interface PublisherPorts {
  readonly store: Pick<CommandStore, 'append'>;
  /** Before a lost claim is believed, it is said again: Redis may have gone back to older data (R2). */
  readonly sayAgain: (ownerSessionId: SessionId | null) => Promise<CommandRestored>;
  readonly gapNotes?: GapNotes | undefined;
  readonly log: Log;
  readonly meter: Meter;
  readonly random: () => number;
}

export interface PublisherOptions {
  readonly commandId: CommandId;
  readonly claimId: ClaimId;
  readonly ownerSessionId: SessionId | null;
  readonly spoolBytes: number;
  readonly firstBytes: number;
  readonly lastBytes: number;
  readonly outputBytesPerSec: number;
  /** Confirmed entries are kept for a rewind at most this long, or 15 s if that is more. */
  readonly leaseMs: number;
  readonly recycle: (bytes: Uint8Array) => void;
  /** Takes what is too much for the memory. */
  readonly shelf: Shelf;
}

/** An answer that settles an append; another owner only makes it be repeated. */
type Answer = Exclude<AppendResult, { type: 'owner' }>;

export type PublishEnd = 'ended' | 'claim_lost' | 'closed';

export interface Publisher {
  add(body: SpoolBody): void;
  readonly outputBytes: number;
  /** Output that waits for Redis or its rate, and the part of it that is in memory. */
  readonly waiting: { readonly bytes: number; readonly memoryBytes: number };
  /** The owner as far as is known. */
  readonly ownerSessionId: SessionId | null;
  /**
   * Settles once: the entry `ended` is stored, or the claim is lost, or `close` was called. After `ended` it can still be
   * asked to `recheck`, until it is closed (L3).
   */
  readonly done: Promise<PublishEnd>;
  /** Lets go of what is too old for a rewind. */
  tick(): void;
  /** The log may have gone back: compares its end with ours and repairs it (FAULTS R2). */
  recheck(): void;
  /** Stops without writing more. Idempotent. */
  close(): void;
}

export function createPublisher(ports: PublisherPorts, options: PublisherOptions): Publisher {
  const { commandId, claimId, outputBytesPerSec, leaseMs } = options;
  const { log, meter, random } = ports;
  const spool = createSpool({
    spoolBytes: options.spoolBytes,
    firstBytes: options.firstBytes,
    lastBytes: options.lastBytes,
    rewindBytes: REWIND_BYTES,
    memoryBytes: MEMORY_BYTES,
    shelf: options.shelf,
    recycle: options.recycle,
  });
  const keepMs = Math.max(leaseMs, REWIND_LEAST_MS);
  const bucket = createTokenBucket(outputBytesPerSec, performance.now());
  let owner = options.ownerSessionId;
  let failures = 0;
  let confirmedSeq = 0;
  let lastLoggedMs = Number.NEGATIVE_INFINITY;
  let closed = false;
  let wake: () => void = () => {};

  /** Until `withinMs` have passed or, when it is not given, something was added. */
  const pause = (withinMs?: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = withinMs === undefined ? undefined : setTimeout(resolve, withinMs);
      wake = () => {
        if (timer !== undefined && !closed) return;
        clearTimeout(timer);
        resolve();
      };
    });

  async function publish(): Promise<PublishEnd> {
    for (;;) {
      if (closed) return 'closed';
      if (spool.drained) {
        await pause();
        continue;
      }
      const waitMs = bucket.waitMs(performance.now());
      if (waitMs > 0) {
        await pause(waitMs);
        continue;
      }
      const request = nextAppend();
      const result = await untilAnswered(() => appendOnce(request));
      if (result === undefined) return 'closed';
      if (result.type === 'claim_lost') {
        const said = await untilAnswered(() => ports.sayAgain(owner));
        if (said === undefined) return 'closed';
        if (said.type === 'lost') return 'claim_lost';
        if (said.type === 'ended') return 'ended';
        // The record is as it was before; what the log lacks is found by the next append.
        log.warn({ commandId, said: said.type }, 'the claim was lost by Redis and is held again');
        await pause(BACKOFF.baseMs);
        continue;
      }
      if (settle(request, result) === 'ended') tellEnded('ended');
    }
  }

  function nextAppend(): AppendRequest {
    const entries = spool.take(BATCH_BYTES, BATCH_ENTRIES, Date.now());
    const last = entries.at(-1)?.body;
    for (const { body, fromSeq, seq } of entries) {
      if (body.type !== 'gap') continue;
      meter.count('homing_gaps_total', { reason: body.reason });
      ports.gapNotes?.gap(commandId, { fromSeq, toSeq: seq, reason: body.reason });
    }
    bucket.take(
      entries.reduce((sum, { body }) => sum + (body.type === 'output' ? body.bytes.length : 0), 0),
      performance.now(),
    );
    return {
      commandId,
      claimId,
      ownerSessionId: owner,
      entries: entries.map((entry) => toStored(commandId, entry)),
      ...(last?.type === 'ended' ? { outcome: last.outcome } : {}),
    };
  }

  async function appendOnce(request: AppendRequest): Promise<Answer> {
    for (;;) {
      const result = await ports.store.append({ ...request, ownerSessionId: owner });
      if (result.type !== 'owner') return result;
      owner = result.ownerSessionId;
    }
  }

  /** Repeats the same call while Redis is away. undefined: closed meanwhile. */
  async function untilAnswered<T>(call: () => Promise<T>): Promise<T | undefined> {
    while (!closed) {
      try {
        const answer = await call();
        failures = 0;
        return answer;
      } catch (error) {
        noteFailure(error);
        await pause(fullJitterMs(failures, BACKOFF, random()));
        failures += 1;
      }
    }
    return undefined;
  }

  /** Takes the answer into account. Returns how publishing ended, if it did. */
  function settle(request: AppendRequest, result: Exclude<Answer, { type: 'claim_lost' }>): 'ended' | undefined {
    const nowMs = performance.now();
    switch (result.type) {
      case 'appended':
        confirmedSeq = result.headSeq;
        spool.confirm(result.headSeq, nowMs);
        spool.forget(nowMs - keepMs);
        return request.outcome !== undefined ? 'ended' : undefined;
      case 'behind':
        // Also the answer to a batch that overlaps the log by a part, after a recheck: nothing was lost then.
        if (result.headSeq < confirmedSeq) {
          meter.count('homing_log_repairs_total');
          log.warn({ commandId, headSeq: result.headSeq, confirmedSeq }, 'log went back, sending again');
        }
        confirmedSeq = result.headSeq;
        spool.rewind(result.headSeq, Date.now());
        return undefined;
      default:
        return assertNever(result);
    }
  }

  function noteFailure(error: unknown): void {
    meter.count('homing_append_failures_total');
    if (performance.now() - lastLoggedMs < LOG_EVERY_MS) return;
    lastLoggedMs = performance.now();
    log.warn({ commandId, error: messageOf(error) }, 'output can not be stored, it waits in the spool');
  }

  let tellEnded!: (end: PublishEnd) => void;
  const done = new Promise<PublishEnd>((resolve) => {
    tellEnded = resolve;
  });
  void publish().then(tellEnded);

  return {
    add(body) {
      // Dropped while Redis answers: the command is faster than its rate. Dropped while it does not: the spool is full.
      spool.add(body, Date.now(), failures > 0 ? 'spool' : 'flood');
      wake();
    },
    get outputBytes() {
      return spool.outputBytes;
    },
    get waiting() {
      return { bytes: spool.waitingBytes, memoryBytes: spool.hereBytes };
    },
    get ownerSessionId() {
      return owner;
    },
    done,
    tick() {
      // While Redis is away it may be another one that comes back, with older data.
      if (failures === 0) spool.forget(performance.now() - keepMs);
    },
    recheck() {
      spool.recheck();
      wake();
    },
    close() {
      closed = true;
      wake();
    },
  };
}
