/**
 * The one error type for failures of the environment and for answers that carry a code of the outside contract.
 * A peer's mistake is answered with a code; our own bug is an assertion and ends the process.
 */

/** Every code of the outside contract with its HTTP status and whether the same request may succeed later. */
export const ERROR_CODES = {
  UNAUTHENTICATED: { status: 401, retryable: false },
  TOKEN_EXPIRED: { status: 401, retryable: false },
  FORBIDDEN: { status: 403, retryable: false },
  ORIGIN_UNKNOWN: { status: 422, retryable: false },
  SESSION_GONE: { status: 410, retryable: false },
  SESSION_IN_USE: { status: 409, retryable: false },
  RESUME_DENIED: { status: 403, retryable: false },
  UNKNOWN_COMMAND: { status: 404, retryable: false },
  NOT_OWNER: { status: 409, retryable: false },
  COMMAND_ENDED: { status: 409, retryable: false },
  STDIN_CLOSED: { status: 409, retryable: false },
  STDIN_FULL: { status: 429, retryable: true },
  PATTERN_INVALID: { status: 422, retryable: false },
  INVALID_PARAMS: { status: 400, retryable: false },
  IDEMPOTENCY_CONFLICT: { status: 409, retryable: false },
  POOL_UNKNOWN: { status: 422, retryable: false },
  SECRETS_UNAVAILABLE: { status: 422, retryable: false },
  CONTAINMENT_UNAVAILABLE: { status: 422, retryable: false },
  LIMIT_EXCEEDED: { status: 429, retryable: true },
  RATE_LIMITED: { status: 429, retryable: true },
  REDIS_UNAVAILABLE: { status: 503, retryable: true },
  /** The address of the public keys does not answer, and none was ever fetched. */
  KEYS_UNAVAILABLE: { status: 503, retryable: true },
} as const;

export type ErrorCode = keyof typeof ERROR_CODES;

/** A failure with a code of the contract. `message` is a sentence for people; it never holds a secret. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly field?: string;
  readonly retryAfterMs?: number;

  constructor(
    code: ErrorCode,
    message: string,
    options: { cause?: unknown; field?: string; retryAfterMs?: number } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'AppError';
    this.code = code;
    this.retryable = ERROR_CODES[code].retryable;
    if (options.field !== undefined) this.field = options.field;
    if (options.retryAfterMs !== undefined) this.retryAfterMs = options.retryAfterMs;
  }
}

/** Makes the compiler prove that every member of a union is handled. */
export function assertNever(value: never): never {
  throw new Error(`unexpected value: ${JSON.stringify(value)}`);
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
