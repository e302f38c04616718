/**
 * How many connections this node holds: of an address, of a principal, of a tenant, and without a session yet. Counted here and
 * not in Redis, since what they protect is this process.
 */
import { AppError } from '../errors.js';
import type { Claims } from '../protocol/token.js';

export interface SeatLimits {
  /** 0: no limit. */
  readonly perAddress: number;
  readonly perPrincipal: number;
  readonly perTenant: number;
  /** Upgraded and without a session; each has 5 s for it. */
  readonly unopened: number;
}

/** One connection's place. */
export interface Seat {
  /** It holds a session of this principal from now on; the last call counts. @throws AppError LIMIT_EXCEEDED */
  take(claims: Pick<Claims, 'tenant' | 'principal'>): void;
  /** The connection is gone. Idempotent. */
  leave(): void;
}

export interface Seats {
  /** @throws AppError LIMIT_EXCEEDED */
  enter(address: string): Seat;
}

const RETRY_MS = 5_000;

export function createSeats(limits: SeatLimits): Seats {
  const counts = new Map<string, number>();
  let unopened = 0;

  function add(key: string, limit: number, whose: string): void {
    const count = counts.get(key) ?? 0;
    if (limit > 0 && count >= limit) {
      const message = `at most ${limit} connections of ${whose} at a node`;
      throw new AppError('LIMIT_EXCEEDED', message, { retryAfterMs: RETRY_MS });
    }
    counts.set(key, count + 1);
  }
  function remove(key: string): void {
    const left = (counts.get(key) ?? 1) - 1;
    if (left > 0) counts.set(key, left);
    else counts.delete(key);
  }

  return {
    enter(address) {
      if (limits.unopened > 0 && unopened >= limits.unopened) {
        const message = 'too many connections wait for their session at this node';
        throw new AppError('LIMIT_EXCEEDED', message, { retryAfterMs: RETRY_MS });
      }
      const held = [`a${address}`];
      add(`a${address}`, limits.perAddress, 'one address');
      unopened += 1;
      let waiting = true;
      const settle = () => {
        if (waiting) unopened -= 1;
        waiting = false;
      };
      return {
        take({ tenant, principal }) {
          // An attempt to open before this one failed.
          for (const key of held.splice(1)) remove(key);
          const ofTenant = `t${tenant}`;
          add(ofTenant, limits.perTenant, 'one tenant');
          const ofPrincipal = `p${tenant.length}:${tenant}${principal}`;
          try {
            add(ofPrincipal, limits.perPrincipal, 'one principal');
          } catch (error) {
            remove(ofTenant);
            throw error;
          }
          held.push(ofTenant, ofPrincipal);
          settle();
        },
        leave() {
          settle();
          for (const key of held.splice(0)) remove(key);
        },
      };
    },
  };
}
