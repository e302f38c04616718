/**
 * What a worker says again about a command it runs, when Redis seems to have forgotten it (FAULTS R2): the claim, the owner
 * it last knew, and the record as it was when it was claimed, which is read once and kept as it is.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fullJitterMs } from '../domain/backoff.js';
import type { CommandRestored, KeptRecord, Reassertion } from '../domain/ports.js';
import type { ClaimId, CommandId, SessionId } from '../protocol/ids.js';

export interface HeldRecord {
  /** @throws AppError REDIS_UNAVAILABLE */
  sayAgain(ownerSessionId: SessionId | null): Promise<CommandRestored>;
  close(): void;
}

const BACKOFF = { baseMs: 100, capMs: 2_000 };

export function keepRecord(
  reassertion: Pick<Reassertion, 'recordOf' | 'command'>,
  random: () => number,
  commandId: CommandId,
  claimId: ClaimId,
): HeldRecord {
  let record: KeptRecord = [];
  const closed = new AbortController();

  /** Beside the start of the process, which does not wait for it. */
  async function read(): Promise<void> {
    for (let attempt = 0; !closed.signal.aborted; attempt += 1) {
      try {
        record = await reassertion.recordOf(commandId);
        return;
      } catch {
        // Until it is read, a lost record can not be given back; a lost claim can not either.
        await sleep(fullJitterMs(attempt, BACKOFF, random()), undefined, { ref: false });
      }
    }
  }
  void read();

  return {
    sayAgain: (ownerSessionId) => reassertion.command({ commandId, claimId, ownerSessionId, record }),
    close: () => closed.abort(),
  };
}
