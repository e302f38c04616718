/** What `import … from 'homing'` gives: the SDK and the shapes of the protocol. */
export * from './client/index.js';
export { ERROR_CODES } from './errors.js';
export { CLOSE, type CloseCode, isTerminal } from './protocol/close-codes.js';
export type { Containment, EndReason, EntryType, GapReason, OutputStream } from './protocol/entries.js';
export { LIMITS } from './protocol/limits.js';
export type { MethodName, MethodParams } from './protocol/methods.js';
