/** Tokens made from PROTOCOL section 2 with nothing but a hash, so that they prove the product's own verification. */
import { createHmac } from 'node:crypto';

export interface Claims {
  readonly sub: string;
  readonly tenant?: string;
  readonly conversations?: readonly string[];
  readonly scope?: string;
  readonly pools?: readonly string[];
  /** Seconds from now; negative for one that is over. */
  readonly ttlSeconds?: number;
}

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** A JWT signed with HS256. */
export function makeToken(secret: string, claims: Claims): string {
  const { ttlSeconds = 3600, scope = 'read run kill', ...rest } = claims;
  const nowSeconds = Math.floor(Date.now() / 1000);
  const head = part({ alg: 'HS256', typ: 'JWT' });
  const body = part({ ...rest, scope, iat: nowSeconds - 1, exp: nowSeconds + ttlSeconds });
  const signature = createHmac('sha256', secret).update(`${head}.${body}`).digest('base64url');
  return `${head}.${body}.${signature}`;
}

/** The same claims without a signature: `alg: none`, which no verifier may accept. */
export function unsignedToken(claims: Claims): string {
  const exp = Math.floor(Date.now() / 1000) + 3600;
  return `${part({ alg: 'none', typ: 'JWT' })}.${part({ scope: 'read run kill', ...claims, exp })}.`;
}
