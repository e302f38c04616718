/** What a page tells its reader: ends, watch matches and commands that came from elsewhere. Pure. */
import type { Entry, Outcome, OwnerWhy } from '../../client/index.js';
import type { Command } from './conversation.js';
import { commandTitle, moveSentence, outcomeTone, outcomeWords } from './words.js';

export interface Notice {
  readonly id: number;
  readonly kind: 'ended' | 'watch' | 'moved';
  readonly commandId: string;
  readonly atMs: number;
  readonly tone: 'good' | 'bad' | 'plain';
  readonly title: string;
  readonly text: string;
  readonly seen: boolean;
}

export type NoticeDraft = Omit<Notice, 'id' | 'seen'>;

/** The newest are kept. */
const MAX_NOTICES = 50;

/** Newest first. */
export function addNotice(notices: readonly Notice[], draft: NoticeDraft): readonly Notice[] {
  const id = 1 + Math.max(0, ...notices.map((notice) => notice.id));
  return [{ ...draft, id, seen: false }, ...notices].slice(0, MAX_NOTICES);
}

export const unseenOf = (notices: readonly Notice[]): number => notices.filter(({ seen }) => !seen).length;

export const noticeOfEnd = (command: Command, outcome: Outcome, atMs: number): NoticeDraft => ({
  kind: 'ended',
  commandId: command.commandId,
  atMs,
  tone: outcomeTone(outcome),
  title: commandTitle(command.snapshot),
  text: outcomeWords(outcome),
});

export const noticeOfWatch = (
  command: Command,
  { pattern, text, disabled, why, suppressed }: Extract<Entry, { type: 'watch' }>,
  atMs: number,
): NoticeDraft => ({
  kind: 'watch',
  commandId: command.commandId,
  atMs,
  tone: disabled ? 'bad' : 'plain',
  title: commandTitle(command.snapshot),
  text: disabled
    ? `the watch for “${pattern ?? ''}” was switched off: ${why ?? 'no reason given'}`
    : `“${(text ?? pattern ?? '').trim()}”${suppressed ? ` and ${suppressed} more` : ''}`,
});

export const noticeOfMove = (command: Command, why: OwnerWhy, atMs: number): NoticeDraft => ({
  kind: 'moved',
  commandId: command.commandId,
  atMs,
  tone: 'plain',
  title: commandTitle(command.snapshot),
  text: `came to this tab: ${moveSentence(why)}`,
});
