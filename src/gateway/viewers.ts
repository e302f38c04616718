/** What one connection looks at without owning it: pages of logs at most every 250 ms, marked `view: true`. */
import type { CommandStore, Log } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import { markAsView } from '../protocol/entries.js';
import type { CommandId } from '../protocol/ids.js';
import type { Delivery } from './attached-session.js';
import { beginView, readView } from './log-pages.js';

const POLL_MS = 250;
const MAX_VIEWS = 32;
const PAGE_BYTES = 256 * 1024;

export interface Viewers {
  /** Begins after `afterSeq`; a second time for the same command begins anew. @throws AppError LIMIT_EXCEEDED */
  attach(commandId: CommandId, afterSeq: number): void;
  detach(commandId: CommandId): void;
  close(): void;
}

export interface ViewersOptions {
  readonly commands: Pick<CommandStore, 'readLog'>;
  readonly log: Log;
  readonly delivery: Pick<Delivery, 'entries' | 'room'>;
  readonly connectionId: string;
  now(): number;
  random(): number;
}

export function createViewers(options: ViewersOptions): Viewers {
  const { commands, log, delivery, connectionId, now, random } = options;
  const views = new Map<CommandId, { stop(): void }>();

  function attach(commandId: CommandId, afterSeq: number): void {
    detach(commandId);
    if (views.size >= MAX_VIEWS) {
      throw new AppError('LIMIT_EXCEEDED', `a connection may view at most ${MAX_VIEWS} commands`);
    }
    let state = beginView(afterSeq);
    let stopped = false;
    let timer: NodeJS.Timeout | undefined;
    const view = {
      stop() {
        stopped = true;
        clearTimeout(timer);
      },
    };
    const step = async (): Promise<void> => {
      let waitMs = POLL_MS * (1 + random() / 4);
      try {
        // A slow socket is asked again later: a view never adds to what already waits.
        const page = delivery.room() ? await readView(commands, commandId, state, PAGE_BYTES, now()) : null;
        if (stopped) return;
        if (page === undefined) {
          views.delete(commandId);
          return;
        }
        if (page !== null) {
          if (page.texts.length > 0) {
            delivery.entries(page.texts.map(markAsView), { type: 'view', connectionId });
          }
          state = page.state;
          if (page.done) {
            views.delete(commandId);
            return;
          }
        }
      } catch (error) {
        log.debug({ commandId, fault: messageOf(error) }, 'could not read a page for a viewer');
        waitMs *= 4;
      }
      if (!stopped) timer = setTimeout(() => void step(), waitMs);
    };
    views.set(commandId, view);
    // After the answer to the request has left.
    timer = setTimeout(() => void step(), 0);
  }

  function detach(commandId: CommandId): void {
    views.get(commandId)?.stop();
    views.delete(commandId);
  }

  return {
    attach,
    detach,
    close() {
      for (const view of views.values()) view.stop();
      views.clear();
    },
  };
}
