/** A command's log for those who are not its owner, page by page, with gaps where entries are no longer there (DE3). */
import type { CommandStore } from '../domain/ports.js';
import { beginPull, holdStream, planPage, type StreamState, tellExpired } from '../domain/stream.js';
import { type Entry, parseEntryText } from '../protocol/entries.js';
import type { CommandId } from '../protocol/ids.js';

export interface ViewPage {
  readonly texts: readonly string[];
  readonly headSeq: number;
  /** Where the next page begins. */
  readonly state: StreamState;
  /** `ended` is in this page or before it. */
  readonly done: boolean;
}

/** A view that begins after `afterSeq`. */
export const beginView = (afterSeq: number): StreamState => ({ ...holdStream(afterSeq, 0), mode: 'pulling' });

/** @returns the next page; without texts when nothing is new. Undefined when the command is gone and nothing is owed. */
export async function readView(
  commands: Pick<CommandStore, 'readLog'>,
  commandId: CommandId,
  state: StreamState,
  limitBytes: number,
  nowMs: number,
): Promise<ViewPage | undefined> {
  const page = await commands.readLog(commandId, { type: 'viewer' }, state.sentSeq, limitBytes);
  if (page.type !== 'page') {
    const expired = tellExpired(commandId, state, nowMs);
    if (expired === undefined) return undefined;
    return { texts: [expired], headSeq: state.knownHead, state: { ...state, sentSeq: state.knownHead }, done: true };
  }
  const plan = planPage(commandId, beginPull(state), page, nowMs);
  // Behind the cursor: Redis went back, or the cursor was never true. A viewer waits for entries after it.
  if (plan.type === 'behind') return { texts: [], headSeq: page.headSeq, state, done: page.ended };
  const { mode } = plan.state;
  return { texts: plan.texts, headSeq: page.headSeq, state: { ...plan.state, mode: 'pulling' }, done: mode === 'done' };
}

/** The entry as an object, as `command.log` and the jsonl format show it. */
export function entryOf(text: string): Entry {
  const { method, params } = parseEntryText(text);
  return { type: method.slice('command.'.length), ...params } as unknown as Entry;
}

const utf8 = new TextEncoder();

/** The output bytes of an entry; undefined for every other kind. */
export function outputBytesOf(text: string): Uint8Array | undefined {
  const { method, params } = parseEntryText(text);
  if (method !== 'command.output') return undefined;
  return typeof params.base64 === 'string'
    ? Buffer.from(params.base64, 'base64')
    : utf8.encode(String(params.data ?? ''));
}
