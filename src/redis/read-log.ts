/**
 * Reads pages of a log, and looks whether each entry is what its place says: what was damaged is told as a gap where it stood, and
 * holds up nothing behind it (V1, DE3).
 */
import type { Cluster, Redis } from 'ioredis';
import type { CommandStore, Log, LogPage } from '../domain/ports.js';
import {
  ENTRY_LETTER,
  type EntryLetter,
  type Outcome,
  parseEntryText,
  type StoredEntry,
  serializeEntry,
} from '../protocol/entries.js';
import type { CommandId, SessionId } from '../protocol/ids.js';
import type { Keys } from './keys.js';
import { readHashes } from './pipelines.js';
import type { Scripts } from './scripts.js';
import { readable, readSnapshot } from './snapshot.js';

export function createLogReader(options: {
  readonly redis: Redis | Cluster;
  readonly scripts: Scripts;
  readonly keys: Keys;
  readonly log: Pick<Log, 'error'> | undefined;
}): CommandStore['readLog'] {
  const { redis, scripts, keys, log } = options;

  const keysOf = (id: CommandId, owner: SessionId | undefined) => [
    keys.command(id),
    keys.first(id),
    keys.last(id),
    owner === undefined ? keys.command(id) : keys.session(owner),
  ];

  async function readLog(
    commandId: CommandId,
    reader: Parameters<CommandStore['readLog']>[1],
    afterSeq: number,
    limitBytes: number,
  ): Promise<LogPage> {
    const owner = reader.type === 'owner' ? reader : undefined;
    const answer = (await scripts.run('read-log', keysOf(commandId, owner?.sessionId), [
      reader.type,
      owner?.sessionId ?? '',
      owner?.attachmentId ?? '',
      afterSeq,
      limitBytes,
    ])) as ['unknown'] | ['not_owner'] | ['page', number, number, number, number, ...(string | number)[]];
    if (answer[0] !== 'page') return { type: answer[0] };
    const [, headSeq, ackedSeq, ended, cursorOffset, ...flat] = answer;
    const entries: StoredEntry[] = [];
    for (let i = 0; i < flat.length; i += 5) {
      const entry: StoredEntry = {
        letter: flat[i] as EntryLetter,
        fromSeq: flat[i + 1] as number,
        seq: flat[i + 2] as number,
        endOffset: flat[i + 3] as number,
        text: flat[i + 4] as string,
      };
      const whole = isWhole(commandId, entry, owner === undefined || owner.careful === true);
      entries.push(whole ? entry : await inPlaceOf(commandId, entry, ended === 1 && entry.seq === headSeq));
    }
    return {
      type: 'page',
      entries,
      headSeq,
      ackedSeq,
      ended: ended === 1,
      ...(cursorOffset < 0 ? (afterSeq === 0 ? { cursorOffset: 0 } : {}) : { cursorOffset }),
    };
  }

  /** What is told in place of an entry that can not be read: a gap, and for the last of what is over its end, from the record. */
  async function inPlaceOf(commandId: CommandId, entry: StoredEntry, isEnd: boolean): Promise<StoredEntry> {
    const { fromSeq, seq } = entry;
    const key = keys.command(commandId);
    log?.error({ commandId, seq, key }, 'an entry of a log is damaged, and told as lost');
    const place = { commandId, seq, ts: Date.now() } as const;
    if (!isEnd) {
      const text = serializeEntry({ type: 'gap', ...place, fromSeq, toSeq: seq, reason: 'redis_lost' });
      return { ...entry, letter: ENTRY_LETTER.gap, text };
    }
    const [record] = await readHashes(redis, [key]);
    const outcome = readable(() => readSnapshot(key, commandId, record ?? {}).outcome, log) ?? UNKNOWN_END;
    return { ...entry, letter: ENTRY_LETTER.ended, text: serializeEntry({ type: 'ended', ...place, outcome }) };
  }

  return readLog;
}

const TYPE_OF = new Map<string, string>(Object.entries(ENTRY_LETTER).map(([type, letter]) => [letter, type]));

/** Neither log nor record says how it ended. */
const UNKNOWN_END: Outcome = {
  ...{ reason: 'lost', code: null, signal: null, durationMs: 0, outputBytes: 0, tail: '', leftovers: 0 },
  error: 'how it ended is damaged in Redis',
};

/**
 * Whether an entry is what its place says. A damaged one would break the frame it is in, and with it all others there. Looking
 * into every text is what the most of a catch-up would cost, so that is done for those who can not read what they got, for
 * the one entry that must not be missed, and for a text that does not begin as they all do.
 */
function isWhole(commandId: CommandId, { letter, seq, text }: StoredEntry, careful: boolean): boolean {
  const method = `command.${TYPE_OF.get(letter)}`;
  const begin = `{"jsonrpc":"2.0","method":"${method}","params":{"commandId":"${commandId}","seq":${seq},`;
  if (!careful && letter !== ENTRY_LETTER.ended && text.startsWith(begin) && text.endsWith('}}')) return true;
  try {
    const entry = parseEntryText(text);
    return entry.method === method && entry.params.commandId === commandId && entry.params.seq === seq;
  } catch {
    return false;
  }
}
