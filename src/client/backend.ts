/**
 * Homing over HTTP, for programs without a session: backends that start commands for their users' tabs and follow
 * conversations. Works wherever there is `fetch`.
 *
 * Every call repeats what may be repeated, with full jitter: submits carry an idempotency key, and event streams go on
 * after the last event that was received.
 */
import { type Backoff, fullJitterMs } from '../domain/backoff.js';
import { AppError, ERROR_CODES, type ErrorCode, messageOf } from '../errors.js';
import type { Entry, Outcome } from '../protocol/entries.js';
import type { CommandSnapshot, CommandSpecInput } from '../protocol/methods.js';
import { randomText } from './link.js';
import { createSseReader, type ServerEvent } from './sse-reader.js';

/** For whom and from where a command is started. */
export interface Origin {
  readonly conversation?: string;
  /** The tab that gets its output. Another principal's only with the scope `delegate`. */
  readonly originSessionId?: string;
  /** Whose command it is, where no session is named. Another's only with the scope `delegate`. */
  readonly principal?: string;
}

export interface BackendOptions {
  /** Address of a node or of what balances over them. */
  readonly url: string;
  readonly token: string | (() => string | Promise<string>);
  /** How long a call may take with all of its repeats. 60 s unless given. */
  readonly timeoutMs?: number;
  readonly fetch?: typeof globalThis.fetch;
  /** Where a submit that names no origin takes it from; in Node that is `withOrigin` unless given. */
  readonly origin?: () => Origin | undefined;
}

export interface CallOptions {
  /** Gives up with its reason. */
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

/** An entry of one of the commands of a conversation, and where to go on after it. */
export interface ConversationEvent {
  readonly entry: Entry;
  readonly cursor: string;
}

export interface Backend {
  /** Submits a command, once, however often it has to be asked. @throws AppError what the node refuses it with */
  run(
    spec: CommandSpecInput & Origin,
    options?: CallOptions,
  ): Promise<{ readonly commandId: string; readonly state: CommandSnapshot['state'] }>;
  get(commandId: string, options?: CallOptions): Promise<CommandSnapshot>;
  /** Waits for its end, however long that takes unless `timeoutMs` says otherwise. */
  ended(commandId: string, options?: CallOptions): Promise<Outcome>;
  kill(
    commandId: string,
    wish?: { readonly signal?: string; readonly graceMs?: number },
    options?: CallOptions,
  ): Promise<{ readonly state: string }>;
  /** The log as it is now, as text; gaps stand in lines of their own. */
  log(
    commandId: string,
    from?: { readonly tailBytes?: number; readonly fromSeq?: number },
    options?: CallOptions,
  ): Promise<string>;
  /** Newest first, page after page. */
  commands(
    conversation: string,
    filter?: { readonly state?: CommandSnapshot['state']; readonly label?: string; readonly principal?: string },
    options?: CallOptions,
  ): AsyncIterableIterator<CommandSnapshot>;
  /** Every entry after `afterSeq`, until the end of the command. Comes back by itself after a lost connection. */
  follow(
    commandId: string,
    options?: { readonly afterSeq?: number; readonly signal?: AbortSignal },
  ): AsyncIterableIterator<Entry>;
  /**
   * Every entry of every command of a conversation, present and to come; a delegate gets those of everybody. Without a
   * cursor: what has not ended, or did in the last minute, from its first entry. It ends by its signal alone, without an error.
   */
  followConversation(
    conversation: string,
    options?: { readonly cursor?: string; readonly principal?: string; readonly signal?: AbortSignal },
  ): AsyncIterableIterator<ConversationEvent>;
}

const RETRY: Backoff = { baseMs: 200, capMs: 5_000 };
const TIMEOUT_MS = 60_000;
const WAIT_MS = 30_000;
/** A comment comes every 15 s; after three of them missed, nobody is there. */
const SILENCE_MS = 45_000;

export function createBackend(options: BackendOptions): Backend {
  const { token, timeoutMs: defaultTimeoutMs = TIMEOUT_MS, origin = () => undefined } = options;
  const fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  const base = options.url.replace(/\/+$/, '');

  async function ask(method: string, path: string, init: RequestInit): Promise<Response> {
    const bearer = typeof token === 'function' ? await token() : token;
    const headers = { ...(init.headers as Record<string, string>), authorization: `Bearer ${bearer}` };
    const response = await fetch(`${base}${path}`, { ...init, method, headers });
    if (response.ok) return response;
    throw await refusal(response);
  }

  /** Asks until it is answered. Only what may be repeated comes here. */
  async function call<T>(
    method: string,
    path: string,
    init: RequestInit,
    { signal, timeoutMs = defaultTimeoutMs }: CallOptions,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    const limit = AbortSignal.timeout(timeoutMs);
    const either = signal === undefined ? limit : AbortSignal.any([signal, limit]);
    for (let attempt = 0; ; attempt += 1) {
      let failure: unknown;
      try {
        return await read(await ask(method, path, { ...init, signal: either }));
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof AppError && !mayRepeat(error, attempt)) throw error;
        failure = error;
      }
      const atLeastMs = failure instanceof AppError ? failure.retryAfterMs : undefined;
      await sleep(fullJitterMs(attempt, RETRY, Math.random(), atLeastMs), either);
      signal?.throwIfAborted();
      if (limit.aborted) throw failure instanceof AppError ? failure : unanswered(method, path, timeoutMs, failure);
    }
  }

  /** A token that has just expired is worth one more attempt where the next one may be fresh. */
  const mayRepeat = (error: AppError, attempt: number): boolean =>
    error.retryable || (error.code === 'TOKEN_EXPIRED' && typeof token === 'function' && attempt === 0);

  const json = <T>(response: Response): Promise<T> => response.json() as Promise<T>;
  const post = (body: object): RequestInit => ({
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

  /** Events of a path, over as many connections as it takes. */
  async function* events(
    path: string,
    lastEventId: string,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<ServerEvent, undefined> {
    let last = lastEventId;
    for (let attempt = 0; ; attempt += 1) {
      let retryMs: number | undefined;
      const silence = new AbortController();
      const either = signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]);
      let timer = setTimeout(() => silence.abort(), SILENCE_MS);
      try {
        const headers = { accept: 'text/event-stream', ...(last === '' ? {} : { 'last-event-id': last }) };
        const response = await ask('GET', path, { headers, signal: either });
        if (response.status === 204 || response.body === null) return;
        const reader = createSseReader(last);
        for await (const bytes of chunksOf(response.body)) {
          clearTimeout(timer);
          timer = setTimeout(() => silence.abort(), SILENCE_MS);
          for (const event of reader.push(bytes)) {
            last = event.lastEventId;
            attempt = 0;
            yield event;
          }
          retryMs = reader.retryMs();
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof AppError && !mayRepeat(error, attempt)) throw error;
        if (error instanceof AppError) retryMs = error.retryAfterMs;
      } finally {
        clearTimeout(timer);
        silence.abort();
      }
      await sleep(fullJitterMs(attempt, RETRY, Math.random(), attempt === 0 ? 0 : retryMs), signal);
      if (signal?.aborted) return;
    }
  }

  const entryOf = ({ event, data }: ServerEvent): Entry =>
    ({ type: event.slice('command.'.length), ...(JSON.parse(data) as object) }) as Entry;

  const backend: Backend = {
    run(spec, callOptions = {}) {
      const { idempotencyKey = randomText(), ...body } = {
        conversation: 'default',
        ...defined(origin()),
        ...defined(spec),
      };
      const { headers, ...init } = post(body);
      const keyed = { ...(headers as Record<string, string>), 'idempotency-key': idempotencyKey };
      return call<{ commandId: string; state: CommandSnapshot['state'] }>(
        'POST',
        '/v1/commands',
        { ...init, headers: keyed },
        callOptions,
        json,
      );
    },
    get: (commandId, callOptions = {}) =>
      call<CommandSnapshot>('GET', `/v1/commands/${encodeURIComponent(commandId)}`, {}, callOptions, json),
    async ended(commandId, { signal, timeoutMs = Number.POSITIVE_INFINITY } = {}) {
      const untilMs = performance.now() + timeoutMs;
      for (;;) {
        const leftMs = untilMs - performance.now();
        if (leftMs <= 0) throw new AppError('REDIS_UNAVAILABLE', `${commandId} did not end within ${timeoutMs} ms`);
        const waitMs = Math.floor(Math.min(WAIT_MS, leftMs));
        const path = `/v1/commands/${encodeURIComponent(commandId)}?waitMs=${waitMs}`;
        const limits = { timeoutMs: waitMs + defaultTimeoutMs, ...(signal === undefined ? {} : { signal }) };
        const { outcome } = await call<CommandSnapshot>('GET', path, {}, limits, json);
        if (outcome !== undefined) return outcome;
      }
    },
    kill: (commandId, wish = {}, callOptions = {}) =>
      call<{ state: string }>(
        'POST',
        `/v1/commands/${encodeURIComponent(commandId)}/kill`,
        post(wish),
        callOptions,
        json,
      ),
    log: (commandId, from = {}, callOptions = {}) =>
      call('GET', `/v1/commands/${encodeURIComponent(commandId)}/log?${query(from)}`, {}, callOptions, (response) =>
        response.text(),
      ),
    async *commands(conversation, filter = {}, callOptions = {}) {
      let cursor: string | undefined;
      do {
        const path = `/v1/conversations/${encodeURIComponent(conversation)}/commands?${query({ ...filter, cursor })}`;
        const page = await call<{ commands: CommandSnapshot[]; next?: string }>('GET', path, {}, callOptions, json);
        yield* page.commands;
        cursor = page.next;
      } while (cursor !== undefined);
    },
    async *follow(commandId, { afterSeq = 0, signal } = {}) {
      const path = `/v1/commands/${encodeURIComponent(commandId)}/events`;
      for await (const event of events(path, String(afterSeq), signal)) {
        const entry = entryOf(event);
        yield entry;
        if (entry.type === 'ended') return;
      }
    },
    async *followConversation(conversation, { cursor = '', principal, signal } = {}) {
      const path = `/v1/conversations/${encodeURIComponent(conversation)}/events?${query({ principal })}`;
      for await (const event of events(path, cursor, signal))
        yield { entry: entryOf(event), cursor: event.lastEventId };
    },
  };
  return backend;
}

async function refusal(response: Response): Promise<AppError | Error> {
  const text = await response.text().catch(() => '');
  let body: { code?: string; message?: string; field?: string; retryAfterMs?: number } = {};
  try {
    body = JSON.parse(text);
  } catch {
    // Not the node's own words: those of something in between.
  }
  const message = body.message ?? `the server answered ${response.status}`;
  if (body.code === undefined || !(body.code in ERROR_CODES)) {
    return response.status >= 500 ? new Error(message) : new AppError('INVALID_PARAMS', message);
  }
  return new AppError(body.code as ErrorCode, message, {
    ...(body.field === undefined ? {} : { field: body.field }),
    ...(body.retryAfterMs === undefined ? {} : { retryAfterMs: body.retryAfterMs }),
  });
}

const unanswered = (method: string, path: string, timeoutMs: number, cause: unknown): AppError =>
  new AppError('REDIS_UNAVAILABLE', `${method} ${path} was not answered within ${timeoutMs} ms: ${messageOf(cause)}`, {
    cause,
  });

/** Not every runtime iterates over a stream by itself. */
async function* chunksOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined); // Over already, or broken: nothing is left to release.
  }
}

function sleep(delayMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, delayMs);
    signal?.addEventListener('abort', done);
    if (signal?.aborted) done();
  });
}

const defined = <T extends object>(value: T | undefined): T =>
  Object.fromEntries(Object.entries(value ?? {}).filter(([, member]) => member !== undefined)) as T;

const query = (values: Readonly<Record<string, string | number | undefined>>): string =>
  new URLSearchParams(Object.entries(defined(values)).map(([name, value]) => [name, String(value)])).toString();
