/**
 * Containment `pidns`: a command runs in a room, a pid namespace whose first process the kernel kills when the worker
 * dies, however it dies, and all others with it.
 *
 * - The room is there first: its init reaps orphans and does nothing else. The command is not the init, so that signals
 *   mean in it what they mean elsewhere.
 * - A command enters through `nsenter`, which stays outside, waits, and ends exactly as the command did: a shell or bwrap in its place
 *   could only say 137 for both `exit 137` and SIGKILL. `setsid` keeps signals to the command's group away from it.
 * - Killing the init kills the room; its end is the proof that all are gone.
 *
 * Measured: a room takes 3 to 6 ms to be made, so some are made ahead; entering takes about 3 ms more than a plain spawn.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { argumentsOf, childrenOf, readProcess } from './process-table.js';
import { type Member, type ProcessTree, sendSignal } from './process-tree.js';

/** What a kind of room is made with, and how one gets in. Absolute paths. */
export interface RoomRecipe {
  readonly name: string;
  /** Everything before the init's own arguments. */
  readonly make: readonly string[];
  /** `nsenter` and its options, but for the target. */
  readonly enter: readonly string[];
}

export interface Room {
  /** To be put before the arguments of what shall run in it. */
  readonly enter: readonly string[];
  /** Resolves when everything in it is gone. */
  readonly gone: Promise<void>;
  /** Of all in it; of what was started with `enter` by the pid of its outermost process, which is none of them. */
  tree(entered?: number): ProcessTree;
  /** The command's own pid on the host; that of the outermost process when it has ended already. */
  leaderOf(entered: number): number;
  /** Kills everything in it. Idempotent. */
  close(): void;
  readonly pids: { readonly outermost: number; readonly init: number };
}

export interface RoomOptions {
  /** What the helpers see beside PATH; never the command's. */
  readonly env?: Readonly<Record<string, string>>;
  /** A program that shall be the room's parent in the worker's place: it starts its arguments as a child, with its stdin, and waits. */
  readonly parent?: readonly string[];
  /** The end of this ends the room, in place of the end of the worker. */
  readonly lifelineFd?: number;
}

export const SHELL = '/bin/sh';
const READY_WITHIN_MS = 5_000;
const KILLED_WITHIN_MS = 3_000;
/**
 * The init waits for a child that waits for the end of a pipe from the worker, and so reaps whatever else is handed to it.
 * The pipe ends the room of a worker that died before the kernel was told to do that (a few ms, longer on a busy host).
 * A command may kill that child, with all others that it can; then there is another.
 */
const INIT =
  'exec 5<&0 </dev/null; echo ready; exec >/dev/null 2>&1; while :; do (read -r _ <&5; exit 0) & wait "$!" && exit; done';
const HELPER_PATH = '/usr/sbin:/usr/bin:/sbin:/bin';
const MAX_WORDS = 500;

/** @throws Error with the helpers' own words */
export async function makeRoom(
  recipe: RoomRecipe,
  { env = {}, parent = [], lifelineFd }: RoomOptions = {},
): Promise<Room> {
  const argv = [...parent, ...recipe.make, SHELL, '-c', INIT];
  const child = spawn(argv[0] as string, argv.slice(1), {
    stdio: [lifelineFd ?? 'pipe', 'pipe', 'pipe'],
    env: { ...env, PATH: HELPER_PATH },
    cwd: '/',
    // Ctrl-C at the worker's terminal is the worker's business alone.
    detached: true,
  });
  child.stdin?.on('error', () => {}); // Its end is told by `exit`.
  const gone = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', () => resolve());
  });
  try {
    await ready(child);
    const outermost = child.pid as number;
    const maker = parent.length === 0 ? outermost : childrenOf(outermost)[0];
    const init = maker === undefined ? undefined : childrenOf(maker)[0];
    if (init === undefined) throw new Error('this host does not tell the children of a process');
    return openedRoom(recipe, { outermost, init }, gone);
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  }
}

/** @param gone its init's parent has told of its end */
export function openedRoom(recipe: Pick<RoomRecipe, 'enter'>, pids: Room['pids'], gone: Promise<void>): Room {
  const { init } = pids;
  const startTicks = readProcess(init)?.startTicks;
  let over = false;
  void gone.then(() => {
    over = true;
  });
  const close = () => {
    // Told of late, and the pid may be another's.
    if (!over && readProcess(init)?.startTicks === startTicks) sendSignal(init, 'SIGKILL');
  };
  const [nsenter = '', ...options] = recipe.enter;
  return {
    enter: [nsenter, '--target', String(init), ...options],
    gone,
    close,
    pids,
    leaderOf: (entered) => childrenOf(entered)[0] ?? entered,
    tree: (entered) => roomTree({ init, entered, gone, close }),
  };
}

interface Inside {
  readonly init: number;
  readonly entered: number | undefined;
  readonly gone: Promise<void>;
  readonly close: () => void;
}

function roomTree({ init, entered, gone, close }: Inside): ProcessTree {
  /** Without the room's own: the init, the one it waits for, and the one that waits outside. */
  function living(): Member[] {
    const found: Member[] = [];
    const queue = [
      ...(entered === undefined ? [] : childrenOf(entered)),
      ...childrenOf(init).filter((pid) => !argumentsOf(pid).includes(INIT)),
    ];
    const seen = new Set<number>();
    for (let pid = queue.pop(); pid !== undefined; pid = queue.pop()) {
      if (seen.has(pid)) continue;
      seen.add(pid);
      const entry = readProcess(pid);
      if (entry !== undefined && !entry.zombie) found.push(entry);
      queue.push(...childrenOf(pid));
    }
    return found;
  }

  /** It stops when the command stops, but would not go on when the command does, and then not tell its end. */
  const wake = () => {
    if (entered !== undefined && readProcess(entered)?.parent === process.pid) sendSignal(entered, 'SIGCONT');
  };

  return {
    async signal(name) {
      for (const { pid } of living()) sendSignal(pid, name);
      if (name === 'SIGCONT') wake();
    },
    async members() {
      const found = living();
      // The kernel may leave someone out of a list of children that changes while it is read.
      return found.length > 0 ? found : living();
    },
    async kill() {
      close();
      wake();
      const limit = new AbortController();
      const late = sleep(KILLED_WITHIN_MS, 'late' as const, { signal: limit.signal });
      const end = await Promise.race([gone, late]).finally(() => limit.abort());
      return end === 'late' ? living() : [];
    },
    tick() {
      if (entered === undefined || readProcess(entered)?.stopped !== true) return;
      const leader = childrenOf(entered)[0];
      if (leader === undefined || readProcess(leader)?.stopped !== true) wake();
    },
  };
}

async function ready(child: ChildProcess): Promise<void> {
  const { stdout, stderr } = child;
  let words = '';
  stderr?.on('data', (data: Buffer) => {
    if (words.length < MAX_WORDS) words += data;
  });
  const limit = new AbortController();
  try {
    await Promise.race([
      new Promise<void>((resolve, reject) => {
        stdout?.once('data', () => resolve());
        child.once('error', reject);
        child.once('close', () => reject(new Error(words.trim() || 'it ended at once')));
      }),
      sleep(READY_WITHIN_MS, undefined, { signal: limit.signal }).then(() => {
        throw new Error('it was not ready in time');
      }),
    ]);
  } finally {
    limit.abort();
  }
}
