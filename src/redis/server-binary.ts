/**
 * Finds a Redis to start, in this order: redis-server or valkey-server, 7 or later, on the PATH; one fetched before into the
 * cache folder; on Debian and its kin the distribution's own packages, fetched into that folder. What is passed over is said.
 */
import { AppError } from '../errors.js';
import { findKept } from './server-cache.js';
import { fetchServer } from './server-fetch.js';
import { type FindOptions, programsOn } from './server-sources.js';
import { isNewEnough, LEAST_MAJOR_VERSION, type ServerBinary, versionOf } from './server-version.js';

export type { FindOptions, ServerSources } from './server-sources.js';
export { serverSourcesOf } from './server-sources.js';
export type { ServerBinary } from './server-version.js';

const NAMES = ['redis-server', 'valkey-server'];

/**
 * @throws AppError REDIS_UNAVAILABLE with what was found, why nothing was fetched, and how to install one
 */
export async function findOrFetchServer(options: FindOptions): Promise<ServerBinary> {
  const { path, cacheDir, download, say } = options;
  const tooOld: string[] = [];
  for await (const file of programsOn(path, NAMES)) {
    const version = await versionOf(file);
    if (isNewEnough(version)) return { file, version };
    const what = version === undefined ? 'does not say its version' : `is version ${version}`;
    tooOld.push(`${file} ${what}`);
    say(`${file} ${what} and is passed over: Homing needs ${LEAST_MAJOR_VERSION} or later.`);
  }
  const kept = await findKept(cacheDir, say);
  if (kept !== undefined) return kept;
  const why = download ? await fetchOrWhyNot(options) : 'Fetching one is switched off (--no-download).';
  if (typeof why !== 'string') return why;
  throw noServer(tooOld, why);
}

async function fetchOrWhyNot(options: FindOptions): Promise<ServerBinary | string> {
  try {
    return await fetchServer(options);
  } catch (error) {
    if (error instanceof AppError) return error.message;
    throw error;
  }
}

function noServer(tooOld: readonly string[], why: string): AppError {
  const found = tooOld.map((sentence) => ` ${sentence}.`).join('');
  return new AppError(
    'REDIS_UNAVAILABLE',
    `There is no redis-server or valkey-server of version ${LEAST_MAJOR_VERSION} or later.${found} ${why}
Install one, or set HOMING_REDIS_URL:
  apt:     sudo apt-get install redis-server
  brew:    brew install redis
  docker:  docker run -d -p 127.0.0.1:6379:6379 redis:7, then HOMING_REDIS_URL=redis://127.0.0.1:6379`,
  );
}
