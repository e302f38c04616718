/** JSON-RPC 2.0 frames: parsing of what a client sends, and the texts a server answers with. Pure; never throws. */
import type { ErrorCode } from '../errors.js';
import { ERROR_CODES } from '../errors.js';
import { LIMITS } from './limits.js';

export type RpcId = string | number | null;

export type Incoming =
  | { readonly type: 'request'; readonly id: RpcId; readonly method: string; readonly params: unknown }
  | { readonly type: 'notification'; readonly method: string; readonly params: unknown }
  /** The client's answer to something; a server asks nothing, so it is ignored. */
  | { readonly type: 'response' }
  | { readonly type: 'invalid'; readonly id: RpcId; readonly error: RpcError };

export type Frame =
  | { readonly type: 'single'; readonly message: Incoming }
  | { readonly type: 'batch'; readonly messages: readonly Incoming[] };

export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: {
    readonly code: ErrorCode;
    readonly retryable: boolean;
    readonly field?: string;
    readonly retryAfterMs?: number;
  };
}

export const RPC = {
  PARSE: -32700,
  INVALID_REQUEST: -32600,
  METHOD_NOT_FOUND: -32601,
  INVALID_PARAMS: -32602,
  INTERNAL: -32603,
  APPLICATION: -32000,
} as const;

const invalid = (id: RpcId, code: number, message: string): Incoming => ({
  type: 'invalid',
  id,
  error: { code, message },
});

function parseMessage(value: unknown): Incoming {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return invalid(null, RPC.INVALID_REQUEST, 'a message must be an object');
  }
  const { jsonrpc, id, method, params } = value as Record<string, unknown>;
  const knownId = typeof id === 'string' || typeof id === 'number' || id === null ? id : undefined;
  if (id !== undefined && knownId === undefined) {
    return invalid(null, RPC.INVALID_REQUEST, 'id must be a string, a number or null');
  }
  if (jsonrpc !== '2.0') return invalid(knownId ?? null, RPC.INVALID_REQUEST, 'jsonrpc must be "2.0"');
  if (method === undefined && ('result' in value || 'error' in value)) return { type: 'response' };
  if (typeof method !== 'string') return invalid(knownId ?? null, RPC.INVALID_REQUEST, 'method must be a string');
  if (params !== undefined && (typeof params !== 'object' || params === null)) {
    return invalid(knownId ?? null, RPC.INVALID_REQUEST, 'params must be an object');
  }
  return knownId === undefined
    ? { type: 'notification', method, params: params ?? {} }
    : { type: 'request', id: knownId, method, params: params ?? {} };
}

/** Parses one text frame. Every fault is a member of the result with the JSON-RPC error to answer. */
export function parseFrame(text: string): Frame {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { type: 'single', message: invalid(null, RPC.PARSE, 'the frame is not JSON') };
  }
  if (!Array.isArray(value)) return { type: 'single', message: parseMessage(value) };
  if (value.length === 0) {
    return { type: 'single', message: invalid(null, RPC.INVALID_REQUEST, 'a batch must not be empty') };
  }
  if (value.length > LIMITS.maxBatch) {
    const message = `a batch must have at most ${LIMITS.maxBatch} members, got ${value.length}`;
    return { type: 'single', message: invalid(null, RPC.INVALID_REQUEST, message) };
  }
  return { type: 'batch', messages: value.map(parseMessage) };
}

export const resultText = (id: RpcId, result: unknown): string =>
  `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${JSON.stringify(result ?? {})}}`;

export const errorText = (id: RpcId, error: RpcError): string =>
  `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":${JSON.stringify(error)}}`;

export const notificationText = (method: string, params: unknown): string =>
  `{"jsonrpc":"2.0","method":${JSON.stringify(method)},"params":${JSON.stringify(params)}}`;

/** The JSON-RPC form of an error with a code of the contract. INVALID_PARAMS has JSON-RPC's own number. */
export function rpcError(error: {
  code: ErrorCode;
  message: string;
  field?: string | undefined;
  retryAfterMs?: number | undefined;
}): RpcError {
  return {
    code: error.code === 'INVALID_PARAMS' ? RPC.INVALID_PARAMS : RPC.APPLICATION,
    message: error.message,
    data: {
      code: error.code,
      retryable: ERROR_CODES[error.code].retryable,
      ...(error.field === undefined ? {} : { field: error.field }),
      ...(error.retryAfterMs === undefined ? {} : { retryAfterMs: error.retryAfterMs }),
    },
  };
}
