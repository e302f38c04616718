/** Server-sent events read by hand from the specification, so that the product's own reader is not its own judge. */
import { until } from './wait.js';

export interface SentEvent {
  readonly event: string;
  readonly id: string;
  // biome-ignore lint/suspicious/noExplicitAny: events are looked at, not trusted
  readonly data: any;
}

export interface EventReader {
  readonly status: number;
  readonly headers: Headers;
  readonly events: readonly SentEvent[];
  /** Comment lines. */
  readonly comments: readonly string[];
  retryMs(): number | undefined;
  isOver(): boolean;
  /** The first event that fits, there or still to come. */
  waitFor(what: string, fits: (event: SentEvent) => boolean, limitMs?: number): Promise<SentEvent>;
  stop(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

export async function openEvents(
  url: string,
  options: { readonly token: string; readonly lastEventId?: string },
): Promise<EventReader> {
  const stop = new AbortController();
  const response = await fetch(url, {
    headers: {
      accept: 'text/event-stream',
      authorization: `Bearer ${options.token}`,
      ...(options.lastEventId === undefined ? {} : { 'last-event-id': options.lastEventId }),
    },
    signal: stop.signal,
  });
  const events: SentEvent[] = [];
  const comments: string[] = [];
  let retryMs: number | undefined;
  let over = false;

  function take(block: string): void {
    let event = 'message';
    let id = '';
    const data: string[] = [];
    for (const line of block.split('\n')) {
      const [, name = '', value = ''] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
      if (name === '') comments.push(value);
      else if (name === 'event') event = value;
      else if (name === 'id') id = value;
      else if (name === 'data') data.push(value);
      else if (name === 'retry') retryMs = Number(value);
    }
    if (data.length > 0) events.push({ event, id, data: JSON.parse(data.join('\n')) });
  }

  async function read(): Promise<void> {
    let rest = '';
    const decoder = new TextDecoder();
    for await (const bytes of response.body ?? []) {
      rest += decoder.decode(bytes as Uint8Array, { stream: true });
      const blocks = rest.split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) take(block);
    }
  }
  const reading = read()
    .catch(() => undefined)
    .finally(() => {
      over = true;
    });

  const reader: EventReader = {
    status: response.status,
    headers: response.headers,
    events,
    comments,
    retryMs: () => retryMs,
    isOver: () => over,
    waitFor: (what, fits, limitMs) =>
      until(
        what,
        () => {
          const found = events.find(fits);
          if (found === undefined && over) throw new Error('the stream is over');
          return found;
        },
        limitMs,
      ),
    stop: () => stop.abort(),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await reading;
    },
  };
  return reader;
}
