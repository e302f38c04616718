/** The folder of `homing up`: its secret, the embedded Redis, and run.json, by which the other programs find it. */
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Settings } from '../config.js';
import type { Env } from './env-files.js';

/** What a running `homing up` says of itself. Holds tokens, so it is for its user alone. */
export interface RunFile {
  readonly pid: number;
  readonly url: string;
  readonly opsUrl: string;
  readonly token?: string;
  /** Of the Redis that it started itself. */
  readonly redisUrl?: string;
  readonly [more: string]: unknown;
}

/** `HOMING_DATA_DIR`, else the user's data folder. */
export function dataDirOf(settings: Pick<Settings, 'HOMING_DATA_DIR'>, env: Env): string {
  if (settings.HOMING_DATA_DIR !== undefined) return resolve(settings.HOMING_DATA_DIR);
  return join(env.XDG_DATA_HOME || join(env.HOME || homedir(), '.local', 'share'), 'homing');
}

/** Makes the folder, for its user alone. */
export function ensureDataDir(dir: string): void {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
}

/** Writes a file that only its user reads, whole or not at all. */
export function writePrivate(path: string, text: string): void {
  const draft = `${path}.${process.pid}.tmp`;
  writeFileSync(draft, text, { mode: 0o600 });
  chmodSync(draft, 0o600); // The mode above counts only where the file is new.
  renameSync(draft, path);
}

const secretPath = (dir: string) => join(dir, 'secret');
const runPath = (dir: string) => join(dir, 'run.json');

function readOrUndefined(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** The secret that signs the tokens of this data folder; made when there is none. */
export function readOrMakeSecret(dir: string): string {
  const known = readSecret(dir);
  if (known !== undefined) return known;
  const made = randomBytes(32).toString('base64url');
  writePrivate(secretPath(dir), `${made}\n`);
  return made;
}

export function readSecret(dir: string): string | undefined {
  const text = readOrUndefined(secretPath(dir))?.trim();
  return text === undefined || text === '' ? undefined : text;
}

/** @returns undefined when nothing of the kind is there, or its process is gone */
export function readRunFile(dir: string): RunFile | undefined {
  const text = readOrUndefined(runPath(dir));
  if (text === undefined) return undefined;
  try {
    const parsed = parseRunFile(JSON.parse(text));
    return parsed !== undefined && isRunning(parsed.pid) ? parsed : undefined;
  } catch {
    return undefined; // Not JSON: not ours.
  }
}

/** By hand: loading zod costs every client program more than all the rest of its start. */
function parseRunFile(value: unknown): RunFile | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { pid, url, opsUrl, token, redisUrl } = value as Partial<Record<string, unknown>>;
  const isText = (field: unknown) => typeof field === 'string';
  const isTextOrAbsent = (field: unknown) => field === undefined || isText(field);
  const sound = Number.isSafeInteger(pid) && Number(pid) > 0 && isText(url) && isText(opsUrl);
  return sound && isTextOrAbsent(token) && isTextOrAbsent(redisUrl) ? (value as RunFile) : undefined;
}

export function writeRunFile(dir: string, run: RunFile): void {
  writePrivate(runPath(dir), `${JSON.stringify(run, null, 2)}\n`);
}

export function removeRunFile(dir: string): void {
  rmSync(runPath(dir), { force: true });
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: there is one, of another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
