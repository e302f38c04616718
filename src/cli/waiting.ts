/** What the person in front is told while nothing comes: the connection is lost or back, the command is still queued. */
import type { Session } from '../client/index.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import { say } from './output.js';

/** A line when the connection is lost, and one when it is back. @returns stops telling */
export function tellConnection(session: Session, url: string): () => void {
  let lostMs: number | undefined;
  return session.on('status', (state) => {
    if (state.state === 'away' && lostMs === undefined) {
      lostMs = performance.now();
      say(`The connection to ${url} is lost (${state.why}); the command goes on, trying again.`);
    } else if ((state.state === 'live' || state.state === 'catching-up') && lostMs !== undefined) {
      say(`Connected again after ${((performance.now() - lostMs) / 1_000).toFixed(1)} s; nothing was missed.`);
      lostMs = undefined;
    }
  });
}

/** Most commands start at once: no line flickers for them. */
const SHOW_AFTER_MS = 500;
const ASK_EVERY_MS = 1_000;

/**
 * On a terminal, a line on stderr that says that the command is queued, and at which position where that is known. It goes
 * when the command starts. @param ask asked once a second while it is queued
 * @returns `over`: takes it away for good; idempotent
 */
export function tellQueue(ask: () => Promise<Partial<CommandSnapshot>>): { over(): void } {
  const { stderr } = process;
  if (!stderr.isTTY) return { over: () => undefined };
  let over = false;
  let shown = '';
  let timer: NodeJS.Timeout | undefined;

  function show(text: string): void {
    // Said once, since somebody may keep what is written here.
    if (text === shown) return;
    // Back to the beginning, without what stood there.
    stderr.write(`\r\u001b[K${text}`);
    shown = text;
  }

  async function look(): Promise<void> {
    try {
      const known = await ask();
      if (over) return;
      if (known.state !== 'queued') {
        stop();
        return;
      }
      show(queuedText(known));
    } catch {
      // No connection, which is told elsewhere: what was known stays.
    }
    if (!over) timer = setTimeout(() => void look(), ASK_EVERY_MS);
  }

  function stop(): void {
    over = true;
    clearTimeout(timer);
    show('');
  }

  timer = setTimeout(() => void look(), SHOW_AFTER_MS);
  return { over: () => over || stop() };
}

const HELD_WORDS: Readonly<Record<NonNullable<CommandSnapshot['held']>, string>> = {
  delayed: 'waiting for its time',
  session: 'held back by the limit of its session',
  tenant: 'held back by the limit of its tenant',
};

/** `homing: queued, position 2 …`, where 1 is next */
export function queuedText({ position, held }: Pick<Partial<CommandSnapshot>, 'position' | 'held'>): string {
  const words = ['queued', ...(held === undefined ? [] : [HELD_WORDS[held]])];
  return `homing: ${[...words, ...(position === undefined ? [] : [`position ${position}`])].join(', ')} …`;
}
