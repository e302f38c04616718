/** Which WebSocket to use, and where to. Nothing here is known to Node only: the same file runs in a browser. */
import { LIMITS } from '../protocol/limits.js';

/** The part of the WebSocket interface that is used: the browser's own, that of `ws`, Deno's and Bun's fit. */
export interface WebSocketLike {
  readonly readyState: number;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  /** Of `ws` only: ends without a farewell. */
  terminate?(): void;
}

export type WebSocketConstructor = new (
  url: string,
  protocols: string[],
  options?: { headers: Record<string, string>; handshakeTimeout: number },
) => WebSocketLike;

/** The runtime's own. Node has its entry of its own, which brings `ws`. @throws Error where there is none */
export function globalWebSocket(): WebSocketConstructor {
  const global = (globalThis as { WebSocket?: unknown }).WebSocket as WebSocketConstructor | undefined;
  if (global !== undefined) return global;
  throw new Error('there is no WebSocket here: give one as `webSocket`, or import homing/client in Node');
}

/** The address of the socket: `http(s)://host[/base]` or `ws(s)://…` → `ws(s)://host[/base]/v1/ws`. @throws TypeError */
export function socketUrl(url: string): string {
  const parsed = new URL(url);
  parsed.protocol = parsed.protocol === 'https:' || parsed.protocol === 'wss:' ? 'wss:' : 'ws:';
  if (!parsed.pathname.endsWith('/v1/ws')) parsed.pathname = `${parsed.pathname.replace(/\/+$/, '')}/v1/ws`;
  // A token in a fragment is for people; neither it nor a query belongs into a request line.
  parsed.hash = '';
  parsed.search = '';
  return parsed.href;
}

/** Opens a socket that speaks the protocol. The token goes into a header where the runtime can send one. */
export function openSocket(
  WebSocket: WebSocketConstructor,
  url: string,
  token: string,
  timeoutMs: number,
): WebSocketLike {
  const options = { headers: { authorization: `Bearer ${token}` }, handshakeTimeout: timeoutMs };
  return new WebSocket(socketUrl(url), [LIMITS.subprotocol], options);
}
