/** Secrets from files: `NAME_FILE` names the file that holds `NAME`. */
import { messageOf } from '../errors.js';

export type Env = Readonly<Record<string, string | undefined>>;

/**
 * Replaces `NAME_FILE` by `NAME` with the file's content, without the line break at its end.
 * @param names settings that may come from a file
 */
export function resolveFiles(
  env: Env,
  names: readonly string[],
  read: (path: string) => string,
): { readonly env: Env; readonly faults: readonly string[] } {
  const resolved: Record<string, string | undefined> = { ...env };
  const faults: string[] = [];
  for (const name of names) {
    const path = env[`${name}_FILE`];
    if (path === undefined || path === '') continue;
    if (env[name] !== undefined && env[name] !== '') {
      faults.push(`${name}: give either ${name} or ${name}_FILE, not both`);
      continue;
    }
    try {
      resolved[name] = read(path).replace(/\r?\n$/, '');
    } catch (error) {
      faults.push(`${name}_FILE: ${messageOf(error)}`);
    }
  }
  return { env: resolved, faults };
}
