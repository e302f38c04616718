/**
 * Completion webhooks, the pure part: which addresses the operator allows, and what is sent. An address is somebody
 * else's choice, so without an allow-list nothing is sent anywhere.
 */
import type { CommandId } from './ids.js';
import type { CommandSnapshot } from './methods.js';

/** One entry of the allow-list: an origin, and the path that an address must be at or below. */
export interface AllowedTarget {
  readonly origin: string;
  readonly path: string;
}

/** @returns undefined for what is no address of the kind that may be called: http(s), without credentials */
function parseTarget(text: string): URL | undefined {
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  const fits = (url.protocol === 'https:' || url.protocol === 'http:') && url.username === '' && url.password === '';
  return fits ? url : undefined;
}

/** Addresses separated by commas or spaces. @returns undefined when one of them is none */
export function parseAllowList(text: string): readonly AllowedTarget[] | undefined {
  const entries = text.split(/[\s,]+/).filter((entry) => entry !== '');
  const targets = entries.map(parseTarget);
  if (targets.length === 0 || targets.some((url) => url === undefined || url.search !== '' || url.hash !== '')) {
    return undefined;
  }
  return targets.filter((url) => url !== undefined).map(({ origin, pathname }) => ({ origin, path: pathname }));
}

/** Whether an address is at or below an allowed one; `/a` does not allow `/ab`. Dots in a path are resolved before. */
export function isAllowed(allowed: readonly AllowedTarget[], address: string): boolean {
  const url = parseTarget(address);
  if (url === undefined) return false;
  return allowed.some(({ origin, path }) => {
    if (url.origin !== origin) return false;
    return url.pathname === path || url.pathname.startsWith(path.endsWith('/') ? path : `${path}/`);
  });
}

/** The same for every attempt: a receiver that saw it drops the repeat. */
export const webhookId = (commandId: CommandId): string => `${commandId}-ended`;

/** What is sent: the command as every door shows it, so nothing in it is secret that is not masked there. */
export const webhookBody = (snapshot: CommandSnapshot): string =>
  JSON.stringify({ type: 'command.ended', command: snapshot });
