/** Which version a server program is, by asking it. About 10 ms, so it is asked at every start and never remembered. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** A program that can be started as it is. */
export interface ServerBinary {
  /** Absolute path of redis-server or valkey-server. */
  readonly file: string;
  /** As it says itself, for example `7.0.15`. */
  readonly version: string;
  /** For its LD_LIBRARY_PATH, and for nobody else's; absent when the system has all it needs. */
  readonly libraryPath?: string;
}

/** Sharded channels came with 7. */
export const LEAST_MAJOR_VERSION = 7;
const VERSION_TIMEOUT_MS = 5_000;

export const isNewEnough = (version: string | undefined): version is string =>
  version !== undefined && Number.parseInt(version, 10) >= LEAST_MAJOR_VERSION;

/** @returns undefined when it does not start, or says nothing of the kind */
export async function versionOf(file: string, libraryPath?: string): Promise<string | undefined> {
  const env = libraryPath === undefined ? {} : { LD_LIBRARY_PATH: libraryPath };
  try {
    const { stdout } = await promisify(execFile)(file, ['--version'], { timeout: VERSION_TIMEOUT_MS, env });
    return /\bv=(\d+\.\d+\.\d+)/.exec(stdout)?.[1];
  } catch {
    // It does not even start: a version nobody knows.
    return undefined;
  }
}
