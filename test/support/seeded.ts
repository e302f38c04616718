/** Chance that can be had again: the same seed gives the same choices in the same order. */

export interface Seeded {
  /** 0 ≤ n < 1. */
  random(): number;
  /** A whole number, both ends included. */
  between(low: number, high: number): number;
  chance(probability: number): boolean;
  pick<T>(from: readonly T[]): T;
  /** One of the names, each as often as its weight says. */
  weighted<Name extends string>(weights: Readonly<Record<Name, number>>): Name;
  /** A source of its own for one part, so that what one part draws does not shift what another gets. */
  fork(name: string): Seeded;
}

export function createSeeded(seed: number): Seeded {
  // mulberry32: 32 bits of state are enough to repeat a run, and no more is asked of it.
  let state = seed >>> 0;
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const seeded: Seeded = {
    random,
    between: (low, high) => low + Math.floor(random() * (high - low + 1)),
    chance: (probability) => random() < probability,
    pick<T>(from: readonly T[]): T {
      if (from.length === 0) throw new Error('there is nothing to pick from');
      return from[Math.floor(random() * from.length)] as T;
    },
    weighted<Name extends string>(weights: Readonly<Record<Name, number>>): Name {
      const names = Object.keys(weights) as Name[];
      let left = random() * names.reduce((sum, name) => sum + weights[name], 0);
      for (const name of names) {
        left -= weights[name];
        if (left < 0) return name;
      }
      return names.at(-1) as Name;
    },
    fork(name) {
      let hash = seed >>> 0;
      for (const char of name) hash = Math.imul(hash ^ (char.codePointAt(0) ?? 0), 0x01000193) >>> 0;
      return createSeeded(hash);
    },
  };
  return seeded;
}
