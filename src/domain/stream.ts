/**
 * Where one owned command stands on one connection, and what follows from each thing that happens to it (DE1–DE4).
 *
 *   held     made before the answer that causes it has left: heads are noted, nothing is sent
 *   live     everything up to `sentSeq` was sent; the next message that follows on is forwarded
 *   pulling  something is missing or there was no room: pages of the log are sent until the head is reached
 *   done     `ended` was sent
 *
 * Live messages are hints of speed; the log is the truth. A message that does not follow on only raises `knownHead`.
 */
import { type GapReason, type Outcome, parseEntryText, type StoredEntry, serializeEntry } from '../protocol/entries.js';
import type { CommandId } from '../protocol/ids.js';

export interface StreamState {
  readonly mode: 'held' | 'live' | 'pulling' | 'done';
  /** Every entry up to here was sent, or was there before. */
  readonly sentSeq: number;
  /** Masked output bytes up to and including `sentSeq`, where known. */
  readonly sentOffset?: number;
  /** Of its command, where known. */
  readonly createdAt?: number | undefined;
  /** Highest seq heard of since the page being read was asked for. */
  readonly knownHead: number;
}

/** A stream that sends nothing until `release`. @param afterSeq the entry after which it begins */
export const holdStream = (afterSeq: number, knownHead: number): StreamState => ({
  mode: 'held',
  sentSeq: afterSeq,
  knownHead,
  ...(afterSeq === 0 ? { sentOffset: 0 } : {}),
});

/** A stream whose command is over and that the client only has listed (S5): nothing is pushed. */
export const listedStream = (headSeq: number): StreamState => ({ mode: 'done', sentSeq: headSeq, knownHead: headSeq });

/** The answer that causes the entries has left: go on from the log if anything was heard of meanwhile. */
export const releaseStream = (state: StreamState): StreamState =>
  state.mode === 'held' ? { ...state, mode: state.knownHead > state.sentSeq ? 'pulling' : 'live' } : state;

/** Messages may have been lost: read the log before trusting the channel again. */
export const interruptStream = (state: StreamState): StreamState => {
  if (state.mode === 'held') return { ...state, knownHead: Math.max(state.knownHead, state.sentSeq + 1) };
  return state.mode === 'live' ? { ...state, mode: 'pulling' } : state;
};

export interface StreamStep {
  /** `forward` the message as it is; `drop` it as already sent; `note` that there is more; `pull` from the log. */
  readonly type: 'forward' | 'drop' | 'note' | 'pull';
  readonly state: StreamState;
}

/** What a live message does. `room` is false while the socket is slow or the bus is not to be trusted. */
export function decideEntries(
  state: StreamState,
  message: { readonly fromSeq: number; readonly toSeq: number; readonly endOffset: number; readonly ends: boolean },
  room: boolean,
): StreamStep {
  if (message.toSeq <= state.sentSeq) return { type: 'drop', state };
  const noted = { ...state, knownHead: Math.max(state.knownHead, message.toSeq) };
  if (state.mode === 'held' || state.mode === 'pulling') return { type: 'note', state: noted };
  if (!room || message.fromSeq !== state.sentSeq + 1) return { type: 'pull', state: { ...noted, mode: 'pulling' } };
  return {
    type: 'forward',
    state: {
      mode: message.ends ? 'done' : 'live',
      sentSeq: message.toSeq,
      createdAt: state.createdAt,
      sentOffset: message.endOffset,
      knownHead: message.toSeq,
    },
  };
}

/** The sweep found the log at `headSeq`; lost messages show here (DE7). */
export function compareHead(state: StreamState, headSeq: number, ended: boolean): StreamState {
  if (state.mode !== 'live') return state;
  if (headSeq > state.sentSeq) return { ...state, mode: 'pulling', knownHead: headSeq };
  return ended && headSeq === state.sentSeq ? { ...state, mode: 'done' } : state;
}

/**
 * To be called when a page is asked for. What was heard of before is in that page, unless Redis went back to older
 * data, and then waiting for it would never end.
 */
export const beginPull = (state: StreamState): StreamState => ({ ...state, knownHead: state.sentSeq });

export interface Page {
  readonly entries: readonly StoredEntry[];
  readonly headSeq: number;
  readonly ended: boolean;
  readonly cursorOffset?: number;
}

/** What was told to be missing, and why. */
export interface MadeGap {
  readonly fromSeq: number;
  readonly toSeq: number;
  readonly reason: GapReason;
}

export type PagePlan =
  /** Send these texts in order. The state is `pulling` when another page is needed. */
  | {
      readonly type: 'send';
      readonly texts: readonly string[];
      readonly state: StreamState;
      /** Those of the texts that are gaps made at this reading. */
      readonly gaps: readonly MadeGap[];
    }
  /** The log ends before what was sent: Redis went back. Wait for the writer's repair (L2), then `tellLost`. */
  | { readonly type: 'behind'; readonly headSeq: number; readonly ended: boolean };

function gapText(
  commandId: CommandId,
  gap: { fromSeq: number; toSeq: number; bytes?: number | undefined; reason: GapReason },
  nowMs: number,
): string {
  const { fromSeq, toSeq, bytes, reason } = gap;
  const known = bytes === undefined ? {} : { bytes };
  return serializeEntry({ type: 'gap', commandId, seq: toSeq, ts: nowMs, fromSeq, toSeq, ...known, reason });
}

/** Masked output bytes before this entry. */
function startOffset(entry: StoredEntry): number | undefined {
  if (entry.letter !== 'o' && entry.letter !== 'g') return entry.endOffset;
  let params: Readonly<Record<string, unknown>>;
  try {
    params = parseEntryText(entry.text).params;
  } catch {
    // Damaged in its middle: where it begins is not known, and its reader finds out.
    return undefined;
  }
  if (entry.letter === 'o') return typeof params.at === 'number' ? params.at : undefined;
  return typeof params.bytes === 'number' ? entry.endOffset - params.bytes : undefined;
}

const difference = (from: number | undefined, to: number | undefined): number | undefined =>
  from === undefined || to === undefined ? undefined : Math.max(0, to - from);

/** What to send for a page read after `sentSeq`. Holes become gaps, so silence never hides a loss (DE3). */
export function planPage(commandId: CommandId, state: StreamState, page: Page, nowMs: number): PagePlan {
  if (page.headSeq < state.sentSeq) return { type: 'behind', headSeq: page.headSeq, ended: page.ended };
  const texts: string[] = [];
  const gaps: MadeGap[] = [];
  const tellGap = (toSeq: number, reason: GapReason, bytes?: number) => {
    const gap = { fromSeq: sentSeq + 1, toSeq, reason };
    texts.push(gapText(commandId, { ...gap, bytes }, nowMs));
    gaps.push(gap);
  };
  let sentSeq = state.sentSeq;
  let sentOffset = state.sentOffset ?? page.cursorOffset;
  let ends = page.ended && page.headSeq === sentSeq;
  for (const entry of page.entries) {
    if (entry.seq <= sentSeq) continue;
    // A gap of the log that reaches back over the cursor is sent as it is: the client counts by its toSeq.
    if (entry.fromSeq > sentSeq + 1) {
      tellGap(entry.fromSeq - 1, 'trimmed', difference(sentOffset, startOffset(entry)));
    }
    texts.push(entry.text);
    sentSeq = entry.seq;
    sentOffset = entry.endOffset;
    ends = entry.letter === 'e';
  }
  if (page.entries.length === 0 && page.headSeq > sentSeq) {
    tellGap(page.headSeq, page.ended ? 'expired' : 'trimmed');
    sentSeq = page.headSeq;
    sentOffset = undefined;
    ends = page.ended;
  }
  const caughtUp = sentSeq >= page.headSeq && sentSeq >= state.knownHead;
  const mode = !caughtUp ? 'pulling' : ends ? 'done' : 'live';
  return {
    type: 'send',
    texts,
    gaps,
    state: {
      mode,
      sentSeq,
      createdAt: state.createdAt,
      ...(sentOffset === undefined ? {} : { sentOffset }),
      knownHead: Math.max(state.knownHead, sentSeq),
    },
  };
}

/**
 * The writer did not repair the log in time: say so, and go on from where the log is (L2). The last entry of a log that
 * is over is read again, since it is an `ended` that was not sent yet (L3).
 */
export function tellLost(
  commandId: CommandId,
  state: StreamState,
  log: { readonly headSeq: number; readonly ended: boolean },
  nowMs: number,
): { readonly text: string; readonly state: StreamState } {
  const gap = { fromSeq: log.headSeq + 1, toSeq: state.sentSeq, reason: 'redis_lost' as const };
  const sentSeq = log.ended ? Math.max(0, log.headSeq - 1) : log.headSeq;
  return {
    text: gapText(commandId, gap, nowMs),
    state: { mode: 'pulling', sentSeq, createdAt: state.createdAt, knownHead: log.headSeq },
  };
}

/**
 * Nothing of the command is left, and nobody gives it back: what was still expected is told as a gap, and that it is over
 * as `ended`, since silence would leave its tab waiting for ever (DE2, DE3).
 */
export function tellGone(
  commandId: CommandId,
  state: StreamState,
  reason: Extract<GapReason, 'expired' | 'redis_lost'>,
  nowMs: number,
): readonly string[] {
  const fromSeq = state.sentSeq + 1;
  const toSeq = state.knownHead;
  const gap = toSeq < fromSeq ? [] : [gapText(commandId, { fromSeq, toSeq, reason }, nowMs)];
  const error =
    reason === 'expired'
      ? 'Its log was removed when its retention was over, before all of it was sent here.'
      : 'Redis lost this command, and no worker has it; how it ended is not known.';
  const outcome: Outcome = {
    reason: 'lost',
    code: null,
    signal: null,
    durationMs: 0,
    outputBytes: state.sentOffset ?? 0,
    tail: '',
    leftovers: 0,
    error,
  };
  const seq = Math.max(state.sentSeq, state.knownHead) + 1;
  return [...gap, serializeEntry({ type: 'ended', commandId, seq, ts: nowMs, outcome })];
}

/** Everything of the command is gone from Redis: what was still expected is told as expired (L4). */
export function tellExpired(commandId: CommandId, state: StreamState, nowMs: number): string | undefined {
  if (state.knownHead <= state.sentSeq) return undefined;
  return gapText(commandId, { fromSeq: state.sentSeq + 1, toSeq: state.knownHead, reason: 'expired' }, nowMs);
}
