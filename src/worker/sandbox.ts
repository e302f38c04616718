/** Sandbox profiles as rooms of bubblewrap: what each one mounts, and how one gets in without a right to change that. */
import type { SandboxProfile } from '../domain/sandbox.js';
import type { RoomRecipe } from './containment-room.js';

export interface SandboxTools {
  readonly bwrap: string;
  readonly nsenter: string;
  readonly setpriv: string;
  readonly setsid: string;
  /** Without root a sandbox needs a user namespace. */
  readonly root: boolean;
}

export interface SandboxFolders {
  /** Absolute; the one place that may be writable. */
  readonly cwd: string;
  /** Seen, also where they are in a folder that is private otherwise. */
  readonly visible: readonly string[];
}

/**
 * @param user options of setpriv that make the command another user's
 */
export function sandboxRecipe(
  profile: SandboxProfile,
  { cwd, visible }: SandboxFolders,
  tools: SandboxTools,
  user: readonly string[] = [],
): RoomRecipe {
  const { root } = tools;
  const offline = profile !== 'workspace';
  const bind = profile === 'readonly' ? '--ro-bind' : '--bind';
  return {
    name: `sandbox ${profile}`,
    make: [
      tools.bwrap,
      '--die-with-parent',
      '--as-pid-1',
      ...(root ? [] : ['--unshare-user']),
      '--unshare-pid',
      '--unshare-ipc',
      ...(offline ? ['--unshare-net'] : []),
      ...['--ro-bind', '/', '/', '--proc', '/proc', ...devices(root), '--tmpfs', '/tmp', '--tmpfs', '/var/tmp'],
      // With a network the resolver's files there are needed; without, its sockets are only ways out.
      ...(offline ? ['--tmpfs', '/run'] : []),
      ...visible.flatMap((folder) => ['--ro-bind', folder, folder]),
      // The root itself as the working folder would make everything writable.
      ...(cwd === '/' ? [] : [bind, cwd, cwd]),
      '--',
    ],
    enter: [
      tools.nsenter,
      ...(root ? [] : ['--user', '--preserve-credentials']),
      '--pid',
      '--mount',
      '--ipc',
      ...(offline ? ['--net'] : []),
      '--',
      tools.setsid,
      tools.setpriv,
      ...user,
      '--no-new-privs',
      // Who may mount could make the root writable again. Without root the user namespace has taken these already.
      ...(root ? ['--bounding-set=-all', '--inh-caps=-all'] : []),
      '--',
    ],
  };
}

/**
 * Root sees only harmless devices, and the terminals of the host, or a command could not open its own. Without root bwrap would
 * need a second user namespace for that, in which nobody may enter the network of the first; the host's rights protect
 * its devices there.
 */
const devices = (root: boolean): string[] =>
  root
    ? ['--dev', '/dev', '--dev-bind-try', '/dev/pts', '/dev/pts']
    : ['--dev-bind', '/dev', '/dev', '--tmpfs', '/dev/shm'];
