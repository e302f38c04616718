/**
 * Reads the addresses Redis may have. One form for all of them: `scheme://[user][:password]@place[/more][?tls=1&db=n]`;
 * user and password are percent-encoded. Pure; no message holds the password.
 *
 * - `redis://host:6379/0`, `rediss://host:6379/0`
 * - `unix:///path/to.sock?db=0`, with a password `unix://:password@/path/to.sock`
 * - `redis-sentinel://host:26379,host:26379/master-name?db=0`
 * - `redis-cluster://host:6379,host:6379`
 */
import { AppError } from '../errors.js';

export interface HostPort {
  readonly host: string;
  readonly port: number;
}

interface Access {
  readonly username?: string;
  readonly password?: string;
}

interface Encrypted {
  readonly tls: boolean;
  /** Certificate authority, PEM; the system's own unless given. */
  readonly ca?: string;
}

export type RedisTarget =
  | ({ readonly type: 'server'; readonly db: number } & HostPort & Access & Encrypted)
  | ({ readonly type: 'socket'; readonly path: string; readonly db: number } & Access)
  | ({
      readonly type: 'sentinel';
      readonly sentinels: readonly HostPort[];
      readonly name: string;
      readonly db: number;
      readonly sentinelPassword?: string;
    } & Access &
      Encrypted)
  | ({ readonly type: 'cluster'; readonly nodes: readonly HostPort[] } & Access & Encrypted);

/** What has its own setting and is not part of the address. */
export interface RedisUrlExtras {
  readonly ca?: string;
  readonly sentinelPassword?: string;
}

const URL_PARTS = /^([a-z][a-z-]*):\/\/(?:([^/?#]*)@)?([^/?#@]*)(\/[^?#]*)?(?:\?([^#]*))?$/;

/** @throws AppError INVALID_PARAMS with a sentence that names what is wrong */
export function parseRedisUrl(url: string, extras: RedisUrlExtras = {}): RedisTarget {
  const parts = URL_PARTS.exec(url);
  if (parts === null) throw fault('is not an address of Redis');
  const [, scheme = '', userInfo = '', place = '', path = '', query = ''] = parts;
  const access = readAccess(userInfo);
  const options = new URLSearchParams(query);
  const encrypted: Encrypted = {
    tls: scheme === 'rediss' || options.get('tls') === '1',
    ...(extras.ca === undefined ? {} : { ca: extras.ca }),
  };
  switch (scheme) {
    case 'redis':
    case 'rediss': {
      const [only, ...others] = readHosts(place || 'localhost', 6379);
      if (only === undefined || others.length > 0) throw fault(`takes one host with ${scheme}://`);
      return { type: 'server', ...only, db: readDb(path.slice(1) || options.get('db')), ...access, ...encrypted };
    }
    case 'unix': {
      if (place !== '' || path.length < 2) throw fault('needs an absolute path, as in unix:///run/redis.sock');
      return { type: 'socket', path: decode(path), db: readDb(options.get('db')), ...access };
    }
    case 'redis-sentinel': {
      const name = decode(path.slice(1));
      if (name === '') throw fault('needs the name of the master, as in redis-sentinel://host:26379/mymaster');
      return {
        type: 'sentinel',
        sentinels: readHosts(place, 26_379),
        name,
        db: readDb(options.get('db')),
        ...access,
        ...encrypted,
        ...(extras.sentinelPassword === undefined ? {} : { sentinelPassword: extras.sentinelPassword }),
      };
    }
    case 'redis-cluster':
      return { type: 'cluster', nodes: readHosts(place, 6379), ...access, ...encrypted };
    default:
      throw fault('must begin with redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://');
  }
}

/** The address for people and logs: never with user or password. */
export function describeTarget(target: RedisTarget): string {
  const hosts = (list: readonly HostPort[]) =>
    list.map(({ host, port }) => `${host.includes(':') ? `[${host}]` : host}:${port}`).join(',');
  switch (target.type) {
    case 'server':
      return `${target.tls ? 'rediss' : 'redis'}://${hosts([target])}${target.db === 0 ? '' : `/${target.db}`}`;
    case 'socket':
      return `unix://${target.path}`;
    case 'sentinel':
      return `redis-sentinel://${hosts(target.sentinels)}/${target.name}`;
    case 'cluster':
      return `redis-cluster://${hosts(target.nodes)}`;
  }
}

function readAccess(userInfo: string): Access {
  if (userInfo === '') return {};
  const colon = userInfo.indexOf(':');
  const username = decode(colon === -1 ? userInfo : userInfo.slice(0, colon));
  const password = colon === -1 ? '' : decode(userInfo.slice(colon + 1));
  return { ...(username === '' ? {} : { username }), ...(password === '' ? {} : { password }) };
}

function readHosts(text: string, defaultPort: number): HostPort[] {
  if (text === '') throw fault('names no host');
  return text.split(',').map((item) => {
    const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/.exec(item);
    const host = match?.[1] ?? match?.[2];
    const port = match?.[3] === undefined ? defaultPort : Number(match[3]);
    if (host === undefined || port < 1 || port > 65_535) throw fault('has a part that is not host:port');
    return { host, port };
  });
}

function readDb(text: string | null): number {
  if (text === null || text === '') return 0;
  if (!/^\d{1,5}$/.test(text)) throw fault('has a database that is not a number');
  return Number(text);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // The bytes may be part of a password: the sentence does not repeat them.
    throw fault('has a % that is not followed by two hexadecimal digits');
  }
}

const fault = (what: string) => new AppError('INVALID_PARAMS', `the Redis URL ${what}`);
