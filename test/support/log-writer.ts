/** Writes the log of a command by hand, as its worker would. */
import { randomBytes } from 'node:crypto';
import {
  ENTRY_LETTER,
  type Entry,
  type Outcome,
  type StoredEntry,
  serializeEntry,
} from '../../src/protocol/entries.js';
import { type CommandId, makeClaimId, makeWorkerId } from '../../src/protocol/ids.js';
import type { Stores } from './stores.js';

export async function claimToWrite(stores: Stores, commandId: string) {
  const id = commandId as CommandId;
  const claimId = makeClaimId(randomBytes(16));
  const workerId = makeWorkerId(randomBytes(16));
  const claimed = await stores.commands.claim(id, claimId, workerId, 'group');
  if (claimed.type !== 'claimed') throw new Error(`not claimed: ${claimed.state}`);
  let owner = claimed.ownerSessionId;
  let seq = 0;
  let at = 0;
  async function append(entries: StoredEntry[], outcome?: Outcome): Promise<void> {
    const done = await stores.commands.append({
      commandId: id,
      claimId,
      ownerSessionId: owner,
      entries,
      ...(outcome === undefined ? {} : { outcome }),
    });
    if (done.type === 'owner') {
      owner = done.ownerSessionId;
      await append(entries, outcome);
    } else if (done.type !== 'appended') throw new Error(done.type);
  }
  const stored = (entry: Entry): StoredEntry => ({
    letter: ENTRY_LETTER[entry.type],
    fromSeq: entry.seq,
    seq: entry.seq,
    endOffset: at,
    text: serializeEntry(entry),
  });
  const output = (data: string): StoredEntry => {
    const entry: Entry = { type: 'output', commandId: id, seq: ++seq, ts: 1, at, stream: 'out', data };
    at += Buffer.byteLength(data);
    return stored(entry);
  };
  const gap = (count: number, bytes: number): StoredEntry => {
    const fromSeq = seq + 1;
    seq += count;
    at += bytes;
    const entry: Entry = { type: 'gap', commandId: id, seq, ts: 1, fromSeq, toSeq: seq, bytes, reason: 'flood' };
    return { ...stored(entry), fromSeq };
  };
  return {
    /** A gap in place of so many entries. */
    lose: (count: number, bytes: number) => append([gap(count, bytes)]),
    print: (...texts: string[]) => append(texts.map(output)),
    end: () => {
      const outcome: Outcome = {
        reason: 'exited',
        code: 0,
        signal: null,
        durationMs: 1,
        outputBytes: at,
        tail: '',
        leftovers: 0,
      };
      return append([stored({ type: 'ended', commandId: id, seq: ++seq, ts: 1, outcome })], outcome);
    },
  };
}
