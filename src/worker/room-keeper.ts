/**
 * Makes rooms with a shell in each (see `room-keeper.pl`), one process for all of a worker's. It is started when the first
 * room is wished for; one that died has taken its rooms with it, and the next wish starts another.
 *
 * Measured, of the processor, on a host where starting a program takes 3 ms: a room with its command 17 ms, where tools take 35
 * and two forks of the worker 17 more.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { openedRoom, type Room, type RoomRecipe } from './containment-room.js';
import type { Pipe } from './pipes.js';
import { childrenOf, readProcess } from './process-table.js';
import { sendSignal } from './process-tree.js';
import { openStandby, type Standby } from './standby.js';

export interface KeptRoom {
  readonly room: Room;
  readonly standby: Standby;
}

export interface RoomKeeper {
  /** One after the other. @throws Error with the words of the keeper, or of the system */
  make(): Promise<KeptRoom>;
  readonly closed: boolean;
  /** Ends all its rooms. Idempotent. */
  close(): void;
}

export interface KeeperOptions {
  /** Absolute. */
  readonly perl: string;
  /** How one gets into its rooms from outside. */
  readonly enter: RoomRecipe['enter'];
  /** Whether a room needs a user namespace: for who is not root. */
  readonly userNamespace: boolean;
  /** What shall stand in each. Absolute, a shell that reads its stdin at the end of it. */
  readonly shell: readonly string[];
  /** What the keeper sees beside PATH; never the command's. */
  readonly env?: Readonly<Record<string, string>>;
  /** As in `RoomOptions`. */
  readonly parent?: readonly string[];
  /** Its stdin, in place of a pipe that ends with `parent`. */
  readonly stdin?: Pipe;
}

const PROGRAM = fileURLToPath(new URL('./room-keeper.pl', import.meta.url));
const MADE_WITHIN_MS = 5_000;
const LOOK_EVERY_MS = 5;
const MAX_WORDS = 500;

export function createRoomKeeper(options: KeeperOptions): RoomKeeper {
  let running: Running | undefined;
  let closed = false;
  return {
    async make() {
      if (closed) throw new Error('the keeper of rooms is closed');
      if (running?.over !== false) running = startKeeper(options);
      return running.make();
    },
    get closed() {
      return closed;
    },
    close() {
      closed = true;
      running?.end();
    },
  };
}

interface Running {
  readonly over: boolean;
  make(): Promise<KeptRoom>;
  end(): void;
}

interface Wish {
  made(init: number): void;
  failed(error: Error): void;
}

function startKeeper({ perl, enter, userNamespace, shell, env = {}, parent = [], stdin }: KeeperOptions): Running {
  const argv = [...parent, perl, PROGRAM, userNamespace ? 'user' : '-', ...shell];
  const child = spawn(argv[0] as string, argv.slice(1), {
    stdio: [stdin?.readFd ?? 'pipe', 'pipe', 'pipe'],
    env: { ...env, PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
    cwd: '/',
    // Ctrl-C at the worker's terminal is the worker's business alone.
    detached: true,
  });
  const wishes: Wish[] = [];
  /** By pid of the init: what is to be called when all of the room is gone. */
  const rooms = new Map<number, () => void>();
  let over = false;
  let words = '';

  function hear(line: string): void {
    const [, word, rest = ''] = /^(\w+) (.*)$/.exec(line) ?? [];
    if (word === 'gone') {
      rooms.get(Number(rest))?.();
      rooms.delete(Number(rest));
    } else if (word === 'room') wishes.shift()?.made(Number(rest));
    else wishes.shift()?.failed(new Error(rest));
  }

  function end(error: Error): void {
    if (over) return;
    over = true;
    for (const wish of wishes.splice(0)) wish.failed(error);
    // Killed by the kernel, which nobody tells us.
    for (const [init, gone] of rooms) void untilGone(init).then(gone);
    rooms.clear();
  }

  const wish = () => void (stdin === undefined ? child.stdin?.write('\n') : writeSync(stdin.writeFd, '\n'));
  child.stdin?.on('error', () => {}); // Its end is told by `close`.
  child.stderr?.on('data', (data: Buffer) => {
    if (words.length < MAX_WORDS) words += data;
  });
  eachLine(child, hear);
  child.once('error', end);
  child.once('close', () => end(new Error(words.trim() || 'the keeper of rooms ended')));
  return {
    get over() {
      return over;
    },
    async make() {
      const init = await wished(wish, wishes, (late) => void sendSignal(late, 'SIGKILL'));
      const gone = new Promise<void>((resolve) => {
        if (over) void untilGone(init).then(resolve);
        else rooms.set(init, resolve);
      });
      const room = openedRoom({ enter }, { outermost: child.pid as number, init }, gone);
      try {
        const [shell] = childrenOf(init);
        if (shell === undefined) throw new Error('this host does not tell the children of a process');
        return { room, standby: openStandby(shell) };
      } catch (error) {
        room.close();
        throw error;
      }
    },
    end() {
      child.stdin?.destroy();
      child.kill('SIGKILL');
    },
  };
}

/** @param tooLate called with a room that came when nobody waited any more */
function wished(wish: () => void, wishes: Wish[], tooLate: (init: number) => void): Promise<number> {
  return new Promise((resolve, reject) => {
    let waits = true;
    const timer = setTimeout(() => {
      waits = false;
      reject(new Error('it was not ready in time'));
    }, MADE_WITHIN_MS);
    wishes.push({
      made(init) {
        clearTimeout(timer);
        if (waits) resolve(init);
        else tooLate(init);
      },
      failed(error) {
        clearTimeout(timer);
        reject(error);
      },
    });
    wish();
  });
}

function eachLine({ stdout }: ChildProcess, hear: (line: string) => void): void {
  let rest = '';
  stdout?.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    lines.forEach(hear);
  });
}

async function untilGone(pid: number): Promise<void> {
  const first = readProcess(pid);
  if (first === undefined) return;
  for (;;) {
    const now = readProcess(pid);
    if (now?.startTicks !== first.startTicks || now.zombie) return;
    await sleep(LOOK_EVERY_MS);
  }
}
