/** The user that commands run as (`HOMING_RUN_AS`): found once at the start, so that a wrong name stops the worker. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { AppError } from '../errors.js';

export interface RunAs {
  readonly uid: number;
  readonly gid: number;
  /** For `setpriv`. */
  readonly options: readonly string[];
  /** What a login would set; a command's own values win. */
  readonly env: Readonly<Record<string, string>>;
}

const ID_TIMEOUT_MS = 5_000;

/** @param name of a user, or `uid` or `uid:gid` @throws AppError INVALID_PARAMS with a sentence */
export async function findRunAs(name: string): Promise<RunAs> {
  const refuse = (why: string) => new AppError('INVALID_PARAMS', `HOMING_RUN_AS: ${why}`);
  if (process.platform !== 'linux') throw refuse('is only possible on Linux');
  if (process.getuid?.() !== 0) throw refuse('only a worker that runs as root can run commands as another user');
  const [, uid, gid = uid] = /^(\d+)(?::(\d+))?$/.exec(name) ?? [];
  if (uid !== undefined) {
    const ids = { uid: Number(uid), gid: Number(gid) };
    const known = await passwdLine((fields) => fields[2] === uid);
    return { ...ids, options: optionsFor(ids.uid, ids.gid, '--clear-groups'), env: loginOf(known) };
  }
  if (!/^[A-Za-z_][A-Za-z0-9_.-]*\$?$/.test(name)) throw refuse('must be the name of a user, or uid, or uid:gid');
  const [own, group] = await Promise.all([idOf('-u', name), idOf('-g', name)]);
  if (own === undefined || group === undefined) throw refuse(`there is no user ${name} on this host`);
  const known = await passwdLine((fields) => fields[0] === name);
  return { uid: own, gid: group, options: optionsFor(own, group, '--init-groups'), env: loginOf(known) };
}

const optionsFor = (uid: number, gid: number, groups: string) => [`--reuid=${uid}`, `--regid=${gid}`, groups];

/** Asked of the system, which knows users from elsewhere too. */
async function idOf(flag: '-u' | '-g', name: string): Promise<number | undefined> {
  try {
    const { stdout } = await promisify(execFile)('id', [flag, '--', name], { timeout: ID_TIMEOUT_MS });
    return Number(stdout);
  } catch {
    return undefined;
  }
}

async function passwdLine(fits: (fields: readonly string[]) => boolean): Promise<readonly string[] | undefined> {
  const text = await readFile('/etc/passwd', 'utf8').catch(() => '');
  return text
    .split('\n')
    .map((line) => line.split(':'))
    .find(fits);
}

function loginOf(fields: readonly string[] | undefined): Record<string, string> {
  const [name = '', , , , , home = '', shell = ''] = fields ?? [];
  const login = { HOME: home === '' ? '/' : home, USER: name, LOGNAME: name, SHELL: shell };
  return Object.fromEntries(Object.entries(login).filter(([, value]) => value !== ''));
}
