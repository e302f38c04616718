/**
 * Where a worker puts its commands: the strongest containment that was seen to work on this host (CO4), never one that is only
 * believed to. The level is told to everyone; it is never lowered in silence.
 */
import { rm } from 'node:fs/promises';
import type { Log } from '../domain/ports.js';
import { SANDBOX_PROFILES, type SandboxProfile } from '../domain/sandbox.js';
import { AppError } from '../errors.js';
import { groupTree } from './containment-group.js';
import { createLifeline, type Lifeline } from './containment-lifeline.js';
import { probeKeeper, probeRoom } from './containment-probe.js';
import { makeRoom, type Room, type RoomRecipe } from './containment-room.js';
import { type Mark, ownMark, sweepLeftovers } from './containment-sweep.js';
import { findFirst, findTools, keeperFor, recipesFor, sandboxTools, type Tool, UNSHARE } from './containment-tools.js';
import { makeHostFolder } from './host-folder.js';
import { type ProcessTree, sendSignal } from './process-tree.js';
import { createRoomKeeper, type KeeperOptions } from './room-keeper.js';
import { createRoomStock, roomMaker } from './room-stock.js';
import type { RunAs } from './run-as.js';
import { type SandboxTools, sandboxRecipe } from './sandbox.js';
import type { Standby } from './standby.js';

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
  readonly without?: readonly Tool[];
  /** Where tools are looked for, beside the usual folders. */
  readonly path: string;
  /** The user that commands run as, where it is not the worker's. */
  readonly runAs?: RunAs | undefined;
  readonly log: Log;
}

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
  /** Makes the rooms in place of the recipe, where it was seen to work as well. */
  readonly keeper: KeeperOptions | undefined;
  readonly sandbox: SandboxTools | undefined;
  readonly setpriv: string | undefined;
}

/** By planting processes of its own, which are gone when it resolves. */
async function tryHost(options: Omit<ContainmentOptions, 'id'>): Promise<Tried> {
  const { log, floor } = options;
  const tools = await findTools(options.path, options.without ?? []);
  if (options.runAs !== undefined && tools.setpriv === undefined) {
    throw new AppError('INVALID_PARAMS', 'HOMING_RUN_AS: needs setpriv (of util-linux), which was not found');
  }
  const faults: string[] = [];
  const works = async (recipe: RoomRecipe): Promise<boolean> => {
    const fault = await probeRoom(recipe);
    if (fault !== undefined) faults.push(`${recipe.name}: ${fault}`);
    return fault === undefined;
  };
  const keeper = keeperFor(tools, options.runAs);
  const keeps = keeper === undefined ? undefined : probeKeeper(keeper);
  const first = await findFirst(recipesFor(tools), works);
  const keeperFault = await keeps;
  if (keeperFault !== undefined) log.debug({ fault: keeperFault }, 'rooms are made without a keeper');
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
  return {
    recipe: first,
    keeper: first?.name === UNSHARE && keeperFault === undefined ? keeper : undefined,
    sandbox: offersSandbox ? sandbox : undefined,
    setpriv: tools.setpriv,
  };
}

const factsOf = ({ recipe, keeper, sandbox }: Tried): ContainmentFacts => ({
  level: recipe === undefined ? 'group' : 'pidns',
  means: keeper !== undefined ? 'room keeper' : (recipe?.name ?? 'process group'),
  profiles: sandbox === undefined ? [] : SANDBOX_PROFILES,
});

interface Found extends Tried {
  readonly mark: Mark;
  readonly log: Log;
  readonly runAs: RunAs | undefined;
}

async function assemble(found: Found): Promise<Containment> {
  const { mark, log, recipe, keeper, sandbox, setpriv, runAs } = found;
  const env = { [mark.name]: mark.value };
  const lifeline = recipe === undefined ? createLifeline(`${mark.name}=${mark.value}`, log) : undefined;
  // Names in it mean something only to who was told them; each is in a folder of its own.
  const inputs = await makeHostFolder('inputs', 0o711);
  const recipeOf = (profile: SandboxProfile, cwd: string, of: SandboxTools) =>
    sandboxRecipe(profile, { cwd, visible: [inputs] }, of, runAs?.options);
  // After everything that needs the worker's own rights.
  const asUser = runAs === undefined || setpriv === undefined ? [] : [setpriv, ...runAs.options, '--'];
  const kept = keeper === undefined ? undefined : createRoomKeeper({ ...keeper, env });
  const rooms = recipe === undefined ? undefined : createRoomStock(roomMaker(recipe, env, kept, log), log);
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
      kept?.close();
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
  adopt: (pid) =>
    pid === standby?.pid ? { leader: pid, tree: room.tree() } : { leader: room.leaderOf(pid), tree: room.tree(pid) },
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
