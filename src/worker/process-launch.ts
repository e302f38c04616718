/**
 * The last step before a command: a shell, inside its containment and already its user, that changes the folder, sets limits,
 * takes on the command's environment and becomes the program.
 *
 * - Helpers on the way there (nsenter, setpriv, …) must not see the command's environment: its LD_PRELOAD would be loaded
 *   into them, as root. And arguments are seen by every user of the host. So each variable travels whole, `NAME=value`, as
 *   the value of a meaningless one, which nobody else reads.
 * - What goes wrong is told on descriptor REPORT_FD, which the program does not inherit; `go` is the last word before the
 *   program. (Its end would be a better proof, but who waits for the program outside of its room holds it too.)
 */
import { SHELL } from './containment-room.js';
import { SCRIPT_FD } from './script-file.js';

/** Comes after the descriptor of a script. */
export const REPORT_FD = SCRIPT_FD + 1;

export interface Launch {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export interface LaunchRequest {
  readonly argv: readonly string[];
  /** Names as shells allow them. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  /** Commands of the shell that set limits; one that fails prevents the start. */
  readonly limits?: readonly string[];
}

/** What failed, before the program was there. `code` as shells have it: 126 not executable, 127 not found. */
export interface LaunchFault {
  readonly step: 'cwd' | 'limits' | 'exec';
  readonly code: number;
}

/** Shells keep these to themselves: some refuse values, some change them. `env` can set them. */
const SHELL_OWN = new Set(['OPTIND', 'PPID', 'UID', 'EUID', 'BASHOPTS', 'SHELLOPTS', '_']);

/** @param stdinPath of a named pipe to read from, instead of the descriptor that was inherited */
export function launchOf({ argv, env, cwd, limits = [] }: LaunchRequest, stdinPath?: string): Launch {
  const names = Object.keys(env);
  const carrier = carrierFor(names);
  const plain = names.filter((name) => !SHELL_OWN.has(name));
  const own = names.filter((name) => SHELL_OWN.has(name)).map((name) => `${name}=${env[name]}`);
  const carriers = plain.map((_, i) => `${carrier}${i}`);
  const script = [
    `${carrier}=cwd`,
    `trap 'echo "$${carrier} $?" >&${REPORT_FD}' EXIT`,
    'cd -- "$1" 2>/dev/null || exit 1',
    'shift',
    `${carrier}=limits`,
    ...limits.map((limit) => `${limit} 2>/dev/null || exit 1`),
    `${carrier}=exec`,
    ...(stdinPath === undefined ? [] : [`exec 0<"$1" || exit 1`, 'shift']),
    `echo go >&${REPORT_FD}`,
    // Set by the shell itself.
    'unset PWD OLDPWD',
    // bash warns of a locale that is not there.
    ...(carriers.length === 0 ? [] : [`export ${carriers.map((name) => `"$${name}"`).join(' ')} 2>/dev/null`]),
    ...(carriers.length === 0 ? [] : [`unset ${carriers.join(' ')}`]),
    `exec "$@" ${REPORT_FD}>&-`,
  ].join('\n');
  return {
    argv: [
      SHELL,
      '-c',
      script,
      'homing',
      cwd,
      ...(stdinPath === undefined ? [] : [stdinPath]),
      ...(own.length === 0 ? [] : ['/usr/bin/env', ...own]),
      ...argv,
    ],
    env: Object.fromEntries(plain.map((name, i) => [carriers[i], `${name}=${env[name]}`])),
  };
}

export interface ToldRequest extends LaunchRequest {
  /** stderr goes where stdout goes. */
  readonly merged: boolean;
  /** Its stdin is what stands at SCRIPT_FD; else it has none. */
  readonly stdin: boolean;
}

/** More than this is handed over as arguments: whoever reads the script has to take all of it at once. */
const MAX_TOLD_BYTES = 32_768;

/**
 * The same steps for a shell that stands there already and reads them from its stdin (see `standby.ts`), which it gives up
 * with the last; undefined when they are better taken by a new one.
 */
export function toldOf({ argv, env, cwd, limits = [], merged, stdin }: ToldRequest): string | undefined {
  const names = Object.keys(env);
  const step = carrierFor(names);
  const own = names.filter((name) => SHELL_OWN.has(name));
  const plain = names.filter((name) => !SHELL_OWN.has(name));
  const pairs = (of: readonly string[]) => of.map((name) => ` ${quote(`${name}=${env[name]}`)}`).join('');
  const words = [...(own.length === 0 ? [] : ['/usr/bin/env']), ...own.map((name) => `${name}=${env[name]}`), ...argv];
  const script = [
    `${step}=cwd`,
    `trap 'echo "$${step} $?" >&${REPORT_FD}' EXIT`,
    `cd -- ${quote(cwd)} 2>/dev/null || exit 1`,
    `${step}=limits`,
    ...limits.map((limit) => `${limit} 2>/dev/null || exit 1`),
    `${step}=exec`,
    ...(stdin ? [] : [`exec ${SCRIPT_FD}</dev/null || exit 1`]),
    ...(merged ? ['exec 2>&1'] : []),
    `echo go >&${REPORT_FD}`,
    'unset PWD OLDPWD',
    ...(plain.length === 0 ? [] : [`export${pairs(plain)} 2>/dev/null`]),
    `exec ${words.map(quote).join(' ')} 0<&${SCRIPT_FD} ${SCRIPT_FD}<&- ${REPORT_FD}>&-`,
    '',
  ].join('\n');
  return script.includes('\0') || Buffer.byteLength(script) > MAX_TOLD_BYTES ? undefined : script;
}

const quote = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

/** undefined as long as nothing is known; `started` when the program was about to be there. A fault may follow even then. */
export function readReport(report: string): 'started' | LaunchFault | undefined {
  const [, step, code] = /^(cwd|limits|exec) (\d+)\n/m.exec(report) ?? [];
  if (step !== undefined) return { step: step as LaunchFault['step'], code: Number(code) };
  return report.startsWith('go\n') ? 'started' : undefined;
}

/** A name that begins no other. */
function carrierFor(names: readonly string[]): string {
  let carrier = '_h';
  while (names.some((name) => name.startsWith(carrier))) carrier += '_';
  return carrier;
}
