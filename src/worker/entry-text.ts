/** Gives an entry of the spool the form in which it is stored and sent. */
import { decodeText } from '../domain/chunker.js';
import type { SpoolEntry } from '../domain/spool.js';
import { ENTRY_LETTER, type Entry, type StoredEntry, serializeEntry } from '../protocol/entries.js';
import type { CommandId } from '../protocol/ids.js';

/** The same entry always gives the same text. */
export function toStored(commandId: CommandId, entry: SpoolEntry): StoredEntry {
  const { fromSeq, seq, endOffset, body } = entry;
  return { letter: ENTRY_LETTER[body.type], fromSeq, seq, endOffset, text: serializeEntry(toEntry(commandId, entry)) };
}

function toEntry(commandId: CommandId, { fromSeq, seq, ts, startOffset, endOffset, body }: SpoolEntry): Entry {
  const base = { commandId, seq, ts };
  switch (body.type) {
    case 'output': {
      const { stream, bytes } = body;
      const data = decodeText(bytes);
      const content = data === undefined ? { base64: base64Of(bytes) } : { data };
      return { type: 'output', ...base, at: endOffset - bytes.length, stream, ...content };
    }
    case 'gap': {
      const bytes = startOffset === undefined ? {} : { bytes: endOffset - startOffset };
      return { type: 'gap', ...base, fromSeq, toSeq: seq, ...bytes, reason: body.reason };
    }
    default:
      return { ...body, ...base };
  }
}

const base64Of = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64');
