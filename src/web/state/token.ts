/** The token of a page: taken from the address once, and what may be read in it. Nothing here proves it; the node does. */

export interface FromFragment {
  readonly token?: string;
  readonly conversation?: string;
}

const CONVERSATION = /^[A-Za-z0-9._:-]{1,128}$/;

export const isConversationName = (name: string): boolean => CONVERSATION.test(name);

/** `#token=…&conversation=…`, as `homing up` prints it; both may be absent. */
export function readFragment(hash: string): FromFragment {
  const params = new URLSearchParams(hash.replace(/^#/, ''));
  const token = params.get('token')?.trim();
  const conversation = params.get('conversation')?.trim();
  return {
    ...(token ? { token } : {}),
    ...(conversation && isConversationName(conversation) ? { conversation } : {}),
  };
}

/** What a token says about itself. */
export interface TokenFacts {
  readonly principal: string;
  readonly expiresAtMs?: number;
  /** Patterns with an optional `*` at the end; absent: all. */
  readonly conversations?: readonly string[];
  readonly scopes: readonly string[];
  readonly pools: readonly string[];
}

/** Undefined for a text that is no JWT; it is shown to the node all the same. */
export function readToken(token: string): TokenFacts | undefined {
  try {
    const part = (token.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/');
    const bytes = Uint8Array.from(atob(part), (char) => char.charCodeAt(0));
    const claims = JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>;
    const texts = (value: unknown) =>
      Array.isArray(value) ? value.filter((item): item is string => typeof item === 'string') : undefined;
    const conversations = texts(claims.conversations);
    return {
      principal: typeof claims.sub === 'string' ? claims.sub : '',
      scopes: typeof claims.scope === 'string' ? claims.scope.split(/\s+/) : [],
      pools: texts(claims.pools) ?? ['default'],
      ...(typeof claims.exp === 'number' ? { expiresAtMs: claims.exp * 1_000 } : {}),
      ...(conversations === undefined ? {} : { conversations }),
    };
  } catch {
    return undefined;
  }
}

/** The conversation to begin with: the first that the token names in full, else `default` as the CLI has it. */
export const firstConversation = (facts: TokenFacts | undefined): string =>
  facts?.conversations?.find((name) => !name.includes('*')) ?? 'default';
