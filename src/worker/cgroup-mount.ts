/** Where the control group (version 2) of this process is in the file system. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** @returns undefined where there is none, or it is not to be seen from here */
export function findOwnCgroup(): string | undefined {
  try {
    return locateCgroup(readFileSync('/proc/self/cgroup', 'utf8'), readFileSync('/proc/self/mountinfo', 'utf8'));
  } catch {
    return undefined; // Not Linux, or no /proc.
  }
}

/** @param cgroup of /proc/self/cgroup @param mounts of /proc/self/mountinfo */
export function locateCgroup(cgroup: string, mounts: string): string | undefined {
  const path = /^0::(\/.*)$/m.exec(cgroup)?.[1];
  // `id parent device root mountpoint options [tags] - type source options`
  for (const line of mounts.split('\n')) {
    const [before = '', after = ''] = line.split(' - ');
    const [, , , root, mountpoint] = before.split(' ');
    if (!after.startsWith('cgroup2 ') || root === undefined || mountpoint === undefined || path === undefined) continue;
    if (root === '/') return join(unescaped(mountpoint), path);
    if (path === root || path.startsWith(`${root}/`)) return join(unescaped(mountpoint), path.slice(root.length));
  }
  return undefined;
}

/** Spaces and the like are given as three octal digits. */
const unescaped = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
