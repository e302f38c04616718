/**
 * Gaps for the trace of their command, written at most once a second: those of a command and reason that come between are one
 * note. Nothing waits for it and nothing rests on it; while Redis is away notes are lost.
 */
import type { GapNotes } from '../domain/ports.js';
import type { GapReason } from '../protocol/entries.js';
import type { CommandId } from '../protocol/ids.js';
import type { Keys } from './keys.js';
import type { Scripts } from './scripts.js';

const WRITE_EVERY_MS = 1_000;
/** Beyond so many within a second, further ones are only counted by `homing_gaps_total`. */
const MAX_WAITING = 1_000;

interface Waiting {
  readonly commandId: CommandId;
  readonly reason: GapReason;
  fromSeq: number;
  toSeq: number;
}

export function createGapNotes(ports: { readonly keys: Keys; readonly scripts: Pick<Scripts, 'run'> }): GapNotes & {
  close(): void;
} {
  const { keys, scripts } = ports;
  const waiting = new Map<string, Waiting>();
  let timer: NodeJS.Timeout | undefined;

  function write(): void {
    timer = undefined;
    for (const { commandId, fromSeq, toSeq, reason } of waiting.values()) {
      scripts
        .run('note-gap', [keys.command(commandId), keys.trace(commandId)], [fromSeq, toSeq, reason])
        .catch(() => undefined); // It is in the log, or was told, all the same.
    }
    waiting.clear();
  }

  return {
    gap(commandId, { fromSeq, toSeq, reason }) {
      const key = `${commandId} ${reason}`;
      const one = waiting.get(key);
      if (one !== undefined) {
        one.fromSeq = Math.min(one.fromSeq, fromSeq);
        one.toSeq = Math.max(one.toSeq, toSeq);
      } else if (waiting.size < MAX_WAITING) {
        waiting.set(key, { commandId, reason, fromSeq, toSeq });
      }
      timer ??= setTimeout(write, WRITE_EVERY_MS).unref();
    },
    close() {
      clearTimeout(timer);
      timer = undefined;
      waiting.clear();
    },
  };
}
