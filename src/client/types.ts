/** What an application sees of a session. */
import type { CommandSpecInput, OwnerWhy } from '../protocol/methods.js';
import type { CommandHandle } from './command-handle.js';
import type { SessionStorage } from './memory.js';
import type { SessionState } from './session-state.js';
import type { WebSocketConstructor } from './socket.js';

/** For each single request. */
export interface RequestOptions {
  /** Gives up waiting for the answer, with the signal's reason. What was asked for may have been carried out, or still be. */
  readonly signal?: AbortSignal;
  /** How long it may stay without an answer, through reconnects; that of the session unless given. */
  readonly timeoutMs?: number;
}

export interface ConnectOptions {
  /** Address of a node or of what balances over them: `https://host[/base]`. A function is asked before each attempt. */
  readonly url: string | (() => string | Promise<string>);
  /** A token, or where to get a fresh one; a function is asked before each attempt. */
  readonly token: string | (() => string | Promise<string>);
  readonly conversation: string;
  /** Keeps the session across reloads; `sessionStorage` in a browser. Without it, a reload is a new session. */
  readonly storage?: SessionStorage;
  readonly webSocket?: WebSocketConstructor;
  /** Shown to operators. */
  readonly client?: string;
  /** How long `connect` tries before it gives up; later losses are never given up on. 15 s unless given. */
  readonly connectTimeoutMs?: number;
  /** Listeners from the first moment; those added with `on` miss what happens before `connect` resolves. */
  readonly listen?: { readonly [K in keyof SessionEvents]?: (value: SessionEvents[K]) => void };
  /** How long a request may stay without an answer, through reconnects. 60 s unless given. */
  readonly requestTimeoutMs?: number;
  /** Gives up connecting; once `connect` has resolved it does nothing more. */
  readonly signal?: AbortSignal;
}

/** Why a new session took the place of the one that was to be resumed. */
export type ReplacedWhy = 'SESSION_GONE' | 'RESUME_DENIED' | 'SESSION_IN_USE';

export interface SessionEvents {
  /** The connection: connecting, catching-up, live, away, closed. */
  status: SessionState;
  /** A command this page did not know: run here, resumed, or come here from another session. */
  command: CommandHandle;
  /** A command came to this session from another one. */
  owner: { readonly command: CommandHandle; readonly why: OwnerWhy; readonly fromSeq: number };
  /** The session could not be resumed; a new one took its place and adopts what it may. */
  replaced: { readonly formerSessionId: string; readonly sessionId: string; readonly why: ReplacedWhy };
  /** The node is stopping; the connection moves to another one by itself, within this time. */
  draining: { readonly reconnectWithinMs: number };
}

export interface Session {
  readonly sessionId: string;
  readonly state: SessionState;
  /** Commands this page follows: until their end was consumed. */
  readonly commands: ReadonlyMap<string, CommandHandle>;
  /**
   * Runs a command with this session as its origin. Survives a lost connection: it is asked again with the same
   * idempotency key, and runs once.
   * @throws AppError what the server refuses it with; REDIS_UNAVAILABLE when it was not answered in time
   */
  run(spec: CommandSpecInput, options?: RequestOptions): Promise<CommandHandle>;
  /** Any other request of the protocol. While there is no connection it waits for the next one, up to its time limit. */
  request(method: string, params?: object, options?: RequestOptions): Promise<unknown>;
  /** @returns stops listening */
  on<K extends keyof SessionEvents>(event: K, handler: (value: SessionEvents[K]) => void): () => void;
  /** Tries at once where it would wait before the next attempt. */
  retry(): void;
  /** Counts as user activity, which decides who takes over commands (OW2). */
  touch(options?: RequestOptions): Promise<void>;
  /** Drops the connection and keeps the session: another page, or this one reloaded, may resume it within its grace. */
  leave(): void;
  /** Closes the session for good; what it owns moves on. Idempotent; waits 2 s at most. */
  close(): Promise<void>;
}
