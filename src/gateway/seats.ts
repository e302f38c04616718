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

/** How many connections somebody has. Those whose seats count for the same hold the same one. */
interface Count {
  readonly key: string;
  connections: number;
}

class Counts {
  readonly #counts = new Map<string, Count>();

  /** @throws AppError LIMIT_EXCEEDED */
  add(key: string, limit: number, whose: string): Count {
    const count = this.#counts.get(key) ?? { key, connections: 0 };
    if (limit > 0 && count.connections >= limit) {
      const message = `at most ${limit} connections of ${whose} at a node`;
      throw new AppError('LIMIT_EXCEEDED', message, { retryAfterMs: RETRY_MS });
    }
    count.connections += 1;
    this.#counts.set(key, count);
    return count;
  }

  remove(count: Count | undefined): void {
    if (count === undefined) return;
    count.connections -= 1;
    if (count.connections === 0) this.#counts.delete(count.key);
  }
}

/** What the seats of a node have in common. */
interface House {
  readonly limits: SeatLimits;
  readonly counts: Counts;
  unopened: number;
}

class CountedSeat implements Seat {
  readonly #house: House;
  #ofAddress: Count | undefined;
  #ofTenant: Count | undefined;
  #ofPrincipal: Count | undefined;
  #unopened = true;

  constructor(house: House, address: string) {
    this.#house = house;
    this.#ofAddress = house.counts.add(`a${address}`, house.limits.perAddress, 'one address');
    house.unopened += 1;
  }

  take({ tenant, principal }: Pick<Claims, 'tenant' | 'principal'>): void {
    const { limits, counts } = this.#house;
    // An attempt to open before this one failed.
    this.#giveBack();
    const ofTenant = counts.add(`t${tenant}`, limits.perTenant, 'one tenant');
    try {
      const key = `p${tenant.length}:${tenant}${principal}`;
      this.#ofPrincipal = counts.add(key, limits.perPrincipal, 'one principal');
    } catch (error) {
      counts.remove(ofTenant);
      throw error;
    }
    this.#ofTenant = ofTenant;
    this.#settle();
  }

  #giveBack(): void {
    this.#house.counts.remove(this.#ofTenant);
    this.#house.counts.remove(this.#ofPrincipal);
    this.#ofTenant = undefined;
    this.#ofPrincipal = undefined;
  }

  #settle(): void {
    if (this.#unopened) this.#house.unopened -= 1;
    this.#unopened = false;
  }

  leave(): void {
    this.#settle();
    this.#giveBack();
    this.#house.counts.remove(this.#ofAddress);
    this.#ofAddress = undefined;
  }
}

export function createSeats(limits: SeatLimits): Seats {
  const house: House = { limits, counts: new Counts(), unopened: 0 };
  return {
    enter(address) {
      if (limits.unopened > 0 && house.unopened >= limits.unopened) {
        const message = 'too many connections wait for their session at this node';
        throw new AppError('LIMIT_EXCEEDED', message, { retryAfterMs: RETRY_MS });
      }
      return new CountedSeat(house, address);
    },
  };
}
