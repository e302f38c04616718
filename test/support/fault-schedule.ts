/**
 * Which faults befall what, and when: drawn from a seed before anything runs, so that a seed means the same schedule
 * every time. What the processes make of it is up to the machine; the schedule is what can be repeated.
 */
import type { Seeded } from './seeded.js';

/** What can break. Links run between one process and Redis, or between one tab and whichever node it is at. */
export type FaultTarget =
  | { readonly part: 'node link' | 'worker link' | 'tab link' | 'node' | 'worker'; readonly index: number }
  | { readonly part: 'redis' };

/**
 * - `cut`: every connection of the link is destroyed; new ones are taken.
 * - `delay`: each piece waits a while.
 * - `freeze`: connections are taken, nothing passes: half open.
 * - `swallow`: one request is carried out and its answer lost, with the connection.
 * - `kill`, `stop`: SIGKILL and a start again; SIGSTOP and SIGCONT. `end`: SIGTERM and a start again.
 */
export type FaultKind = 'cut' | 'delay' | 'freeze' | 'swallow' | 'kill' | 'stop' | 'end';

export interface Fault {
  readonly kind: FaultKind;
  readonly target: FaultTarget;
  /** From the start of the schedule. */
  readonly atMs: number;
  /** How long it lasts; of a process that is killed, how long it stays away. */
  readonly forMs: number;
  /** Of `delay`. */
  readonly delayMs: number;
}

export interface World {
  readonly nodes: number;
  readonly workers: number;
  readonly tabs: number;
}

const LINK_KINDS = { cut: 3, delay: 2, freeze: 3, swallow: 4 };
const PROCESS_KINDS = { kill: 4, stop: 3, end: 1 };

/** Quiet after a fault of a calm phase: what was hit recovers, and the time it took can be told. */
const CALM_MS = [1_500, 3_500] as const;
const STORM_MS = [100, 700] as const;
const LONGEST_MS = { cut: 0, delay: 2_500, freeze: 6_000, swallow: 1_000, kill: 1_500, stop: 6_000, end: 1_500 };
const SHORTEST_MS = 200;

export const nameOf = ({ part, ...rest }: FaultTarget): string => ('index' in rest ? `${part} ${rest.index}` : part);
/** Figures are kept by this: what happened to which sort of part. */
export const sortOf = ({ kind, target }: Fault): string => `${kind} ${target.part}`;

export function createSchedule(seeded: Seeded, forMs: number, world: World): Fault[] {
  const faults: Fault[] = [];
  /** When each target is whole again; nothing breaks twice at a time. */
  const busyUntilMs = new Map<string, number>();
  let storm = seeded.chance(0.5);
  let phaseEndsMs = forMs * 0.3;
  for (let atMs = 500; atMs < forMs; ) {
    if (atMs > phaseEndsMs) {
      storm = !storm;
      phaseEndsMs = atMs + seeded.between(5_000, 20_000);
    }
    const target = drawTarget(seeded, world);
    const isLink = target.part.endsWith('link');
    const kind: FaultKind = isLink ? seeded.weighted(LINK_KINDS) : seeded.weighted(PROCESS_KINDS);
    // Short ones are as instructive as long ones, and more of them fit: the square prefers them.
    const spanMs = LONGEST_MS[kind] * seeded.random() ** 2;
    const forThisMs = LONGEST_MS[kind] === 0 ? 0 : Math.round(SHORTEST_MS + spanMs);
    const delayMs = seeded.between(20, 400);
    const name = nameOf(target);
    if ((busyUntilMs.get(name) ?? 0) <= atMs) {
      faults.push({ kind, target, atMs, forMs: forThisMs, delayMs });
      // A process that starts again needs a moment before it is worth breaking.
      busyUntilMs.set(name, atMs + forThisMs + (isLink ? 500 : 3_000));
    }
    const [low, high] = storm ? STORM_MS : CALM_MS;
    atMs += seeded.between(low, high) + (storm ? 0 : forThisMs);
  }
  return faults;
}

function drawTarget(seeded: Seeded, { nodes, workers, tabs }: World): FaultTarget {
  const part = seeded.weighted({
    'node link': 4,
    'worker link': 4,
    'tab link': 5,
    node: 2,
    worker: 1.5,
    redis: 1.5,
  });
  if (part === 'redis') return { part };
  const count = part === 'tab link' ? tabs : part.startsWith('node') ? nodes : workers;
  return { part, index: seeded.between(0, count - 1) };
}
