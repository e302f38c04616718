/**
 * One WebSocket and JSON-RPC over it: asks, answers, notifications. It knows no sessions and never comes back;
 * `session.ts` makes the next one.
 *
 * Answers and notifications are handed on in the order and the tick in which they arrive, so a handle made by an answer
 * is there before the entries that follow it.
 */
import { AppError, ERROR_CODES, type ErrorCode } from '../errors.js';
import { CLOSE } from '../protocol/close-codes.js';
import { UNREADABLE } from './session-state.js';
import { openSocket, type WebSocketConstructor } from './socket.js';

export type Answer =
  | { readonly type: 'result'; readonly value: unknown }
  | { readonly type: 'error'; readonly error: AppError | Error }
  /** The connection went before the answer came; the request may or may not have been carried out. */
  | { readonly type: 'lost' };

export interface ConnectionEvents {
  /** The socket is open; requests may be made. */
  onOpen(): void;
  /** Any frame: proof that the peer is there. */
  onAlive(): void;
  onNotification(method: string, params: Record<string, unknown>): void;
  /** Once, and nothing after it. */
  onClosed(code: number, reason: string): void;
}

export interface Connection {
  /** `onAnswer` is called exactly once, also when the connection goes. */
  request(method: string, params: object, onAnswer: (answer: Answer) => void): void;
  notify(method: string, params: object): void;
  /** Idempotent. `onClosed` follows at once, not when the peer agrees: a dead peer never would. */
  close(code: number, reason: string): void;
}

const OPEN = 1;

/** @throws TypeError for a URL that is none */
export function openConnection(
  WebSocket: WebSocketConstructor,
  url: string,
  token: string,
  openTimeoutMs: number,
  events: ConnectionEvents,
): Connection {
  const socket = openSocket(WebSocket, url, token, openTimeoutMs);
  const asked = new Map<number, (answer: Answer) => void>();
  let nextId = 1;
  let closed = false;
  let failure = '';
  const openTimer = setTimeout(() => end(1006, `no connection within ${openTimeoutMs} ms`), openTimeoutMs);

  function end(code: number, reason: string): void {
    if (closed) return;
    closed = true;
    clearTimeout(openTimer);
    for (const onAnswer of asked.values()) onAnswer({ type: 'lost' });
    asked.clear();
    socket.onopen = socket.onmessage = socket.onclose = null;
    events.onClosed(code, reason);
  }

  function take(message: unknown): void {
    if (typeof message !== 'object' || message === null || closed) return;
    const { id, method, params, result, error } = message as Record<string, unknown>;
    if (typeof method === 'string') {
      events.onNotification(method, (params ?? {}) as Record<string, unknown>);
      return;
    }
    const onAnswer = asked.get(id as number);
    if (onAnswer === undefined) return;
    asked.delete(id as number);
    onAnswer(error === undefined ? { type: 'result', value: result } : { type: 'error', error: errorOf(error) });
  }

  socket.onopen = () => {
    clearTimeout(openTimer);
    events.onOpen();
  };
  socket.onmessage = ({ data }: { data: unknown }) => {
    if (typeof data !== 'string') return;
    let frame: unknown;
    try {
      frame = JSON.parse(data);
    } catch {
      end(UNREADABLE, 'the server sent a frame that is not JSON');
      // Of the codes that a browser may send. The node looks into what it sends from then on.
      socket.close(CLOSE.PROTOCOL_ERROR);
      return;
    }
    events.onAlive();
    for (const message of Array.isArray(frame) ? frame : [frame]) take(message);
  };
  socket.onerror = ((event: { message?: string }) => {
    failure = event.message ?? '';
  }) as (event: never) => void;
  socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
    // What the upgrade was answered with is visible in `ws` only; a browser says 1006 and nothing else.
    const refused = /Unexpected server response: (401|403)/.test(failure);
    end(refused ? 4501 : code, reason || failure);
  };

  return {
    request(method, params, onAnswer) {
      if (closed || socket.readyState !== OPEN) return onAnswer({ type: 'lost' });
      const id = nextId++;
      asked.set(id, onAnswer);
      socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    },
    notify(method, params) {
      if (closed || socket.readyState !== OPEN) return;
      socket.send(JSON.stringify({ jsonrpc: '2.0', method, params }));
    },
    close(code, reason) {
      if (closed) return;
      end(code, reason);
      // Browsers allow 1000 and 3000–4999 only.
      socket.close(1000, reason.slice(0, 100));
      // `ws` waits 30 s for the farewell of a dead peer, and keeps the process alive meanwhile.
      if (socket.terminate !== undefined) setTimeout(() => socket.terminate?.(), 1_000);
    },
  };
}

/** The error of an answer: with a code of the contract where the server gave one. */
function errorOf(error: unknown): AppError | Error {
  const { message, data } = (error ?? {}) as { message?: string; data?: Record<string, unknown> };
  const text = message ?? 'the server answered with an error';
  const code = data?.code;
  if (typeof code !== 'string' || !(code in ERROR_CODES)) return new Error(text);
  return new AppError(code as ErrorCode, text, {
    ...(typeof data?.field === 'string' ? { field: data.field } : {}),
    ...(typeof data?.retryAfterMs === 'number' ? { retryAfterMs: data.retryAfterMs } : {}),
  });
}
