/**
 * Keeps one session attached: connects, opens or resumes, watches for silence, leaves a stopping node, comes back.
 * What to do next is decided in `session-state.ts`; this file does it. What the session carries is not its business.
 */
import { AppError, messageOf } from '../errors.js';
import { CLOSE } from '../protocol/close-codes.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import { type Answer, type Connection, openConnection } from './connection.js';
import type { Identity } from './memory.js';
import { type Behind, decideNext, isAttached, type SessionEvent, type SessionState } from './session-state.js';
import type { WebSocketConstructor } from './socket.js';
import type { ConnectOptions, ReplacedWhy } from './types.js';

/** The part of the answer to open and resume that is used. */
export interface Welcome extends Identity {
  readonly heartbeatMs: number;
  readonly commands: readonly CommandSnapshot[];
  readonly more: boolean;
}

export interface LinkPorts {
  /** Whom to resume; undefined opens a new session. */
  identity(): Identity | undefined;
  cursors(): Record<string, number>;
  /** What of it has to arrive before the session is live. */
  behind(welcome: Welcome, resumed: boolean): Behind;
  /** Attached on this connection. Called in the tick of the answer, before any notification that follows it. */
  onWelcome(welcome: Welcome, resumed: boolean, connection: Connection): void;
  onNotification(method: string, params: Record<string, unknown>): void;
  /** There is no connection any more. */
  onDetached(): void;
  /** The session can not be resumed: forget it; a new one is opened next. */
  onReplace(why: ReplacedWhy): void;
  onStatus(state: SessionState): void;
  /** For good. Nothing follows. */
  onEnd(state: Extract<SessionState, { state: 'closed' }>): void;
}

export interface Link {
  state(): SessionState;
  /** Why the last attempt failed; '' before any. */
  lastFailure(): string;
  start(): void;
  /** Some of what was missing when the session was attached has arrived. */
  progress(behind: Behind): void;
  /** Ends a wait before the next attempt; otherwise nothing. */
  retry(): void;
  /** Ends for good. Idempotent. */
  close(reason: string): void;
}

/** Time for a socket to open, and for open or resume to be answered. */
const OPEN_TIMEOUT_MS = 10_000;

type Timer = ReturnType<typeof setTimeout>;
type Source = string | (() => string | Promise<string>);

const currentValue = async (source: Source): Promise<string> => (typeof source === 'function' ? source() : source);

export function createLink(options: ConnectOptions, WebSocket: WebSocketConstructor, ports: LinkPorts): Link {
  const pageNonce = randomText();
  const tokenRenews = typeof options.token === 'function';
  let state: SessionState = { state: 'connecting', attempt: 0 };
  let connection: Connection | undefined;
  let heartbeatMs = 15_000;
  let failure = '';
  /** Open or resume was sent on this connection and is not answered. */
  let introduced = false;
  let retryTimer: Timer | undefined;
  let silenceTimer: Timer | undefined;
  let drainTimer: Timer | undefined;

  function apply(event: SessionEvent): void {
    const { state: next, effect } = decideNext(state, event, Math.random());
    const changed = next !== state;
    // What means nothing in this state must not touch the attempt that is under way: nothing would begin another one.
    if (!changed && effect.type === 'none') return;
    state = next;
    if (!isAttached(next)) drop();
    if (changed) ports.onStatus(next);
    // The listener may have closed the session meanwhile; then that was carried out already.
    if (state !== next) return;
    if (next.state === 'closed' && effect.type === 'end') ports.onEnd(next);
    else if (effect.type === 'wait') retryTimer = setTimeout(() => apply({ type: 'retry' }), effect.delayMs);
    else if (effect.type === 'connect') void attempt();
    else if (effect.type === 'replace') {
      ports.onReplace(effect.why);
      void attempt();
    }
  }

  function drop(): void {
    clearTimeout(retryTimer);
    clearTimeout(silenceTimer);
    clearTimeout(drainTimer);
    const former = connection;
    connection = undefined;
    ports.onDetached();
    former?.close(1000, 'leaving');
  }

  async function attempt(): Promise<void> {
    try {
      const token = await currentValue(options.token);
      const url = await currentValue(options.url);
      if (state.state !== 'connecting' || connection !== undefined) return;
      introduced = false;
      const mine: Connection = openConnection(WebSocket, url, token, OPEN_TIMEOUT_MS, {
        onOpen: () => mine === connection && introduce(mine, token),
        onAlive: () => mine === connection && watchSilence(),
        onNotification: (method, params) => mine === connection && take(method, params),
        onClosed(code, reason) {
          if (mine !== connection) return;
          connection = undefined;
          failure = reason || `the connection was closed with code ${code}`;
          // A node closes so a socket on which it hears no open in time. Ours was sent: the way was slow, and nobody has
          // looked at the token, since one that is not accepted is answered.
          const unheard = introduced && code === CLOSE.UNAUTHENTICATED;
          introduced = false;
          apply({ type: 'lost', code: unheard ? CLOSE.TRY_LATER : code, reason, nowMs: Date.now() });
        },
      });
      connection = mine;
    } catch (error) {
      // An address or token that is wrong stays wrong; a function that threw may do better the next time.
      failure = messageOf(error);
      const retryable = tokenRenews || typeof options.url === 'function';
      apply({ type: 'refused', code: '', message: failure, retryable, tokenRenews });
    }
  }

  /** Opens or resumes the session on a fresh connection. */
  function introduce(mine: Connection, token: string): void {
    const identity = ports.identity();
    const timer = setTimeout(() => mine.close(1006, `no answer within ${OPEN_TIMEOUT_MS} ms`), OPEN_TIMEOUT_MS);
    introduced = true;
    const onAnswer = (answer: Answer) => {
      clearTimeout(timer);
      if (answer.type !== 'lost') introduced = false;
      if (mine !== connection || answer.type === 'lost') return;
      if (answer.type === 'error') return refused(answer.error);
      const welcome = answer.value as Welcome;
      heartbeatMs = welcome.heartbeatMs;
      const behind = ports.behind(welcome, identity !== undefined);
      apply({ type: 'established', nowMs: Date.now(), behind });
      watchSilence();
      if (mine === connection) ports.onWelcome(welcome, identity !== undefined, mine);
    };
    const { conversation, client } = options;
    const common = { token, pageNonce, batch: true };
    if (identity === undefined) mine.request('session.open', { ...common, conversation, client }, onAnswer);
    else mine.request('session.resume', { ...common, ...identity, cursors: ports.cursors() }, onAnswer);
  }

  function refused(error: AppError | Error): void {
    failure = error.message;
    const known = error instanceof AppError ? error : undefined;
    apply({
      type: 'refused',
      code: known?.code ?? '',
      message: failure,
      retryable: known?.retryable ?? false,
      ...(known?.retryAfterMs === undefined ? {} : { retryAfterMs: known.retryAfterMs }),
      tokenRenews,
    });
  }

  function watchSilence(): void {
    clearTimeout(silenceTimer);
    if (!isAttached(state)) return;
    // Two heartbeats, and half of one for the way.
    silenceTimer = setTimeout(() => apply({ type: 'silent', nowMs: Date.now() }), heartbeatMs * 2.5);
  }

  function take(method: string, params: Record<string, unknown>): void {
    ports.onNotification(method, params);
    if (method !== 'session.draining') return;
    clearTimeout(drainTimer);
    const withinMs = Number(params.reconnectWithinMs ?? 0);
    drainTimer = setTimeout(() => apply({ type: 'drained' }), Math.random() * withinMs);
  }

  return {
    state: () => state,
    lastFailure: () => failure,
    start: () => void attempt(),
    progress: (behind) => apply({ type: 'progress', behind }),
    retry: () => apply({ type: 'retry' }),
    close: (reason) => apply({ type: 'close', reason }),
  };
}

/** 128 bits of chance. `crypto.randomUUID` is missing on plain http pages, so not that. */
export function randomText(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
