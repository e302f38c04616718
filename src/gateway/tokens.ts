/**
 * Signs and checks tokens: HS256 with a secret, or the signature of a public key. Each kind of key has its own fixed algorithms;
 * what a token's header asks for only chooses among these.
 */
import { errors, type JWTPayload, type JWTVerifyOptions, jwtVerify, SignJWT } from 'jose';
import { AppError } from '../errors.js';
import { ANONYMOUS, type Claims, parseClaims } from '../protocol/token.js';
import { PUBLIC_ALGORITHMS, type PublicKeys } from './public-keys.js';

/** Clocks of an issuer and a node may differ by this. */
const CLOCK_TOLERANCE_SECONDS = 5;

const keyOf = (secret: string) => new TextEncoder().encode(secret);

export interface TokenRequest {
  readonly sub: string;
  readonly tenant?: string | undefined;
  readonly conversations?: readonly string[] | undefined;
  /** Separated by spaces. */
  readonly scope: string;
  readonly pools?: readonly string[] | undefined;
  readonly ttlMs: number;
  readonly issuer?: string | undefined;
  readonly audience?: string | undefined;
}

/** A token that a node with the same secret accepts until `ttlMs` from `nowMs`. */
export function signToken(secret: string, request: TokenRequest, nowMs: number): Promise<string> {
  const { sub, tenant, conversations, scope, pools, ttlMs, issuer, audience } = request;
  const claims = {
    ...(tenant === undefined ? {} : { tenant }),
    ...(conversations === undefined || conversations.length === 0 ? {} : { conversations }),
    ...(pools === undefined || pools.length === 0 ? {} : { pools }),
    scope,
  };
  const issuedAt = Math.floor(nowMs / 1_000);
  const token = new SignJWT(claims)
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setSubject(sub)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + Math.ceil(ttlMs / 1_000));
  if (issuer !== undefined) token.setIssuer(issuer);
  if (audience !== undefined) token.setAudience(audience);
  return token.sign(keyOf(secret));
}

export interface TokenVerifier {
  /**
   * @param token absent only where no token is asked for
   * @throws AppError UNAUTHENTICATED, TOKEN_EXPIRED, KEYS_UNAVAILABLE
   */
  verify(token: string | undefined): Promise<Claims>;
  /** No token settings: everybody on this machine is the principal `local`. */
  readonly anonymous: boolean;
}

export interface TokenVerifierOptions {
  /** The present secret first, then those still accepted. */
  readonly secrets: readonly string[];
  readonly publicKeys?: Pick<PublicKeys, 'keyFor'> | undefined;
  readonly issuer?: string | undefined;
  readonly audience?: string | undefined;
  now(): number;
}

export function createTokenVerifier(options: TokenVerifierOptions): TokenVerifier {
  const { secrets, publicKeys, issuer, audience, now } = options;
  const refused = () => new AppError('UNAUTHENTICATED', 'the token is missing or not valid here');
  const demands = (algorithms: string[]): JWTVerifyOptions => ({
    algorithms,
    clockTolerance: CLOCK_TOLERANCE_SECONDS,
    currentDate: new Date(now()),
    requiredClaims: ['exp', 'sub'],
    ...(issuer === undefined ? {} : { issuer }),
    ...(audience === undefined ? {} : { audience }),
  });
  /** Every way to check a signature; the first that holds decides. */
  const ways: ((token: string) => Promise<{ payload: JWTPayload }>)[] = secrets.map((secret) => {
    const key = keyOf(secret);
    return (token) => jwtVerify(token, key, demands(['HS256']));
  });
  if (publicKeys !== undefined) {
    ways.push((token) => jwtVerify(token, publicKeys.keyFor, demands(PUBLIC_ALGORITHMS)));
  }

  async function verify(token: string | undefined): Promise<Claims> {
    if (ways.length === 0) return ANONYMOUS;
    if (token === undefined) throw refused();
    for (const way of ways) {
      try {
        const { payload } = await way(token);
        const claims = parseClaims(payload);
        if (claims === undefined) throw refused();
        return claims;
      } catch (error) {
        if (error instanceof AppError) throw error;
        // Only a token whose signature held is told that it is merely too old.
        if (error instanceof errors.JWTExpired) throw new AppError('TOKEN_EXPIRED', 'the token has expired');
        // Signed with another key, or not a token: the next way decides, and in the end it is refused.
      }
    }
    throw refused();
  }

  return { verify, anonymous: ways.length === 0 };
}

/** The token of an `Authorization: Bearer …` header. */
export function bearerToken(header: string | undefined): string | undefined {
  return header === undefined ? undefined : /^Bearer +([^\s]+)\s*$/i.exec(header)?.[1];
}
