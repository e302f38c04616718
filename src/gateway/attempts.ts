/**
 * Failed attempts to be let in, counted for each address and each token. What is valid is never held up, so nobody can lock
 * another one out; above the limit a failure is answered RATE_LIMITED, which tells no more whether the token was wrong, too old or
 * for something that is not there, and asks clients that repeat themselves to wait.
 */
import type { Meter } from '../domain/ports.js';
import type { Rates } from '../domain/rates.js';
import { AppError, type ErrorCode } from '../errors.js';

const COUNTED: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['UNAUTHENTICATED', 'TOKEN_EXPIRED', 'RESUME_DENIED']);

export interface Attempts {
  /** @param secret what was tried: a token, or a resume token. @throws what `attempt` throws, or AppError RATE_LIMITED for it */
  guard<T>(address: string, secret: string | undefined, attempt: () => Promise<T>): Promise<T>;
}

export function createAttempts(ports: { readonly rates: Rates; readonly meter: Meter }): Attempts {
  const { rates, meter } = ports;
  return {
    async guard(address, secret, attempt) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof AppError) || !COUNTED.has(error.code)) throw error;
        meter.count('homing_attempts_failed_total', { code: error.code });
        const waits = await Promise.all([
          rates.take('addressFailures', address),
          secret === undefined ? 0 : rates.take('tokenFailures', secret),
        ]);
        const retryAfterMs = Math.max(...waits);
        if (retryAfterMs === 0) throw error;
        throw new AppError('RATE_LIMITED', 'too many attempts failed; try again later', { retryAfterMs });
      }
    },
  };
}
