/**
 * How often something may happen, as a port: requests of a principal or a tenant, failed attempts from an address or with a
 * token. Counted over all nodes while Redis answers, and at each node by itself otherwise.
 */

/** What is counted. Each has a limit and a window, or none. */
export const RATES = {
  /** Commands that a tenant submits. */
  tenantRuns: { windowMs: 1_000 },
  /** Commands that a principal submits, writes to their stdin, and kills. */
  runs: { windowMs: 1_000 },
  writes: { windowMs: 1_000 },
  kills: { windowMs: 1_000 },
  /** Tokens and resumes that failed, from one address and with one token. */
  addressFailures: { windowMs: 60_000 },
  tokenFailures: { windowMs: 60_000 },
} as const satisfies Readonly<Record<string, { readonly windowMs: number }>>;

export type RateName = keyof typeof RATES;

/** Most in a window; absent or 0: no limit. */
export type RateLimits = Readonly<Partial<Record<RateName, number>>>;

export interface Rates {
  readonly limits: RateLimits;
  /**
   * Counts one. Resolves to 0 when it fits, else to the milliseconds until it may be tried again. Never rejects.
   * @param key whose; of any length and content
   */
  take(name: RateName, key: string): Promise<number>;
}

/** Where nothing is limited. */
export const UNLIMITED: Rates = { limits: {}, take: async () => 0 };

/** A key of parts that can not be mistaken for other parts. */
export const rateKey = (...parts: readonly string[]): string => parts.map((part) => `${part.length}:${part}`).join('');
