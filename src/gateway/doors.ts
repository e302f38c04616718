/**
 * Who may knock at all: where a request says it goes to (`Host`) and where it says it comes from (`Origin`). Both guard
 * against web pages of others: by a name that was made to point here, or by a script that sends requests here.
 */

const LOOPBACK_NAMES = new Set(['localhost', '127.0.0.1', '[::1]', '::1']);

export const isLoopback = (host: string): boolean => LOOPBACK_NAMES.has(host) || /^127(\.\d{1,3}){3}$/.test(host);

/** The name in a `Host` header, without its port. */
const nameOf = (hostHeader: string): string => hostHeader.replace(/:\d+$/, '').toLowerCase();

export interface Doors {
  /** False on loopback for a name that only points here (DNS rebinding). */
  hostFits(hostHeader: string | undefined): boolean;
  /** True without an origin, for the host itself, and for those that are configured. */
  originFits(originHeader: string | undefined, hostHeader: string | undefined): boolean;
}

export function createDoors(options: { readonly host: string; readonly publicOrigins: readonly string[] }): Doors {
  const allowed = new Set(options.publicOrigins.map((origin) => origin.replace(/\/$/, '').toLowerCase()));
  const allowedHosts = new Set([...allowed].map((origin) => nameOf(origin.replace(/^[a-z]+:\/\//, ''))));
  const onLoopback = isLoopback(options.host);
  return {
    hostFits(hostHeader) {
      if (!onLoopback) return true;
      if (hostHeader === undefined) return false;
      const name = nameOf(hostHeader);
      return isLoopback(name) || allowedHosts.has(name);
    },
    originFits(originHeader, hostHeader) {
      if (originHeader === undefined) return true;
      const origin = originHeader.toLowerCase();
      if (allowed.has(origin)) return true;
      return hostHeader !== undefined && origin.replace(/^https?:\/\//, '') === hostHeader.toLowerCase();
    },
  };
}
