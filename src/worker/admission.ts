/** Whether this worker takes what a command asks of its host, and where it then runs. Refusals are sentences that name the field. */
import { realpath } from 'node:fs/promises';
import { resolve, sep } from 'node:path';
import { decideSandbox, type SandboxProfile } from '../domain/sandbox.js';
import { unsupportedField } from '../domain/supported.js';
import type { CommandSpec } from '../protocol/methods.js';
import type { Containment } from './containment.js';

export interface HostRules {
  readonly containment: Pick<Containment, 'level' | 'profiles'>;
  /** Tightness that every command has at least. */
  readonly sandbox?: SandboxProfile | undefined;
  /** Where commands run that do not say where. */
  readonly defaultCwd: string;
  /** Folder that the working folder of a command must not leave. */
  readonly workRoot?: string | undefined;
}

export type Admission =
  | { readonly type: 'admitted'; readonly cwd: string; readonly profile: SandboxProfile | undefined }
  | { readonly type: 'refused'; readonly error: string };

export async function admit(spec: CommandSpec, rules: HostRules): Promise<Admission> {
  const refused = (error: string): Admission => ({ type: 'refused', error });
  const unsupported = unsupportedField(spec);
  if (unsupported !== undefined) return refused(unsupported.message);
  const { containment, workRoot } = rules;
  if (spec.containment === 'pidns' && containment.level !== 'pidns') {
    return refused('containment: this worker offers group, which is weaker than pidns (CONTAINMENT_UNAVAILABLE)');
  }
  const sandbox = decideSandbox(spec.sandbox?.profile, rules.sandbox, containment.profiles);
  if (sandbox.type === 'refused') return refused(sandbox.error);
  const cwd = resolve(workRoot ?? rules.defaultCwd, spec.cwd ?? '.');
  if (workRoot !== undefined && !(await isInside(cwd, workRoot))) {
    return refused(
      `cwd: ${JSON.stringify(spec.cwd)} is outside of ${JSON.stringify(workRoot)}, where this worker runs its commands`,
    );
  }
  return { type: 'admitted', cwd, profile: sandbox.profile };
}

/** By their real paths: a link may lead out. A folder that is not there is judged by its name, and fails later. */
async function isInside(path: string, root: string): Promise<boolean> {
  const [real, realRoot] = await Promise.all([path, root].map((one) => realpath(one).catch(() => resolve(one))));
  if (real === undefined || realRoot === undefined) return false;
  return real === realRoot || real.startsWith(realRoot.endsWith(sep) ? realRoot : realRoot + sep);
}
