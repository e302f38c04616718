/** The users of `deploy/redis-users.acl` as lines of redis.conf, with passwords and another prefix. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const FILE = fileURLToPath(new URL('../../deploy/redis-users.acl', import.meta.url));

export const ROLES = ['homing-node', 'homing-worker', 'homing-doctor'] as const;
export type Role = (typeof ROLES)[number];

/** @param withDefault whether the default user is switched off too, as in the file */
export function redisUsers(prefix: string, passwordOf: (role: Role) => string, withDefault = true): string[] {
  return readFileSync(FILE, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith(withDefault ? 'user ' : 'user homing-'))
    .map((line) => {
      const role = line.split(' ')[1] as Role;
      const hash = createHash('sha256')
        .update(ROLES.includes(role) ? passwordOf(role) : '')
        .digest('hex');
      return line
        .replace(/#0{63}\d/, `#${hash}`)
        .replaceAll('~h:', `~${prefix}:`)
        .replaceAll('{h:', `{${prefix}:`)
        .replaceAll('&h:', `&${prefix}:`);
    });
}
