/**
 * The commands of a conversation, present and to come, as one stream of server-sent events. At most every 250 ms it asks
 * which commands are new and where the logs end, and pages those that grew. Each event carries the whole state as its id,
 * so any node can go on after it, and nobody keeps anything for a client that is away.
 */
import type { CommandFeed, FeedScope } from '../domain/command-feed.js';
import { type ConversationCursor, formatCursor } from '../domain/conversation-cursor.js';
import { serializeEntry } from '../protocol/entries.js';
import type { CommandId } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import { EVENT_PAGE_BYTES, type EventPorts, seqOf } from './command-events.js';
import type { Pace } from './event-streams.js';
import { beginView, readView } from './log-pages.js';
import { eventText } from './sse.js';

/** Commands of the conversation's index looked at in one round trip. */
const LOOK = 200;
/** A stream that begins now also tells what ended so recently (as S5 for sessions): its reader may have caused it. */
const RECENT_MS = 60_000;

export async function* conversationEvents(
  ports: EventPorts & { readonly feed: CommandFeed },
  scope: FeedScope,
  given: ConversationCursor | undefined,
  pace: Pace,
): AsyncGenerator<string> {
  const { feed } = ports;
  const told = new Map<CommandId, number>(given?.told);
  let mark = given?.mark ?? 0;
  let sinceMs = given?.sinceMs;

  /** New commands, as far as there is room to follow them; the others wait in the index for their turn. */
  async function discover(): Promise<void> {
    sinceMs ??= (await feed.nowMs()) - RECENT_MS;
    for (let more = true; more && told.size < LIMITS.maxFollowedCommands; ) {
      const page = await feed.after(scope, mark, Math.min(LOOK, LIMITS.maxFollowedCommands - told.size));
      for (const { commandId, endedAt } of page.items) {
        if (endedAt === undefined || endedAt >= sinceMs) told.set(commandId, 0);
      }
      mark = page.nextMark;
      more = page.more;
    }
  }

  async function* tell(commandId: CommandId, afterSeq: number): AsyncGenerator<string> {
    const page = await readView(ports.commands, commandId, beginView(afterSeq), EVENT_PAGE_BYTES, ports.now());
    if (page === undefined) return yield* tellGone(commandId, afterSeq);
    let text = '';
    for (const entry of page.texts) {
      const seq = seqOf(entry);
      told.set(commandId, seq);
      if (page.done && entry === page.texts.at(-1)) told.delete(commandId);
      text += eventText(entry, cursor());
    }
    if (page.done) told.delete(commandId);
    yield text;
  }

  /** Its retention ended before it was told to its end: at least its `ended` is missing. */
  function* tellGone(commandId: CommandId, afterSeq: number): Generator<string> {
    told.delete(commandId);
    const seq = afterSeq + 1;
    const gap = { commandId, seq, ts: ports.now(), fromSeq: seq, toSeq: seq, reason: 'expired' } as const;
    yield eventText(serializeEntry({ type: 'gap', ...gap }), cursor());
  }

  const cursor = () => formatCursor({ mark, sinceMs: sinceMs ?? 0, told });

  while (await pace.next()) {
    const news = await pace.attempt(async () => {
      await discover();
      const ids = [...told.keys()];
      const heads = await feed.heads(ids);
      return ids.filter((id, index) => {
        const head = heads[index];
        return head === undefined || head.ended || head.headSeq > (told.get(id) ?? 0);
      });
    });
    for (const commandId of news === 'failed' ? [] : news) {
      const pages = tell(commandId, told.get(commandId) ?? 0);
      for (;;) {
        const page = await pace.attempt(() => pages.next());
        if (page === 'failed' || page.done === true) break;
        yield page.value;
      }
    }
    yield '';
  }
}
