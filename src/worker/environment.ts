/** The environment a command sees: what is allowed of the worker's own, what the command asked for, and who it is. */
import type { CommandSpec } from '../protocol/methods.js';

export interface EnvironmentInput {
  /** Names, separated by spaces or commas; a trailing `*` stands for any ending. */
  readonly allow: string;
  readonly hostEnv: Readonly<Record<string, string | undefined>>;
  readonly spec: CommandSpec;
  /** Win over values that are not secret. */
  readonly secrets: Readonly<Record<string, string>>;
  readonly commandId: string;
  readonly originSessionId: string | null;
  /** With what it starts further commands: its token, a node, and the folder that has `homing`. */
  readonly inside: {
    readonly token: string;
    readonly url?: string | undefined;
    readonly folder?: string | undefined;
  };
  /** By which a worker of this host finds what a dead one left behind. */
  readonly mark: { readonly name: string; readonly value: string };
  /** What a login of another user would set. */
  readonly login?: Readonly<Record<string, string>> | undefined;
}

/** Programs that hold their output back when it goes to a pipe would look stuck. */
const UNBUFFERED = { PYTHONUNBUFFERED: '1' };
const DEFAULT_PATH = '/usr/local/bin:/usr/bin:/bin';
/** Others can not be passed through a shell. */
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** The command's own values win over the worker's; its identity wins over both. */
export function commandEnvironment(input: EnvironmentInput): Record<string, string> {
  const patterns = input.allow.split(/[\s,]+/).filter((pattern) => pattern !== '');
  const allowed = Object.entries(input.hostEnv).filter(
    (variable): variable is [string, string] =>
      variable[1] !== undefined && NAME.test(variable[0]) && patterns.some((pattern) => matches(pattern, variable[0])),
  );
  const { HOMING_SESSION_ID: _session, HOMING_TOKEN: _token, HOMING_URL: _url, ...asked } = input.spec.env ?? {};
  const { token, url, folder } = input.inside;
  const env: Record<string, string> = {
    ...UNBUFFERED,
    ...Object.fromEntries(allowed),
    ...input.login,
    ...asked,
    ...input.secrets,
  };
  return {
    ...env,
    // At the end, so that nothing of the command's own is hidden by it.
    ...(folder === undefined ? {} : { PATH: `${env.PATH ?? DEFAULT_PATH}:${folder}` }),
    HOMING_TOKEN: token,
    ...(url === undefined ? {} : { HOMING_URL: url }),
    [input.mark.name]: input.mark.value,
    HOMING_COMMAND_ID: input.commandId,
    ...(input.originSessionId === null ? {} : { HOMING_SESSION_ID: input.originSessionId }),
  };
}

const matches = (pattern: string, name: string): boolean =>
  pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
