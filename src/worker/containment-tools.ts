/** The tools of a host that rooms and sandboxes are made with, and how. */
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { type RoomRecipe, SHELL } from './containment-room.js';
import type { KeeperOptions } from './room-keeper.js';
import type { RunAs } from './run-as.js';
import type { SandboxTools } from './sandbox.js';

const USUAL_FOLDERS = '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin';
const TOOLS = ['bwrap', 'nsenter', 'perl', 'setpriv', 'setsid', 'unshare'] as const;
/** The recipe that is tried first. */
export const UNSHARE = 'setpriv and unshare';

export type Tool = (typeof TOOLS)[number];

/** Where each was found. */
export interface Tools extends Partial<Record<Tool, string>> {
  readonly root: boolean;
}

/** `setpriv` first: its rooms look like the host. In bwrap's nothing can gain rights, such as with sudo. */
export function recipesFor({ bwrap, nsenter, setpriv, setsid, unshare, root }: Tools): RoomRecipe[] {
  if (nsenter === undefined || setsid === undefined) return [];
  const recipes: RoomRecipe[] = [];
  const enter = enterBy(nsenter, setsid, root);
  if (setpriv !== undefined && unshare !== undefined) {
    const user = root ? [] : ['--user', '--map-current-user'];
    recipes.push({
      name: UNSHARE,
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

const enterBy = (nsenter: string, setsid: string, root: boolean): readonly string[] => [
  nsenter,
  ...(root ? [] : ['--user', '--preserve-credentials']),
  '--pid',
  '--mount',
  '--',
  setsid,
];

export function keeperFor(
  { perl, nsenter, setpriv, setsid, root }: Tools,
  runAs: RunAs | undefined,
): KeeperOptions | undefined {
  if (perl === undefined || nsenter === undefined || setsid === undefined) return undefined;
  const shell = runAs === undefined || setpriv === undefined ? [SHELL] : [setpriv, ...runAs.options, '--', SHELL];
  return { perl, enter: enterBy(nsenter, setsid, root), userNamespace: !root, shell };
}

export function sandboxTools({ bwrap, nsenter, setpriv, setsid, root }: Tools): SandboxTools | undefined {
  if (bwrap === undefined || nsenter === undefined || setpriv === undefined || setsid === undefined) return undefined;
  return { bwrap, nsenter, setpriv, setsid, root };
}

export async function findTools(path: string, without: readonly Tool[]): Promise<Tools> {
  const root = process.getuid?.() === 0;
  if (process.platform !== 'linux') return { root };
  const folders = [...path.split(delimiter), ...USUAL_FOLDERS.split(':')].filter((folder) => folder.startsWith('/'));
  const find = async (name: string): Promise<string | undefined> =>
    findFirst(
      folders.map((folder) => join(folder, name)),
      isExecutable,
    );
  const found = await Promise.all(
    TOOLS.filter((name) => !without.includes(name)).map(async (name) => [name, await find(name)] as const),
  );
  return { root, ...Object.fromEntries(found.filter(([, at]) => at !== undefined)) };
}

const isExecutable = (path: string): Promise<boolean> =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  );

export async function findFirst<T>(
  candidates: readonly T[],
  fits: (candidate: T) => Promise<boolean>,
): Promise<T | undefined> {
  for (const candidate of candidates) if (await fits(candidate)) return candidate;
  return undefined;
}
