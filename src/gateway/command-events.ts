/** One command as a stream of server-sent events: pages its log like a viewer, and ends after `command.ended`. */
import type { CommandStore } from '../domain/ports.js';
import { parseEntryText } from '../protocol/entries.js';
import type { CommandId } from '../protocol/ids.js';
import type { Pace } from './event-streams.js';
import { beginView, readView } from './log-pages.js';
import { eventText } from './sse.js';

export const EVENT_PAGE_BYTES = 128 * 1024;

export interface EventPorts {
  readonly commands: Pick<CommandStore, 'readLog'>;
  now(): number;
}

export async function* commandEvents(
  ports: EventPorts,
  commandId: CommandId,
  afterSeq: number,
  pace: Pace,
): AsyncGenerator<string> {
  let state = beginView(afterSeq);
  while (await pace.next()) {
    const page = await pace.attempt(() => readView(ports.commands, commandId, state, EVENT_PAGE_BYTES, ports.now()));
    // Gone, and nothing is owed: a client that comes back is told that there is no such command.
    if (page === undefined) return;
    if (page === 'failed') {
      yield '';
      continue;
    }
    yield page.texts.map((text) => eventText(text, String(seqOf(text)))).join('');
    if (page.done) return;
    state = page.state;
  }
}

export const seqOf = (text: string): number => parseEntryText(text).params.seq;
