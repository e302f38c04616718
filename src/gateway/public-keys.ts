/**
 * The public keys of whoever issues tokens, by their address (`HOMING_JWKS_URL`). Kept for ten minutes; an unknown key is
 * looked for again, at most once in 30 s. While the address does not answer, the keys that are known go on.
 */
import { createLocalJWKSet, createRemoteJWKSet, errors, type JWTVerifyGetKey } from 'jose';
import type { Log } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';

const KEEP_MS = 10 * 60_000;
const COOL_DOWN_MS = 30_000;
const FETCH_WITHIN_MS = 5_000;
/** After a failed fetch the address is left alone for so long; requests are answered from what is known. */
const FAILED_PAUSE_MS = 2_000;

/**
 * Signatures that are accepted: asymmetric ones only. A secret never comes from this address, so a token can not be signed with
 * a public key as its secret.
 */
export const PUBLIC_ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
];

/** Errors that say something about the token; all others are about the address of the keys. */
const OF_THE_TOKEN = [errors.JWKSNoMatchingKey, errors.JWKSMultipleMatchingKeys, errors.JOSENotSupported];

export interface PublicKeys {
  /** For jose. @throws AppError KEYS_UNAVAILABLE when no key was ever fetched; errors of jose about the token */
  readonly keyFor: JWTVerifyGetKey;
  /** Fetches ahead, so that the first request need not wait. Never rejects. */
  warm(): Promise<void>;
}

export function createPublicKeys(options: {
  readonly url: string;
  readonly log: Log;
  /** Milliseconds that never go back. */
  monotonic?(): number;
  readonly keepMs?: number;
  readonly coolDownMs?: number;
}): PublicKeys {
  const { url, log, monotonic = () => performance.now(), keepMs = KEEP_MS, coolDownMs = COOL_DOWN_MS } = options;
  const remote = createRemoteJWKSet(new URL(url), {
    cacheMaxAge: keepMs,
    cooldownDuration: coolDownMs,
    timeoutDuration: FETCH_WITHIN_MS,
  });
  let pausedUntilMs = Number.NEGATIVE_INFINITY;

  function failed(error: unknown): void {
    pausedUntilMs = monotonic() + FAILED_PAUSE_MS;
    log.warn({ fault: messageOf(error) }, 'the keys of HOMING_JWKS_URL could not be fetched');
  }

  const keyFor: JWTVerifyGetKey = async (header, token) => {
    if (monotonic() >= pausedUntilMs) {
      try {
        return await remote(header, token);
      } catch (error) {
        if (OF_THE_TOKEN.some((kind) => error instanceof kind)) throw error;
        failed(error);
      }
    }
    const known = remote.jwks();
    if (known !== undefined) return createLocalJWKSet(known)(header, token);
    throw new AppError('KEYS_UNAVAILABLE', 'the keys that tokens are checked with can not be had at present', {
      retryAfterMs: FAILED_PAUSE_MS,
    });
  };

  return {
    keyFor,
    warm: () => remote.reload().catch(failed),
  };
}
