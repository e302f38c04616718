/** Finds a Redis to start: redis-server 7 or later, or valkey-server, on a PATH that is given. */
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, isAbsolute, join } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '../errors.js';

const NAMES = ['redis-server', 'valkey-server'];
/** Sharded channels came with 7. */
const LEAST_MAJOR_VERSION = 7;
const VERSION_TIMEOUT_MS = 5_000;

const HOW_TO_INSTALL = `Install one, or set HOMING_REDIS_URL:
  apt:     sudo apt-get install redis-server
  brew:    brew install redis
  docker:  docker run -d -p 127.0.0.1:6379:6379 redis:7, then HOMING_REDIS_URL=redis://127.0.0.1:6379`;

/**
 * @returns the absolute path of the first that is new enough
 * @throws AppError REDIS_UNAVAILABLE with a sentence and how to install one
 */
export async function findServer(searchPath: string): Promise<string> {
  const tooOld: string[] = [];
  for (const folder of searchPath.split(delimiter).filter(isAbsolute)) {
    for (const name of NAMES) {
      const file = join(folder, name);
      if (!(await isExecutable(file))) continue;
      const version = await versionOf(file);
      if (version !== undefined && Number.parseInt(version, 10) >= LEAST_MAJOR_VERSION) return file;
      tooOld.push(`${file} (${version ?? 'version unknown'})`);
    }
  }
  const found = tooOld.length === 0 ? '' : ` Found only ${tooOld.join(', ')}.`;
  throw new AppError(
    'REDIS_UNAVAILABLE',
    `No redis-server of version ${LEAST_MAJOR_VERSION} or later and no valkey-server is on the PATH.${found} ${HOW_TO_INSTALL}`,
  );
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return true;
  } catch {
    // Absent or not for us: either way the next folder is asked.
    return false;
  }
}

async function versionOf(file: string): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)(file, ['--version'], { timeout: VERSION_TIMEOUT_MS, env: {} });
    return /\bv=(\d+\.\d+\.\d+)/.exec(stdout)?.[1];
  } catch {
    // It does not even start: listed as unknown.
    return undefined;
  }
}
