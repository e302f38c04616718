/**
 * A session of one page, put together: the link keeps it attached, the table holds its commands, requests and
 * acknowledgements survive a lost connection, and the memory survives a reload.
 */
import { AppError, ERROR_CODES, type ErrorCode } from '../errors.js';
import type { CommandSnapshot, OwnerWhy } from '../protocol/methods.js';
import { createAcks } from './acks.js';
import { createCommandTable } from './command-table.js';
import type { Connection } from './connection.js';
import { createLink, randomText } from './link.js';
import { createMemory } from './memory.js';
import { createRequests } from './requests.js';
import { isAttached, type SessionState } from './session-state.js';
import { globalWebSocket } from './socket.js';
import type { ConnectOptions, ReplacedWhy, Session, SessionEvents } from './types.js';

const CLOSE_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 15_000;
const REQUEST_TIMEOUT_MS = 60_000;

interface OwnerNotice {
  readonly commandId: string;
  readonly snapshot: Partial<CommandSnapshot>;
  readonly fromSeq: number;
  readonly why: OwnerWhy;
}

/** The answer to a run. An older node does not say whether it was repeated. */
type Accepted = Pick<CommandSnapshot, 'commandId' | 'state' | 'position' | 'held'> & { readonly repeated?: boolean };

/**
 * Opens a session, or resumes the one in `storage`. Whoever calls it closes it.
 * @throws AppError when it is refused; REDIS_UNAVAILABLE when nobody answers in time; the reason of `signal`
 */
export async function connect(options: ConnectOptions): Promise<Session> {
  options.signal?.throwIfAborted();
  const WebSocket = options.webSocket ?? globalWebSocket();
  const events = createEvents(options.listen);
  const memory = createMemory(options.storage, `homing:${options.conversation}`);
  const requests = createRequests({ timeoutMs: options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS });
  let sessionId = memory.identity()?.sessionId ?? '';
  let replacing: { readonly formerSessionId: string; readonly why: ReplacedWhy } | undefined;
  let attached: Connection | undefined;

  const acks = createAcks((cursors) => {
    memory.save();
    attached?.notify('output.ack', { cursors });
    return attached !== undefined;
  });
  const table = createCommandTable({
    request: requests.send,
    memory,
    onConsumed: acks.note,
    onCommand: (handle) => events.emit('command', handle),
    onCaughtUp: () => link.progress(table.behind()),
  });
  const link = createLink(options, WebSocket, {
    identity: memory.identity,
    cursors: table.cursors,
    behind: ({ commands }, resumed) => table.expect(commands, !resumed),
    onWelcome(welcome, resumed, connection) {
      sessionId = welcome.sessionId;
      memory.setIdentity({ sessionId, resumeToken: welcome.resumeToken });
      attached = connection;
      table.reconcile(welcome.commands, welcome.more, resumed ? 'resumed' : 'adopted');
      memory.save();
      acks.flush();
      requests.attach(connection);
      if (replacing !== undefined) events.emit('replaced', { ...replacing, sessionId });
      replacing = undefined;
      events.emit('status', link.state());
    },
    onNotification(method, params) {
      if (method === 'command.owner') takeOwner(params as unknown as OwnerNotice);
      else if (method === 'session.expiring') void refreshToken();
      else if (method === 'session.draining') events.emit('draining', params as SessionEvents['draining']);
      else if (method.startsWith('command.')) table.receive(method.slice('command.'.length), params);
    },
    onDetached() {
      attached = undefined;
      requests.detach();
    },
    onReplace(why) {
      replacing ??= { formerSessionId: sessionId, why };
      memory.clear();
    },
    // That it is attached is said by `onWelcome`, when session and commands are known.
    onStatus: (state) => (attached !== undefined || !isAttached(state)) && events.emit('status', state),
    onEnd({ reason }) {
      const error = new AppError('SESSION_GONE', `the session is closed here: ${reason}`);
      stopListening();
      acks.close();
      memory.save();
      requests.close(error);
      table.fail(error);
    },
  });

  // A page that goes away keeps its session, and the next one must know what this one consumed up to its last moment.
  const stopListening = onPageHide(() => {
    memory.save();
    acks.flush();
  });

  function takeOwner({ commandId, snapshot, fromSeq, why }: OwnerNotice): void {
    const command = table.follow({ ...snapshot, commandId, fromSeq }, 'adopted');
    if (command !== undefined) events.emit('owner', { command, why, fromSeq });
  }

  async function refreshToken(): Promise<void> {
    if (typeof options.token !== 'function') return;
    try {
      await requests.send('session.refresh', { token: await options.token() }, () => undefined);
    } catch {
      // The server closes with 4005 when the token is over, and the next attempt asks for another one.
    }
  }

  async function close(): Promise<void> {
    if (attached !== undefined) {
      acks.flush();
      // Unanswered or refused: the session's grace ends it, and there is nothing better to do here.
      const asked = requests.send('session.close', {}, () => undefined).catch(() => undefined);
      await Promise.race([asked, later(CLOSE_TIMEOUT_MS)]);
    }
    memory.clear();
    link.close('closed by the application');
  }

  const session: Session = {
    get sessionId() {
      return sessionId;
    },
    get state() {
      return link.state();
    },
    commands: table.handles,
    run(spec, options) {
      const keyed = { ...spec, idempotencyKey: spec.idempotencyKey ?? randomText() };
      return requests.send(
        'command.run',
        keyed,
        (value) => {
          const { repeated, ...snapshot } = value as Accepted;
          const { commandId } = snapshot;
          if (repeated === false) table.renew(commandId);
          const handle = table.follow(snapshot, 'run');
          if (handle === undefined) throw new AppError('COMMAND_ENDED', `${commandId} is over and was consumed here`);
          return handle;
        },
        options,
      );
    },
    request: (method, params = {}, options) => requests.send(method, params, (value) => value, options),
    on: events.on,
    retry: link.retry,
    touch: (options) => requests.send('session.touch', {}, () => undefined, options),
    leave() {
      acks.flush();
      link.close('left by the application');
    },
    close,
  };

  const timeoutMs = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
  const opened = firstOpen(session, timeoutMs, options.signal, link.lastFailure);
  link.start();
  await opened;
  return session;
}

/** Where there are pages. @returns stops listening */
function onPageHide(handler: () => void): () => void {
  const { addEventListener, removeEventListener } = globalThis as Partial<
    Pick<Window, 'addEventListener' | 'removeEventListener'>
  >;
  addEventListener?.('pagehide', handler);
  return () => removeEventListener?.('pagehide', handler);
}

/** Resolves when the session is attached for the first time; ends it when that takes too long or is not wanted any more. */
async function firstOpen(
  session: Session,
  timeoutMs: number,
  signal: AbortSignal | undefined,
  lastFailure: () => string,
): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop: (() => void) | undefined;
  let abort: (() => void) | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      timer = setTimeout(() => {
        const message = `no session within ${timeoutMs} ms: ${lastFailure() || 'nobody answered'}`;
        reject(new AppError('REDIS_UNAVAILABLE', message));
        session.leave();
      }, timeoutMs);
      abort = () => {
        reject(signal?.reason);
        session.leave();
      };
      signal?.addEventListener('abort', abort);
      stop = session.on('status', (state) => {
        if (isAttached(state)) resolve();
        else if (state.state === 'closed') reject(closedError(state));
      });
    });
  } finally {
    clearTimeout(timer);
    stop?.();
    if (abort !== undefined) signal?.removeEventListener('abort', abort);
  }
}

function closedError({ code, reason }: Extract<SessionState, { state: 'closed' }>): Error {
  if (code === 4501) return new AppError('UNAUTHENTICATED', reason);
  return typeof code === 'string' && code in ERROR_CODES ? new AppError(code as ErrorCode, reason) : new Error(reason);
}

function createEvents(first: ConnectOptions['listen'] = {}) {
  type Handler<K extends keyof SessionEvents> = (value: SessionEvents[K]) => void;
  const handlers: { [K in keyof SessionEvents]: Set<Handler<K>> } = {
    status: new Set(),
    command: new Set(),
    owner: new Set(),
    replaced: new Set(),
    draining: new Set(),
  };
  const add = <K extends keyof SessionEvents>(event: K, handler: Handler<K> | undefined) => {
    if (handler !== undefined) handlers[event].add(handler);
  };
  for (const event of Object.keys(handlers) as (keyof SessionEvents)[])
    add(event, first[event] as Handler<typeof event>);
  return {
    emit<K extends keyof SessionEvents>(event: K, value: SessionEvents[K]): void {
      for (const handler of [...handlers[event]]) {
        try {
          handler(value);
        } catch (error) {
          // A fault of the application: it must show, but not in the middle of our work.
          queueMicrotask(() => {
            throw error;
          });
        }
      }
    },
    on<K extends keyof SessionEvents>(event: K, handler: Handler<K>): () => void {
      handlers[event].add(handler);
      return () => void handlers[event].delete(handler);
    },
  };
}

const later = (delayMs: number): Promise<void> =>
  new Promise((resolve) => {
    const timer: unknown = setTimeout(resolve, delayMs);
    // In Node a timer that lost its race must not hold the process; a browser has no such thing.
    (timer as { unref?: () => void }).unref?.();
  });
