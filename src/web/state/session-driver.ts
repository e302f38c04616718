/**
 * One conversation in this page: keeps its session through the client, consumes every entry of its commands once, and feeds
 * the reducer. Terminals read the log on their own (`openLog`); a slow or paused one holds up nothing here.
 */
import {
  AppError,
  type CommandHandle,
  type CommandSnapshot,
  type CommandSpecInput,
  connect,
  type Entry,
  type Session,
  type SessionState,
} from '../../client/index.js';
import { createLogReader, type LogPage, type LogReader } from '../../client/log-reader.js';
import { isAttached } from './connection.js';
import {
  type ConversationEvent,
  type ConversationState,
  commandOf,
  emptyConversation,
  isMine,
  type RestoredConversation,
  reduceConversation,
  type SessionFacts,
} from './conversation.js';
import { createEarlyEntries } from './early-entries.js';
import { createStore, type Store } from './store.js';

export interface DriverOptions {
  readonly name: string;
  /** Of the node, or of what balances over the nodes. */
  readonly url: string;
  readonly token: () => string;
  readonly storage: Storage;
  readonly restored: RestoredConversation;
  readonly defer: (run: () => void) => void;
}

/** A log as a terminal reads it: every entry from the first, then live. */
export interface OpenLog extends AsyncIterableIterator<Entry> {
  /** Last seq of the log, as far as a page of it has told; 0 before the first. */
  headSeq(): number;
  close(): void;
}

export interface Conversation {
  readonly name: string;
  readonly store: Store<ConversationState, ConversationEvent>;
  /** @throws AppError what the server refuses it with */
  run(spec: CommandSpecInput): Promise<string>;
  kill(commandId: string, signal: string, graceMs: number): Promise<void>;
  /** @throws AppError */
  write(commandId: string, data: string, eof?: boolean): Promise<void>;
  resize(commandId: string, cols: number, rows: number): void;
  /** @throws AppError */
  adopt(commandId: string): Promise<void>;
  select(commandId: string | undefined): void;
  openLog(commandId: string): OpenLog;
  /** @throws AppError */
  downloadLog(commandId: string): Promise<Blob>;
  loadOlder(): Promise<void>;
  retryNow(): void;
  /** The user is here: decides who takes over commands (OW2). */
  touch(): void;
  /** Opens or resumes the session. */
  start(): void;
  /** After it was closed or taken over: opens another one, and leaves the former to whoever has it. */
  startAnew(): void;
  /** Closes the session for good; what it owns moves on. */
  closeSession(): Promise<void>;
  /** Keeps the session for the next page of this tab. */
  leave(): void;
}

const PAGE_SIZE = 100;
/** A list changes by what other tabs do; this tab's own commands are told at once. */
const LIST_EVERY_MS = 3_000;
const PROGRESS_EVERY_MS = 150;
const CONNECT_LIMIT_MS = 20_000;
/** A terminal keeps this much unread before it goes back to the log; there are a few of them. */
const TERMINAL_BUFFER_BYTES = 4 * 1024 * 1024;

export function createConversation(options: DriverOptions): Conversation {
  const { name, url, token } = options;
  const storage = scoped(options.storage, `homing-web:session:${name}`);
  const store = createStore(emptyConversation(name, options.restored), reduceConversation, options.defer);
  const { dispatch } = store;
  const logs = new Map<string, Set<LogReader>>();
  const early = createEarlyEntries(TERMINAL_BUFFER_BYTES);
  const followed = new Set<CommandHandle>();
  const progress = new Map<string, { seq: number; bytes: number }>();
  let session: Session | undefined;
  let run = 0;
  let viewedId: string | undefined;
  let progressTimer: ReturnType<typeof setTimeout> | undefined;
  let listTimer: ReturnType<typeof setTimeout> | undefined;
  let listing = false;

  // ----------------------------------------------------------------------------------------------------- the session

  /** Tries until a session is there, or an answer says that trying is of no use. */
  async function start(): Promise<void> {
    run += 1;
    const mine = run;
    session?.leave();
    session = undefined;
    dispatch({ type: 'status', status: { state: 'connecting', attempt: 0 }, sessionId: '', nowMs: Date.now() });
    const current = () => mine === run;
    while (current()) {
      try {
        const opened = await connect({
          url,
          token,
          conversation: name,
          storage,
          client: 'homing web',
          connectTimeoutMs: CONNECT_LIMIT_MS,
          listen: {
            status: (status) => current() && onStatus(status),
            command: (handle) => current() && follow(handle),
            owner: ({ command, why }) =>
              dispatch({ type: 'moved', commandId: command.commandId, why, nowMs: Date.now() }),
            replaced: ({ why, formerSessionId }) => {
              dispatch({ type: 'replaced', why, formerSessionId, nowMs: Date.now() });
              // A copied tab came with the past of another one.
              if (why === 'SESSION_IN_USE') dispatch({ type: 'notices_seen' });
            },
            draining: ({ reconnectWithinMs }) => dispatch({ type: 'draining', byMs: Date.now() + reconnectWithinMs }),
          },
        });
        if (!current()) return opened.leave();
        session = opened;
        onStatus(opened.state, opened.sessionId);
        return;
      } catch (error) {
        if (!(error instanceof AppError) || !error.retryable) return; // Its closing was told by `status`.
      }
    }
  }

  function onStatus(status: SessionState, sessionId = session?.sessionId ?? ''): void {
    // What `connect` gives up on is tried again by `start`.
    const tries = status.state === 'closed' && status.code === undefined && session === undefined;
    const shown: SessionState = tries ? { state: 'connecting', attempt: 1 } : status;
    const { connection, sessionId: formerId } = store.get();
    // Who it is follows when `connect` resolves.
    if (isAttached(shown) && sessionId === '') return;
    // While it catches up, that is told again and again; the page counts by itself.
    if (isAttached(shown) && connection.state === 'live' && sessionId === formerId) return;
    dispatch({ type: 'status', status: shown, sessionId, nowMs: Date.now() });
    if (!isAttached(status)) return;
    for (const handle of session?.commands.values() ?? []) {
      dispatch({ type: 'snapshot', snapshot: { ...handle.snapshot, commandId: handle.commandId } });
    }
    const heads = [...followed].map((handle) => [handle.commandId, handle.snapshot.headSeq ?? 0] as const);
    dispatch({ type: 'attached', heads: new Map(heads) });
    void refresh();
    view(store.get().selectedId);
  }

  // --------------------------------------------------------------------------------------------------------- entries

  function follow(handle: CommandHandle): void {
    followed.add(handle);
    const { commandId, source } = handle;
    const snapshot = { ...handle.snapshot, commandId };
    // A command that this tab ran is its own before any list says so.
    const own = source === 'run' && session !== undefined ? ownership(session.sessionId) : {};
    dispatch({ type: 'snapshot', snapshot: { ...own, ...snapshot } });
    if (source === 'run' || source === 'adopted') void refresh();
    if (source === 'run') early.begin(commandId);
    void consume(handle);
  }

  const ownership = (sessionId: string) => ({ originSessionId: sessionId, ownerSessionId: sessionId });

  async function consume(handle: CommandHandle): Promise<void> {
    const { commandId } = handle;
    try {
      for await (const entry of handle.events) {
        for (const log of logs.get(commandId) ?? []) log.offer(entry);
        early.keep(entry);
        note(entry);
      }
    } catch (error) {
      // A session that ended says so itself; anything else is about this command.
      if (!(error instanceof AppError && error.code === 'SESSION_GONE')) {
        dispatch({ type: 'failed', commandId, message: (error as Error).message });
      }
    } finally {
      followed.delete(handle);
    }
  }

  /** Output comes in bursts: its figures are told a few times a second, everything else at once. */
  function note(entry: Entry): void {
    const { commandId, seq } = entry;
    const known = progress.get(commandId);
    const bytes = entry.type === 'output' ? entry.at + (entry.data?.length ?? (entry.base64?.length ?? 0) * 0.75) : 0;
    progress.set(commandId, { seq, bytes: Math.max(known?.bytes ?? 0, Math.floor(bytes)) });
    progressTimer ??= setTimeout(tellProgress, PROGRESS_EVERY_MS);
    if (entry.type === 'output' || entry.type === 'heartbeat' || entry.type === 'gap') return;
    dispatch({ type: 'entry', entry, nowMs: Date.now() });
    if (entry.type === 'ended') void refresh();
  }

  function tellProgress(): void {
    progressTimer = undefined;
    dispatch({ type: 'progress', seen: new Map(progress) });
    progress.clear();
  }

  /** Entries of a command that belongs to another tab come only while somebody looks at it here. */
  function view(commandId: string | undefined): void {
    const state = store.get();
    const command = commandOf(state, commandId);
    const wanted =
      command !== undefined && command.state !== 'ended' && !isMine(state, command) ? command.commandId : undefined;
    if (viewedId !== undefined && viewedId !== wanted) ask('command.detach', { commandId: viewedId });
    if (wanted !== undefined && session !== undefined && isAttached(session.state)) {
      ask('command.attach', { commandId: wanted, fromSeq: (command?.snapshot.headSeq ?? 0) + 1 });
    }
    viewedId = wanted;
  }

  /** For what is made good by the next list: nobody waits for its answer. */
  function ask(method: string, params: object): void {
    session?.request(method, params).catch(() => undefined);
  }

  // ------------------------------------------------------------------------------------------------------------ lists

  async function refresh(): Promise<void> {
    clearTimeout(listTimer);
    listTimer = undefined;
    if (listing) return;
    listing = true;
    const asked = session;
    try {
      if (asked !== undefined && isAttached(asked.state)) {
        const page = (await asked.request('command.list', { limit: PAGE_SIZE })) as ListPage;
        if (asked !== session) return;
        dispatch({ type: 'listed', snapshots: page.commands, first: true, ...(page.next ? { next: page.next } : {}) });
        dispatch({ type: 'sessions', sessions: await fetchSessions() });
        if (viewedId === undefined) view(store.get().selectedId);
      }
    } catch (error) {
      if (asked === session) dispatch({ type: 'list_failed', message: (error as Error).message });
    } finally {
      listing = false;
      // While nobody looks, a list can wait; a look at the page asks at once (`touch`).
      const everyMs = document.hidden ? LIST_EVERY_MS * 5 : LIST_EVERY_MS;
      if (session !== undefined) listTimer = setTimeout(() => void refresh(), everyMs * (0.8 + Math.random() * 0.4));
    }
  }

  async function fetchSessions(): Promise<readonly SessionFacts[]> {
    const response = await get(`v1/conversations/${encodeURIComponent(name)}/sessions?limit=${PAGE_SIZE}`);
    return ((await response.json()) as { sessions: SessionFacts[] }).sessions;
  }

  async function get(path: string): Promise<Response> {
    const response = await fetch(new URL(path, `${url.replace(/\/?$/, '/')}`), {
      headers: { authorization: `Bearer ${token()}` },
      signal: AbortSignal.timeout(30_000),
    });
    if (response.ok) return response;
    const { message = `the node answered ${response.status}` } = (await response.json().catch(() => ({}))) as {
      message?: string;
    };
    throw new Error(message);
  }

  // ------------------------------------------------------------------------------------------------------------ wishes

  function openLog(commandId: string): OpenLog {
    let headSeq = 0;
    const reader = createLogReader(0, TERMINAL_BUFFER_BYTES, {
      async fetchPage(afterSeq) {
        const page = (await requestNow('command.log', { commandId, fromSeq: afterSeq + 1 })) as LogPage;
        headSeq = page.headSeq;
        return page;
      },
      onConsumed: () => undefined,
      onActive: () => undefined,
    });
    const first = early.take(commandId);
    // From the log first: what was consumed before this terminal was opened is there.
    if (first === undefined) reader.suspend();
    for (const entry of first ?? []) reader.offer(entry);
    const open = logs.get(commandId) ?? new Set();
    logs.set(commandId, open.add(reader));
    const closed = new AppError('SESSION_GONE', 'the terminal was closed');
    return Object.assign(reader, {
      headSeq: () => headSeq,
      close() {
        open.delete(reader);
        if (open.size === 0) logs.delete(commandId);
        reader.fail(closed);
      },
    });
  }

  function requestNow(method: string, params: object): Promise<unknown> {
    if (session === undefined) return Promise.reject(new AppError('REDIS_UNAVAILABLE', 'there is no session yet'));
    return session.request(method, params);
  }

  const handleOf = (commandId: string): CommandHandle => {
    const handle = session?.commands.get(commandId);
    if (handle === undefined) throw new AppError('NOT_OWNER', 'this tab does not hold the command');
    return handle;
  };

  return {
    name,
    store,
    async run(spec) {
      if (session === undefined) throw new AppError('REDIS_UNAVAILABLE', 'there is no session yet');
      const { commandId } = await session.run(spec);
      const known: Partial<CommandSnapshot> = {
        ...(spec.argv === undefined ? { script: spec.script ?? '' } : { argv: spec.argv }),
        ...(spec.stdin === 'pipe' ? { stdin: spec.stdin } : {}),
        ...(spec.pty === undefined ? {} : { pty: spec.pty }),
        ...ownership(session.sessionId),
        createdAt: Date.now(),
      };
      // What is known already (from entries that beat this line) wins.
      const earlier = commandOf(store.get(), commandId)?.snapshot;
      dispatch({ type: 'snapshot', snapshot: { ...known, ...earlier, commandId } });
      return commandId;
    },
    async kill(commandId, signal, graceMs) {
      dispatch({ type: 'kill', commandId, kill: { stage: 'asking', signal, graceMs } });
      try {
        const { state } = (await requestNow('command.kill', { commandId, signal, graceMs })) as { state: string };
        if (state === 'ended') return void refresh();
        const sentAtMs = Date.now();
        dispatch({
          type: 'kill',
          commandId,
          kill: { stage: 'signalled', signal, sentAtMs, killAtMs: sentAtMs + graceMs },
        });
      } catch (error) {
        dispatch({ type: 'kill', commandId, kill: { stage: 'refused', message: (error as Error).message } });
      }
    },
    write: async (commandId, data, eof = false) => handleOf(commandId).write(data, { eof }),
    resize: (commandId, cols, rows) => ask('command.resize', { commandId, cols, rows }),
    async adopt(commandId) {
      const snapshot = (await requestNow('command.adopt', { commandId })) as CommandSnapshot;
      dispatch({ type: 'snapshot', snapshot });
    },
    select(commandId) {
      dispatch({ type: 'select', commandId });
      view(commandId);
    },
    openLog,
    downloadLog: async (commandId) => (await get(`v1/commands/${commandId}/log?format=text`)).blob(),
    async loadOlder() {
      const { next } = store.get().list;
      if (next === undefined) return;
      try {
        const page = (await requestNow('command.list', { limit: PAGE_SIZE, cursor: next })) as ListPage;
        dispatch({ type: 'listed', snapshots: page.commands, first: false, ...(page.next ? { next: page.next } : {}) });
      } catch (error) {
        dispatch({ type: 'list_failed', message: (error as Error).message });
      }
    },
    retryNow: () => session?.retry(),
    touch() {
      session?.touch().catch(() => undefined); // The next one counts as well.
      if (listTimer !== undefined) void refresh();
    },
    start: () => void start(),
    startAnew() {
      storage.removeItem();
      void start();
    },
    async closeSession() {
      await session?.close();
      clearTimeout(listTimer);
    },
    leave() {
      run += 1;
      clearTimeout(listTimer);
      clearTimeout(progressTimer);
      session?.leave();
    },
  };
}

interface ListPage {
  readonly commands: readonly CommandSnapshot[];
  readonly next?: string;
}

/** One place of a storage, whatever the client calls it. */
function scoped(storage: Storage, key: string) {
  return {
    getItem: () => storage.getItem(key),
    setItem: (_key: string, value: string) => storage.setItem(key, value),
    removeItem: () => storage.removeItem(key),
  };
}
