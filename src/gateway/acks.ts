/** Acknowledgements of one connection, coalesced into one write each 200 ms; a failed write is repeated (DE6). */
import type { CommandStore } from '../domain/ports.js';
import type { AttachmentId, CommandId, SessionId } from '../protocol/ids.js';

const FLUSH_MS = 200;
const RETRY_MS = 1_000;

export interface Acks {
  /** Raises the acknowledged seq of a command; lower ones are forgotten. */
  add(commandId: CommandId, seq: number): void;
  /** Writes what waits now, if that works at once; else it goes on waiting. */
  settle(): Promise<void>;
  /** Writes what is left, without a repeat. */
  close(): Promise<void>;
}

export function createAcks(options: {
  readonly commands: Pick<CommandStore, 'ack'>;
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  onStored(cursors: ReadonlyMap<CommandId, number>): void;
}): Acks {
  const { commands, sessionId, attachmentId, onStored } = options;
  let pending = new Map<CommandId, number>();
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  const later = (delayMs: number) => {
    if (closed || timer !== undefined) return;
    timer = setTimeout(() => void flush(), delayMs);
    timer.unref();
  };

  function add(commandId: CommandId, seq: number): void {
    if (seq > (pending.get(commandId) ?? 0)) pending.set(commandId, seq);
    later(FLUSH_MS);
  }

  async function flush(): Promise<void> {
    const cursors = pending;
    pending = new Map();
    try {
      await commands.ack(sessionId, attachmentId, cursors);
      timer = undefined;
      onStored(cursors);
      if (pending.size > 0) later(FLUSH_MS);
    } catch {
      // Acks only rise and may be repeated: put them back under what came meanwhile.
      for (const [commandId, seq] of cursors) {
        if (seq > (pending.get(commandId) ?? 0)) pending.set(commandId, seq);
      }
      timer = undefined;
      later(RETRY_MS);
    }
  }

  return {
    add,
    async settle() {
      clearTimeout(timer);
      timer = undefined;
      if (pending.size > 0) await flush();
    },
    async close() {
      if (closed) return;
      closed = true;
      clearTimeout(timer);
      // Best effort: an ack that is lost here only means that entries are sent again.
      if (pending.size > 0) await commands.ack(sessionId, attachmentId, pending).catch(() => undefined);
    },
  };
}
