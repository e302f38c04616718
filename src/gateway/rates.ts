/** Limits on how often a principal, or a whole tenant, may ask for something that costs others. */
import { type RateName, type Rates, rateKey } from '../domain/rates.js';
import { AppError } from '../errors.js';
import type { Claims } from '../protocol/token.js';

const WHAT = {
  runs: 'commands submitted',
  writes: 'writes to stdin',
  kills: 'kills',
  tenantRuns: 'commands submitted',
} as const satisfies Partial<Record<RateName, string>>;

const refused = ({ limits }: Rates, name: keyof typeof WHAT, retryAfterMs: number) =>
  new AppError(
    'RATE_LIMITED',
    `at most ${limits[name]} ${WHAT[name]} a second by one ${name === 'tenantRuns' ? 'tenant' : 'principal'}`,
    { retryAfterMs },
  );

/** @throws AppError RATE_LIMITED with `retryAfterMs` */
export async function requireRate(
  rates: Rates,
  { tenant, principal }: Pick<Claims, 'tenant' | 'principal'>,
  name: 'runs' | 'writes' | 'kills',
): Promise<void> {
  const waitMs = await rates.take(name, rateKey(tenant, principal));
  if (waitMs > 0) throw refused(rates, name, waitMs);
  if (name !== 'runs') return;
  const tenantWaitMs = await rates.take('tenantRuns', tenant);
  if (tenantWaitMs > 0) throw refused(rates, 'tenantRuns', tenantWaitMs);
}
