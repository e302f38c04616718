/** Server-sent events out of bytes (WHATWG HTML, section 9.2): any split, any line end. Pure. */

export interface ServerEvent {
  readonly event: string;
  readonly data: string;
  /** The last `id` there was; '' before any. */
  readonly lastEventId: string;
}

export interface SseReader {
  /** The events that these bytes complete. */
  push(bytes: Uint8Array): readonly ServerEvent[];
  /** What the server asked for, where it did. */
  retryMs(): number | undefined;
}

export function createSseReader(lastEventId = ''): SseReader {
  const decoder = new TextDecoder();
  let rest = '';
  let event = '';
  let data: string[] = [];
  let retryMs: number | undefined;

  function takeLine(line: string): ServerEvent | undefined {
    if (line === '') {
      const done = data.length === 0 ? undefined : { event: event || 'message', data: data.join('\n'), lastEventId };
      event = '';
      data = [];
      return done;
    }
    const colon = line.indexOf(':');
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') event = value;
    else if (name === 'data') data.push(value);
    else if (name === 'id' && !value.includes('\0')) lastEventId = value;
    else if (name === 'retry' && /^\d+$/.test(value)) retryMs = Number(value);
    return undefined;
  }

  return {
    push(bytes) {
      rest += decoder.decode(bytes, { stream: true });
      // A carriage return at the very end may be half of a line end.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? '';
      return lines.map(takeLine).filter((done) => done !== undefined);
    },
    retryMs: () => retryMs,
  };
}
