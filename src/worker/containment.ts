/**
 * Where a worker puts its commands: the strongest containment that was seen to work on this host (CO4), never one that is only
 * believed to. The level is told to everyone; it is never lowered in silence.
 */
import { access, constants, rm } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import type { Log } from '../domain/ports.js';
import { SANDBOX_PROFILES, type SandboxProfile } from '../domain/sandbox.js';
import { AppError, messageOf } from '../errors.js';
import { groupTree } from './containment-group.js';
import { createLifeline, type Lifeline } from './containment-lifeline.js';
import { probeRoom } from './containment-probe.js';
import { makeRoom, type Room, type RoomRecipe } from './containment-room.js';
import { type Mark, ownMark, sweepLeftovers } from './containment-sweep.js';
import { makeHostFolder } from './host-folder.js';
import { createPipePool } from './pipes.js';
import { type ProcessTree, sendSignal } from './process-tree.js';
import type { RunAs } from './run-as.js';
import { type SandboxTools, sandboxRecipe } from './sandbox.js';
import { type Standby, standIn } from './standby.js';

export type ContainmentLevel = 'pidns' | 'group';

/** Where one command goes. */
export interface Place {
  /** To be put before its arguments; what is spawned must lead a group of its own. */
  readonly enter: readonly string[];
  /** A shell that stands in it already; whoever uses it takes it, and `leave` lets go of one that was not taken. */
  readonly standby?: Standby;
  /** Where a stdin is to be given by name (see `process-input.ts`); elsewhere it is inherited. */
  readonly inputFolder?: string;
  /** Takes what was spawned there under control. */
  adopt(pid: number, commandMark: string): { readonly leader: number; readonly tree: ProcessTree };
  /** When the command is over, or was not spawned. Idempotent. */
  leave(): void;
}

export interface Containment {
  readonly level: ContainmentLevel;
  /** How it is done, for people. */
  readonly means: string;
  readonly profiles: readonly SandboxProfile[];
  /** In the environment of every command. */
  readonly mark: Mark;
  /** @param cwd absolute @throws Error when the host can not make the place */
  place(profile: SandboxProfile | undefined, cwd: string): Promise<Place>;
  /** Idempotent. */
  close(): Promise<void>;
}

export interface ContainmentOptions {
  /** Unique for this incarnation of the worker. */
  readonly id: string;
  /** Weakest level that will do. */
  readonly floor: 'auto' | ContainmentLevel;
  /** Ways that are not to be tried, for tests and for hosts where one misbehaves. */
  readonly without?: readonly ('unshare' | 'bwrap')[];
  /** Where tools are looked for, beside the usual folders. */
  readonly path: string;
  /** The user that commands run as, where it is not the worker's. */
  readonly runAs?: RunAs | undefined;
  readonly log: Log;
}

/** Made ahead, so that a command does not wait for its room. */
const WARM_ROOMS = 2;
const REFILL_AFTER_MS = 15;
const USUAL_FOLDERS = '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin';

/** Probes the host and ends what dead workers left on it. @throws AppError CONTAINMENT_UNAVAILABLE with a sentence */
export async function createContainment(options: ContainmentOptions): Promise<Containment> {
  const { log, runAs } = options;
  const swept = await sweepLeftovers();
  if (swept > 0) log.warn({ processes: swept }, 'ended what dead workers had left on this host');
  const found = await tryHost(options);
  return assemble({ mark: ownMark(options.id), log, runAs, ...found });
}

export type ContainmentFacts = Pick<Containment, 'level' | 'means' | 'profiles'>;

/** What a worker would have here. Leaves the host as it was. @throws as `createContainment` */
export async function probeContainment(options: Omit<ContainmentOptions, 'id'>): Promise<ContainmentFacts> {
  return factsOf(await tryHost(options));
}

interface Tried {
  readonly recipe: RoomRecipe | undefined;
  readonly sandbox: SandboxTools | undefined;
  readonly setpriv: string | undefined;
}

/** By planting processes of its own, which are gone when it resolves. */
async function tryHost(options: Omit<ContainmentOptions, 'id'>): Promise<Tried> {
  const { log, floor } = options;
  const tools = await findTools(options);
  if (options.runAs !== undefined && tools.setpriv === undefined) {
    throw new AppError('INVALID_PARAMS', 'HOMING_RUN_AS: needs setpriv (of util-linux), which was not found');
  }
  const faults: string[] = [];
  const works = async (recipe: RoomRecipe): Promise<boolean> => {
    const fault = await probeRoom(recipe);
    if (fault !== undefined) faults.push(`${recipe.name}: ${fault}`);
    return fault === undefined;
  };
  const first = await findFirst(recipesFor(tools), works);
  if (first === undefined && floor === 'pidns') {
    const tried = faults.length > 0 ? faults.join('; ') : 'neither bwrap nor setpriv and unshare were found';
    throw new AppError(
      'CONTAINMENT_UNAVAILABLE',
      `HOMING_CONTAINMENT is pidns, which this host does not allow (${tried}). Allow user namespaces, run as root, or accept group.`,
    );
  }
  if (first === undefined && process.platform === 'linux') log.warn({ faults }, 'containment is only group');

  const sandbox = sandboxTools(tools);
  const offersSandbox =
    sandbox !== undefined && (await works(sandboxRecipe('readonly', { cwd: '/', visible: [] }, sandbox)));
  return { recipe: first, sandbox: offersSandbox ? sandbox : undefined, setpriv: tools.setpriv };
}

const factsOf = ({ recipe, sandbox }: Tried): ContainmentFacts => ({
  level: recipe === undefined ? 'group' : 'pidns',
  means: recipe?.name ?? 'process group',
  profiles: sandbox === undefined ? [] : SANDBOX_PROFILES,
});

interface Found extends Tried {
  readonly mark: Mark;
  readonly log: Log;
  readonly runAs: RunAs | undefined;
}

async function assemble(found: Found): Promise<Containment> {
  const { mark, log, recipe, sandbox, setpriv, runAs } = found;
  const env = { [mark.name]: mark.value };
  const lifeline = recipe === undefined ? createLifeline(`${mark.name}=${mark.value}`, log) : undefined;
  // Names in it mean something only to who was told them; each is in a folder of its own.
  const inputs = await makeHostFolder('inputs', 0o711);
  const recipeOf = (profile: SandboxProfile, cwd: string, of: SandboxTools) =>
    sandboxRecipe(profile, { cwd, visible: [inputs] }, of, runAs?.options);
  // After everything that needs the worker's own rights.
  const asUser = runAs === undefined || setpriv === undefined ? [] : [setpriv, ...runAs.options, '--'];
  const rooms = recipe === undefined ? undefined : createRooms(recipe, env, log, asUser.length === 0);
  return {
    ...factsOf(found),
    mark,
    async place(profile, cwd) {
      if (profile !== undefined) {
        if (sandbox === undefined) throw new Error('this host can not make a sandbox');
        return inRoom(await makeRoom(recipeOf(profile, cwd, sandbox), { env }), inputs);
      }
      if (rooms === undefined) return inGroup(asUser, lifeline);
      const { room, standby } = await rooms.take();
      return inRoom(room, inputs, asUser, standby);
    },
    async close() {
      rooms?.close();
      lifeline?.close();
      await rm(inputs, { recursive: true, force: true });
    },
  };
}

const inRoom = (
  room: Room,
  inputFolder: string,
  asUser: readonly string[] = [],
  standby: Standby | undefined = undefined,
): Place => ({
  enter: [...room.enter, ...asUser],
  ...(standby === undefined ? {} : { standby }),
  inputFolder,
  adopt: (pid) => ({ leader: room.leaderOf(pid), tree: room.tree(pid) }),
  leave() {
    room.close();
    standby?.close();
  },
});

function inGroup(enter: readonly string[], lifeline: Lifeline | undefined): Place {
  let group: number | undefined;
  return {
    enter,
    adopt(pid, commandMark) {
      group = pid;
      lifeline?.add(pid);
      return { leader: pid, tree: groupTree(pid, commandMark) };
    },
    leave() {
      if (group !== undefined && !sendSignal(-group, 0)) lifeline?.remove(group);
      group = undefined;
    },
  };
}

interface ReadyRoom {
  readonly room: Room;
  readonly standby?: Standby;
}

/** Rooms of one kind, some of them made ahead, with a shell in each where that is allowed. */
function createRooms(recipe: RoomRecipe, env: Readonly<Record<string, string>>, log: Log, withStandby: boolean) {
  const warm: ReadyRoom[] = [];
  const pipes = createPipePool();
  let making = 0;
  let closed = false;

  const end = ({ room, standby }: ReadyRoom): void => {
    room.close();
    standby?.close();
  };

  async function make(): Promise<ReadyRoom> {
    const room = await makeRoom(recipe, { env });
    if (!withStandby || closed) return { room };
    try {
      return { room, standby: await standIn(room.enter, pipes) };
    } catch (error) {
      log.debug({ error: messageOf(error) }, 'no shell stands ready in a room');
      return { room };
    }
  }

  function refill(): void {
    while (!closed && warm.length + making < WARM_ROOMS) {
      making += 1;
      make()
        .then(
          (ready) => {
            if (closed) end(ready);
            else warm.push(ready);
            void ready.room.gone.then(() => {
              const at = warm.indexOf(ready);
              if (at < 0) return;
              warm.splice(at, 1);
              end(ready);
            });
          },
          // The next command tries for itself, and tells.
          (error: unknown) => log.debug({ error: messageOf(error) }, 'no room made ahead'),
        )
        .finally(() => {
          making -= 1;
        });
    }
  }

  let timer: NodeJS.Timeout | undefined;
  /** Starting a process stops everything else for a few milliseconds: not now, while a command waits for its start. */
  function refillSoon(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      refill();
    }, REFILL_AFTER_MS);
    timer.unref();
  }

  refill();
  return {
    async take(): Promise<ReadyRoom> {
      const ready = warm.shift();
      refillSoon();
      return ready ?? { room: await makeRoom(recipe, { env }) };
    },
    close() {
      closed = true;
      clearTimeout(timer);
      for (const ready of warm.splice(0)) end(ready);
      pipes.close();
    },
  };
}

interface Tools extends Partial<Record<'bwrap' | 'nsenter' | 'setpriv' | 'setsid' | 'unshare', string>> {
  readonly root: boolean;
}

/** `setpriv` first: its rooms look like the host. In bwrap's nothing can gain rights, such as with sudo. */
function recipesFor({ bwrap, nsenter, setpriv, setsid, unshare, root }: Tools): RoomRecipe[] {
  if (nsenter === undefined || setsid === undefined) return [];
  const recipes: RoomRecipe[] = [];
  const enter = [nsenter, ...(root ? [] : ['--user', '--preserve-credentials']), '--pid', '--mount', '--', setsid];
  if (setpriv !== undefined && unshare !== undefined) {
    const user = root ? [] : ['--user', '--map-current-user'];
    recipes.push({
      name: 'setpriv and unshare',
      make: [setpriv, '--pdeathsig', 'KILL', unshare, ...user, '--pid', '--fork', '--kill-child', '--mount-proc'],
      enter,
    });
  }
  if (bwrap !== undefined) {
    const user = root ? [] : ['--unshare-user'];
    const mounts = ['--dev-bind', '/', '/', '--proc', '/proc', '--'];
    recipes.push({
      name: 'bwrap',
      make: [bwrap, '--die-with-parent', ...user, '--unshare-pid', '--as-pid-1', ...mounts],
      enter,
    });
  }
  return recipes;
}

function sandboxTools({ bwrap, nsenter, setpriv, setsid, root }: Tools): SandboxTools | undefined {
  if (bwrap === undefined || nsenter === undefined || setpriv === undefined || setsid === undefined) return undefined;
  return { bwrap, nsenter, setpriv, setsid, root };
}

async function findTools({ path, without = [] }: Omit<ContainmentOptions, 'id'>): Promise<Tools> {
  const root = process.getuid?.() === 0;
  if (process.platform !== 'linux') return { root };
  const folders = [...path.split(delimiter), ...USUAL_FOLDERS.split(':')].filter((folder) => folder.startsWith('/'));
  const find = async (name: string): Promise<string | undefined> =>
    findFirst(
      folders.map((folder) => join(folder, name)),
      isExecutable,
    );
  const found = await Promise.all(
    (['bwrap', 'nsenter', 'setpriv', 'setsid', 'unshare'] as const)
      .filter((name) => !(without as readonly string[]).includes(name))
      .map(async (name) => [name, await find(name)] as const),
  );
  return { root, ...Object.fromEntries(found.filter(([, at]) => at !== undefined)) };
}

const isExecutable = (path: string): Promise<boolean> =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  );

async function findFirst<T>(
  candidates: readonly T[],
  fits: (candidate: T) => Promise<boolean>,
): Promise<T | undefined> {
  for (const candidate of candidates) if (await fits(candidate)) return candidate;
  return undefined;
}
