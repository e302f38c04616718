/** The SDK for browsers and Node: `import { connect } from 'homing/client'`. */
export { AppError, type ErrorCode } from '../errors.js';
export type { Entry, GapReason, Outcome } from '../protocol/entries.js';
export type { CommandSnapshot, CommandSpecInput, OwnerWhy } from '../protocol/methods.js';
export type { CommandHandle, OutputChunk, OutputGap } from './command-handle.js';
export type { SessionStorage } from './memory.js';
export { connect } from './session.js';
export type { SessionState } from './session-state.js';
export type { WebSocketConstructor, WebSocketLike } from './socket.js';
export type { ConnectOptions, ReplacedWhy, Session, SessionEvents } from './types.js';
