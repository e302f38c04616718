/** What a token says, and the pure rules of scopes and conversations (PROTOCOL section 2). Signatures are checked elsewhere. */
import { z } from 'zod';
import type { CommandId } from './ids.js';

export const SCOPES = ['read', 'run', 'kill', 'delegate', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

/** `*` may stand only at the end: it is a prefix, not a glob. */
const conversationPattern = z
  .string()
  .regex(/^[A-Za-z0-9._:-]{0,128}\*?$/, 'must be a conversation, with at most one * at its end');

/** The payload of a token. Claims nobody asked for are ignored. */
export const tokenPayload = z.object({
  sub: z.string().min(1).max(256),
  tenant: z.string().min(1).max(128).default('default'),
  conversations: z.array(conversationPattern).max(1_000).optional(),
  scope: z.string().max(1_000).default(''),
  pools: z.array(z.string().min(1).max(64)).max(1_000).default(['default']),
  /** Seconds since 1970, as in every JWT. */
  exp: z.number().positive(),
});

/** Who asks and what they may do. */
export interface Claims {
  /** The token is a running command's own: it reaches what that command started, and nothing else. */
  readonly insideCommandId?: CommandId;
  readonly principal: string;
  readonly tenant: string;
  /** Absent: every conversation of the tenant. */
  readonly conversations?: readonly string[];
  readonly scopes: ReadonlySet<Scope>;
  readonly pools: readonly string[];
  /** Milliseconds since 1970; Infinity for the anonymous principal of a machine without token settings. */
  readonly expiresAtMs: number;
  /** Told the principal when a delegate uses its rights over something that is another's. */
  actsFor?(principal: string): void;
}

const isScope = (word: string): word is Scope => (SCOPES as readonly string[]).includes(word);

/** Splits at spaces and commas, and keeps what is known. */
export const parseScopes = (scope: string): ReadonlySet<Scope> => new Set(scope.split(/[\s,]+/).filter(isScope));

/** @returns undefined when the payload is not one of ours: a missing `sub` or `exp`, or a wrong type */
export function parseClaims(payload: unknown): Claims | undefined {
  const parsed = tokenPayload.safeParse(payload);
  if (!parsed.success) return undefined;
  const { sub, tenant, conversations, scope, pools, exp } = parsed.data;
  return {
    principal: sub,
    tenant,
    ...(conversations === undefined ? {} : { conversations }),
    scopes: parseScopes(scope),
    pools,
    expiresAtMs: exp * 1_000,
  };
}

/** Who a request comes from where no token settings exist and only loopback is listened on. */
export const ANONYMOUS: Claims = {
  principal: 'local',
  tenant: 'default',
  scopes: new Set<Scope>(['read', 'run', 'kill']),
  pools: ['default'],
  expiresAtMs: Number.POSITIVE_INFINITY,
};

export const hasScope = (claims: Claims, scope: Scope): boolean => claims.scopes.has(scope);

/** Whether the token reaches this conversation of its own tenant. */
export function coversConversation(claims: Claims, conversation: string): boolean {
  if (claims.conversations === undefined) return true;
  return claims.conversations.some((pattern) =>
    pattern.endsWith('*') ? conversation.startsWith(pattern.slice(0, -1)) : conversation === pattern,
  );
}

/** Whether a thing of this tenant, principal and conversation exists for the holder of the token (IS1). */
export function mayKnow(
  claims: Claims,
  thing: { readonly tenant: string; readonly principal: string; readonly conversation: string },
): boolean {
  return (
    thing.tenant === claims.tenant &&
    thing.principal === claims.principal &&
    coversConversation(claims, thing.conversation)
  );
}

/**
 * Whether the holder may read, follow and end it: its own, or, with the scope `delegate`, what anybody has in the
 * conversations that the token covers. A delegate owns nothing of it: it never receives as owner, acknowledges or adopts.
 */
export function mayRead(
  claims: Claims,
  thing: { readonly tenant: string; readonly principal: string; readonly conversation: string },
): boolean {
  if (mayKnow(claims, thing)) return true;
  return hasScope(claims, 'delegate') && mayKnow(claims, { ...thing, principal: claims.principal });
}
