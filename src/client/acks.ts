/**
 * Acknowledges what was consumed: at most once a second, or after 64 entries (DE6). What can not be sent now is kept and
 * sent on the next connection; only the highest seq of a command counts, so a lost acknowledgement costs nothing.
 */

const EVERY_MS = 1_000;
const EVERY_ENTRIES = 64;
/** The protocol's bound for one notification. */
const MAX_CURSORS = 1_000;

export interface Acks {
  /** Everything of the command up to this seq was consumed. */
  note(commandId: string, seq: number): void;
  /** Sends what waits, if there is a connection. */
  flush(): void;
  close(): void;
}

/** @param send false when there is no connection to send on */
export function createAcks(send: (cursors: Record<string, number>) => boolean): Acks {
  const waiting = new Map<string, number>();
  let entries = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let closed = false;

  function flush(): void {
    clearTimeout(timer);
    timer = undefined;
    while (waiting.size > 0) {
      const part = [...waiting].slice(0, MAX_CURSORS);
      if (!send(Object.fromEntries(part))) return;
      for (const [commandId] of part) waiting.delete(commandId);
    }
    entries = 0;
  }

  return {
    note(commandId, seq) {
      if (closed) return;
      waiting.set(commandId, seq);
      entries += 1;
      if (entries >= EVERY_ENTRIES) flush();
      else timer ??= setTimeout(flush, EVERY_MS);
    },
    flush,
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}
