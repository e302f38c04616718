/**
 * A server that ends with its parent. A small shell stands between: its stdin is a pipe that only our process holds, so when
 * we are gone it ends, on every system and for every death. Then the server is shut down cleanly.
 */
import { spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import type { ServerBinary } from './server-version.js';

export interface ServerProcess {
  /** Resolves when it is gone, with the last of what it said. */
  readonly ended: Promise<string>;
  /** A clean shutdown, SIGKILL after 15 s. Resolves when it is gone. Idempotent. */
  stop(): Promise<void>;
}

const STOP_TIMEOUT_MS = 15_000;
const KEPT_OUTPUT_CHARACTERS = 4_000;

/**
 * `$1` is the server, `$2` the folders of libraries that only it needs; its settings come on descriptor 3. SIGTERM is a SHUTDOWN for it, and it gets 10 s.
 * `--port 0` keeps a server whose settings never came from listening anywhere.
 */
const LIFELINE = `
exec 4<&0
(
  [ -z "$2" ] || export LD_LIBRARY_PATH="$2"
  exec "$1" - --port 0
) <&3 3<&- 4<&- &
server=$!
exec 3<&-
(
  while read -r _; do :; done
  kill -TERM "$server" 2>/dev/null
  left=10
  while [ "$left" -gt 0 ] && kill -0 "$server" 2>/dev/null; do sleep 1; left=$((left - 1)); done
  kill -KILL "$server" 2>/dev/null
) <&4 >/dev/null 2>&1 &
watcher=$!
exec 4<&-
wait "$server"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
`;

export interface ServerProcessOptions {
  readonly binary: ServerBinary;
  /** The PATH of the shell; nothing else of our environment is passed on, since it may hold secrets. */
  readonly path: string;
  /** Lines of redis.conf. */
  readonly config: string;
  /** Gets each line it says. */
  onLine?(line: string): void;
}

export function startServer({ binary, path, config, onLine }: ServerProcessOptions): ServerProcess {
  const child = spawn('/bin/sh', ['-c', LIFELINE, 'homing-redis', binary.file, binary.libraryPath ?? ''], {
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    // A session of its own: Ctrl-C in the terminal is ours to handle, and Redis stays until we are done.
    detached: true,
    env: { PATH: path },
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    let line = '';
    stream?.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-KEPT_OUTPUT_CHARACTERS);
      const lines = (line + text).split('\n');
      line = (lines.pop() ?? '').slice(-KEPT_OUTPUT_CHARACTERS);
      for (const whole of lines) onLine?.(whole);
    });
  }
  const settings = child.stdio[3];
  if (settings === undefined || settings === null || !('end' in settings)) throw new Error('no pipe for the settings');
  // A server that ends at once closes them; its exit is what counts.
  settings.on('error', () => undefined);
  child.stdin?.on('error', () => undefined);
  settings.end(config);
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', () => resolve(said.trim()));
  });

  const stop = async () => {
    child.stdin?.end();
    const limit = new AbortController();
    const late = delay(STOP_TIMEOUT_MS, 'late', { signal: limit.signal }).catch(() => 'over');
    if ((await Promise.race([ended, late])) === 'late' && child.pid !== undefined) {
      killSession(child.pid);
      await ended;
    }
    limit.abort();
  };
  let stopping: Promise<void> | undefined;
  return {
    ended,
    stop() {
      stopping ??= stop();
      return stopping;
    },
  };
}

/** The shell and the server. */
function killSession(leaderPid: number): void {
  try {
    process.kill(-leaderPid, 'SIGKILL');
  } catch {
    // Gone in this moment.
  }
}
