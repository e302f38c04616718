/**
 * Homing's own Redis on one machine: a unix socket in a folder only its user may enter, a random password that is never in
 * argv or the environment, an append-only file, nothing evicted. It ends with its parent, however that dies, by a clean
 * shutdown; it is started again if it dies alone.
 */
import { createHash, randomBytes } from 'node:crypto';
import { chmod, lstat, mkdir, realpath } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';
import { createRedis, parseRedisUrl, waitForRedis } from './connections.js';
import { isListening, takeLock } from './data-lock.js';
import { folderFault } from './folder-faults.js';
import { findOrFetchServer, type ServerBinary, type ServerSources } from './server-binary.js';
import { type ServerProcess, startServer } from './server-process.js';
import { bareLine, isTroubleOver, type TroubleFacts, troubleIn } from './server-troubles.js';

export interface EmbeddedRedisOptions extends ServerSources {
  /** Made if absent. The data is in `redis/` inside, the socket in `run/`. */
  readonly dataDir: string;
  /** False: no server is fetched. True unless given. */
  readonly download?: boolean;
  /** Gets a sentence for people when a server is passed over or fetched. Logged unless given. */
  readonly say?: (sentence: string) => void;
  readonly log: Log;
}

export interface EmbeddedRedis {
  /** `unix://:password@/path/to/redis.sock` */
  readonly url: string;
  /** Resolves when Redis wrote everything and is gone. Idempotent. */
  close(): Promise<void>;
}

/** Linux allows 107 bytes, macOS 103. */
const MAX_SOCKET_PATH_BYTES = 100;
/** Loading a large append-only file takes a while. */
const START_TIMEOUT_MS = 60_000;
const LISTENING_POLL_MS = 5;
/** An earlier one that lost its parent may still be writing. */
const EARLIER_GONE_MS = 15_000;
const RESTART_FIRST_MS = 200;
const RESTART_LAST_MS = 5_000;

/**
 * Resolves when Redis takes commands.
 * @throws AppError REDIS_UNAVAILABLE with a sentence for people: no server found, folder in use, or it did not start
 */
export async function startEmbeddedRedis(options: EmbeddedRedisOptions): Promise<EmbeddedRedis> {
  const { dataDir, path, log, download = true, say = (sentence) => log.info({}, sentence) } = options;
  const folders = await makeFolders(dataDir);
  const lock = await takeLock(join(folders.run, 'lock.sock')).catch((error) => {
    throw dataFolderFault(error, dataDir);
  });
  if (lock === undefined) throw inUse(dataDir);
  let binary: ServerBinary;
  try {
    binary = await findOrFetchServer({ ...options, download, say });
  } catch (error) {
    await lock.close();
    throw error;
  }
  const socketPath = join(folders.run, 'redis.sock');
  const password = randomBytes(24).toString('base64url');
  const url = `unix://:${password}@${socketPath.split('/').map(encodeURIComponent).join('/')}`;
  let server: ServerProcess | undefined;
  let closing: Promise<void> | undefined;
  const facts = { dataFolder: folders.data, version: binary.version };

  // Redis stays up without room for its file and refuses writes; nobody would know why.
  const tellTrouble = (line: string) => {
    const trouble = troubleIn(line, facts);
    if (trouble?.passing === true) log.error({ said: bareLine(line) }, trouble.sentence);
    if (isTroubleOver(line)) log.info({}, 'The embedded Redis can write again');
  };

  const launch = async () => {
    const config = configuration(folders.data, socketPath, password);
    const started = startServer({ binary, path, config, onLine: tellTrouble });
    server = started;
    await answering(socketPath, url, started, facts);
    void started.ended.then((said) => {
      if (closing !== undefined) return;
      log.error(
        { said: troubleIn(said, facts)?.sentence ?? said },
        'The embedded Redis ended by itself, starting it again',
      );
      void relaunch();
    });
  };

  const relaunch = async () => {
    for (let waitMs = RESTART_FIRST_MS; closing === undefined; waitMs = Math.min(waitMs * 2, RESTART_LAST_MS)) {
      await delay(waitMs, undefined, { ref: false });
      if (closing !== undefined) return;
      try {
        await launch();
        return;
      } catch (error) {
        if (closing === undefined) log.error({ fault: messageOf(error) }, 'The embedded Redis did not start');
      }
    }
  };

  const close = async () => {
    await server?.stop();
    await lock.close();
  };

  try {
    await earlierGone(socketPath, dataDir);
    await launch();
  } catch (error) {
    closing = close();
    await closing;
    throw error;
  }
  return {
    url,
    close() {
      closing ??= close();
      return closing;
    },
  };
}

function configuration(dataFolder: string, socketPath: string, password: string): string {
  return [
    'port 0',
    `unixsocket ${quoted(socketPath)}`,
    'unixsocketperm 700',
    `requirepass ${quoted(password)}`,
    `dir ${quoted(dataFolder)}`,
    'daemonize no',
    'logfile ""',
    'save ""',
    'appendonly yes',
    'appendfsync everysec',
    'maxmemory-policy noeviction',
    // The default of 32 MB drops a node that is busy for a moment while commands print.
    'client-output-buffer-limit pubsub 256mb 64mb 60',
    '',
  ].join('\n');
}

async function answering(socketPath: string, url: string, server: ServerProcess, facts: TroubleFacts): Promise<void> {
  const over = new AbortController();
  const ended = server.ended.then((said) => {
    const why = troubleIn(said, facts)?.sentence ?? (bareLine(said.split('\n').at(-1) ?? '') || 'it said nothing');
    throw new AppError('REDIS_UNAVAILABLE', `The embedded Redis did not start: ${why}`);
  });
  try {
    await Promise.race([ended, firstAnswer(socketPath, url, over.signal)]);
  } catch (error) {
    await server.stop();
    throw error;
  } finally {
    over.abort();
  }
}

/** A client is made when there is something to connect to: its first retry would cost more than the whole start. */
async function firstAnswer(socketPath: string, url: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && !(await isListening(socketPath))) await delay(LISTENING_POLL_MS);
  if (signal.aborted) return;
  const redis = createRedis(parseRedisUrl(url), 'commands', quiet);
  try {
    await waitForRedis(redis, START_TIMEOUT_MS, signal);
  } finally {
    redis.disconnect();
  }
}

async function earlierGone(socketPath: string, dataDir: string): Promise<void> {
  for (let waitedMs = 0; await isListening(socketPath); waitedMs += 100) {
    if (waitedMs >= EARLIER_GONE_MS) throw inUse(dataDir);
    await delay(100);
  }
}

async function makeFolders(dataDir: string): Promise<{ data: string; run: string }> {
  try {
    await mkdir(dataDir, { recursive: true, mode: 0o700 });
    // One folder has one lock, whatever link leads to it.
    const base = await realpath(dataDir);
    const data = join(base, 'redis');
    await makePrivate(data);
    let run = join(base, 'run');
    if (Buffer.byteLength(join(run, 'redis.sock')) > MAX_SOCKET_PATH_BYTES) {
      const digest = createHash('sha256').update(base).digest('hex').slice(0, 16);
      run = join(tmpdir(), `homing-${digest}`);
    }
    await makePrivate(run);
    return { data, run };
  } catch (error) {
    throw dataFolderFault(error, dataDir);
  }
}

/** @throws AppError REDIS_UNAVAILABLE when the folder is another user's or a link, as in a shared /tmp */
async function makePrivate(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const found = await lstat(folder);
  const uid = process.getuid?.();
  if (!found.isDirectory() || (uid !== undefined && found.uid !== uid)) {
    throw new AppError('REDIS_UNAVAILABLE', `The folder ${folder} belongs to another user; choose another data folder`);
  }
  if ((found.mode & 0o077) !== 0) await chmod(folder, 0o700);
}

/** A value of redis.conf; a line end would begin another setting. */
function quoted(value: string): string {
  if (/[\r\n\0]/.test(value)) throw new AppError('INVALID_PARAMS', 'The data folder has a line end in its name');
  return `"${value.replace(/["\\]/g, '\\$&')}"`;
}

/** That it does not answer yet is no news while it starts. */
const quiet: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => quiet };

const dataFolderFault = (error: unknown, dataDir: string) =>
  folderFault(error, 'The data folder', dataDir, 'choose another with --data-dir.');

const inUse = (dataDir: string) =>
  new AppError(
    'REDIS_UNAVAILABLE',
    `The data folder ${dataDir} is used by another Homing; stop that one, or choose another with --data-dir`,
  );
