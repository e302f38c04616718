/** Sandbox profiles by name, from the widest to the tightest. A command may ask only for one tighter than its worker's. Pure. */

/**
 * - `workspace`: everything is read-only but the working folder; /tmp is private and empty.
 * - `offline`: the same, without a network; sockets of the host in /run are gone too.
 * - `readonly`: the same, and the working folder is read-only too.
 */
export const SANDBOX_PROFILES = ['workspace', 'offline', 'readonly'] as const;
export type SandboxProfile = (typeof SANDBOX_PROFILES)[number];

export const isSandboxProfile = (name: string): name is SandboxProfile =>
  (SANDBOX_PROFILES as readonly string[]).includes(name);

export type SandboxDecision =
  | { readonly type: 'use'; readonly profile: SandboxProfile | undefined }
  | { readonly type: 'refused'; readonly error: string };

/**
 * @param asked by the command
 * @param floor of the worker, where it has one
 * @param offered what this worker's host can do
 */
export function decideSandbox(
  asked: string | undefined,
  floor: SandboxProfile | undefined,
  offered: readonly SandboxProfile[],
): SandboxDecision {
  const refused = (error: string): SandboxDecision => ({ type: 'refused', error });
  if (asked === undefined) return { type: 'use', profile: floor };
  if (!isSandboxProfile(asked)) {
    return refused(`sandbox.profile: ${JSON.stringify(asked)} is none of ${SANDBOX_PROFILES.join(', ')}`);
  }
  if (!offered.includes(asked)) {
    return refused(
      `sandbox.profile: this worker can not make a sandbox (bwrap is missing or does not work on its host)`,
    );
  }
  if (floor !== undefined && SANDBOX_PROFILES.indexOf(asked) < SANDBOX_PROFILES.indexOf(floor)) {
    return refused(`sandbox.profile: this worker runs every command in ${floor}, which is tighter than ${asked}`);
  }
  return { type: 'use', profile: asked };
}
