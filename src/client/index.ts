/** The SDK for browsers: `import { connect } from 'homing/client'`. Under Node the same name is `node.ts`. */
export { AppError, type ErrorCode } from '../errors.js';
export type { Entry, GapReason, Outcome } from '../protocol/entries.js';
export type { CommandSnapshot, CommandSpecInput, OwnerWhy } from '../protocol/methods.js';
export {
  type Backend,
  type BackendOptions,
  type CallOptions,
  type ConversationEvent,
  createBackend,
  type Origin,
} from './backend.js';
export type { CommandHandle } from './command-handle.js';
export type { SessionStorage } from './memory.js';
export type { OutputChunk, OutputGap, ReadOptions } from './output.js';
export { connect } from './session.js';
export type { SessionState } from './session-state.js';
export type { WebSocketConstructor, WebSocketLike } from './socket.js';
export type { ConnectOptions, ReplacedWhy, RequestOptions, Session, SessionEvents } from './types.js';
