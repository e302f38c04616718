/** WebSocket close codes. A client comes back after 4000–4499 (and 1001, 1006, 1011–1013), never after 4500–4999. */
export const CLOSE = {
  NODE_STOPPING: 4001,
  NO_HEARTBEAT: 4002,
  INTERNAL: 4003,
  TRY_LATER: 4004,
  TOKEN_EXPIRED: 4005,
  SUPERSEDED: 4500,
  UNAUTHENTICATED: 4501,
  PROTOCOL_ERROR: 4502,
  VERSION: 4503,
  SESSION_CLOSED: 4504,
} as const;

export type CloseCode = (typeof CLOSE)[keyof typeof CLOSE];

/** Whether a client may connect again after a socket closed with this code. */
export const isTerminal = (code: number): boolean => code >= 4500 && code <= 4999;
