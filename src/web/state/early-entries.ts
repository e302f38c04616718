/**
 * The first entries of the command that was run last, until its terminal is there a moment later: so that it need not read
 * from the log what has just come. One command, and no more than a terminal may leave unread.
 */
import type { Entry } from '../../client/index.js';
import { outputSize } from '../terminal/feed.js';

export interface EarlyEntries {
  /** From its first entry on, this command's are kept, and those of the one before no more. */
  begin(commandId: string): void;
  keep(entry: Entry): void;
  /** All of them so far, once; undefined when some are missing, or were given out. */
  take(commandId: string): readonly Entry[] | undefined;
}

export function createEarlyEntries(maxBytes: number): EarlyEntries {
  let current: { readonly commandId: string; entries: Entry[]; bytes: number } | undefined;
  return {
    begin(commandId) {
      current = { commandId, entries: [], bytes: 0 };
    },
    keep(entry) {
      if (current === undefined || entry.commandId !== current.commandId) return;
      current.entries.push(entry);
      // As a reader of the log counts: two bytes a character, and something for the entry.
      current.bytes += 200 + 2 * outputSize(entry);
      if (current.bytes > maxBytes) current = undefined;
    },
    take(commandId) {
      if (current?.commandId !== commandId) return undefined;
      const { entries } = current;
      current = undefined;
      return entries;
    },
  };
}
