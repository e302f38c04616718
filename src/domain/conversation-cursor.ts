/**
 * Where a stream of events over a conversation stands: which commands it has heard of, and how far it told each of those
 * that are not told to their end. The whole state fits in the `id` of an event, so any node can go on from it.
 */
import { type CommandId, parseCommandId, type Tag } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';

export interface ConversationCursor {
  /** Commands up to this mark were heard of: they are in `told`, or told to their end, or not wanted. */
  readonly mark: number;
  /** Commands that had ended before are not wanted: history is read on request. */
  readonly sinceMs: number;
  /** The last seq told of each command that is followed. */
  readonly told: ReadonlyMap<CommandId, number>;
}

const VERSION = '1';

/** `1.<mark>.<sinceMs>.<random part of id>-<seq>,…`, numbers in base 36. The tag is the conversation's, so it is left out. */
export function formatCursor({ mark, sinceMs, told }: ConversationCursor): string {
  const parts = [...told].map(([id, seq]) => `${id.slice(21)}-${seq.toString(36)}`);
  return [VERSION, mark.toString(36), sinceMs.toString(36), parts.join(',')].join('.');
}

const NUMBER = /^[0-9a-z]{1,11}$/;

function parseNumber(text: string | undefined): number | undefined {
  if (text === undefined || !NUMBER.test(text)) return undefined;
  const value = Number.parseInt(text, 36);
  return Number.isSafeInteger(value) ? value : undefined;
}

/** @returns undefined for what is not a cursor of this conversation and version */
export function parseCursor(tag: Tag, text: string): ConversationCursor | undefined {
  const [version, rawMark, rawSince, list, ...more] = text.split('.');
  const mark = parseNumber(rawMark);
  const sinceMs = parseNumber(rawSince);
  if (version !== VERSION || mark === undefined || sinceMs === undefined) return undefined;
  if (list === undefined || more.length > 0) return undefined;
  const told = new Map<CommandId, number>();
  for (const part of list === '' ? [] : list.split(',')) {
    const [random, rawSeq] = part.split('-');
    const id = parseCommandId(`cmd_${tag}_${random}`);
    const seq = parseNumber(rawSeq);
    if (id === undefined || seq === undefined) return undefined;
    told.set(id, seq);
  }
  return told.size > LIMITS.maxFollowedCommands ? undefined : { mark, sinceMs, told };
}
