/**
 * The SDK under Node: the same, with a WebSocket that can send the token in a header, and an origin that is carried
 * through asynchronous calls. Node picks this entry by itself (`exports` in package.json); no browser build holds it.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { WebSocket } from 'ws';
import { type Backend, type BackendOptions, createBackend as createBackendAnywhere, type Origin } from './backend.js';
import { connect as connectAnywhere } from './session.js';
import type { WebSocketConstructor } from './socket.js';
import type { ConnectOptions, Session } from './types.js';

export * from './index.js';

/** A program has no Origin, so the server wants the token in a header, which only `ws` can be relied on to send. */
const socket = WebSocket as unknown as WebSocketConstructor;

/** Opens a session, or resumes the one in `storage`; see `connect` of the browser's entry, which it is. */
export const connect = (options: ConnectOptions): Promise<Session> =>
  connectAnywhere({ webSocket: socket, ...options });

const origins = new AsyncLocalStorage<Origin>();

/**
 * Runs `fn` so that every command a backend submits inside of it, however deep and however late, comes from this origin
 * unless the call names another. Inner origins add to outer ones.
 */
export const withOrigin = <T>(origin: Origin, fn: () => T): T => origins.run({ ...origins.getStore(), ...origin }, fn);

/** The origin that is carried here, if any. */
export const currentOrigin = (): Origin | undefined => origins.getStore();

/** A backend whose submits take their origin from `withOrigin`. */
export const createBackend = (options: BackendOptions): Backend =>
  createBackendAnywhere({ origin: currentOrigin, ...options });
