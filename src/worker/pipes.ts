/**
 * Real pipes for the output and the stdin of commands.
 *
 * What Node makes for `stdio: 'pipe'` is a socket pair: a program can not open it again as /dev/stderr ("No such device or
 * address"), and it can not be given to stdout and stderr at once, which is the only way to keep their true order. Named
 * pipes, opened at both ends and unlinked at once, are both, and nothing of them stays on the disk. For a stdin the same holds of
 * /dev/stdin.
 */
import { execFile } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Made in one go: a run of mkfifo costs about 2 ms, and a command has up to three pipes. */
const BATCH = 24;
const REFILL_BELOW = 8;
const MKFIFO_TIMEOUT_MS = 10_000;

export interface Pipe {
  /** Does not block. */
  readonly readFd: number;
  /** Blocks, as programs expect of their stdout. Not inherited unless it is given as stdio. */
  readonly writeFd: number;
}

export interface PipePool {
  /** For output: reading does not block, writing does. The caller closes both ends. @throws when the host can make no pipe */
  take(): Promise<Pipe>;
  /** For a stdin: reading blocks, as programs expect, writing does not. */
  takeInput(): Promise<Pipe>;
  close(): void;
}

export function createPipePool(): PipePool {
  const outputs = createStock(openOutputPipe);
  const inputs = createStock(openInputPipe);
  return {
    take: outputs.take,
    takeInput: inputs.take,
    close() {
      outputs.close();
      inputs.close();
    },
  };
}

/** Pipes of one kind, made ahead from the first use on. */
function createStock(open: (path: string) => Pipe) {
  const ready: Pipe[] = [];
  let filling: Promise<void> | undefined;
  let closed = false;

  function fill(): Promise<void> {
    filling ??= makePipes(BATCH, open)
      .then((pipes) => {
        ready.push(...pipes);
        if (closed) closeAll();
      })
      .finally(() => {
        filling = undefined;
      });
    return filling;
  }

  function closeAll(): void {
    for (const pipe of ready.splice(0)) closePipe(pipe);
  }

  return {
    async take(): Promise<Pipe> {
      while (ready.length === 0) {
        if (closed) throw new Error('the pipe pool is closed');
        await fill();
      }
      const pipe = ready.shift() as Pipe;
      // A failure here is told by the next take that finds nothing.
      if (ready.length < REFILL_BELOW && !closed) fill().catch(() => {});
      return pipe;
    },
    close() {
      closed = true;
      closeAll();
    },
  };
}

export function closePipe({ readFd, writeFd }: Pipe): void {
  closeSync(readFd);
  closeSync(writeFd);
}

function openOutputPipe(path: string): Pipe {
  // The reading end first, or opening the writing end would wait for it.
  const readFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return { readFd, writeFd: openSync(path, constants.O_WRONLY) };
  } catch (error) {
    closeSync(readFd);
    throw error;
  }
}

/** Opens a named pipe for a stdin: reading blocks, writing does not. The caller closes both ends. */
export function openInputPipe(path: string): Pipe {
  // Opened for both ways first, which never waits, so that neither end waits for the other.
  const both = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  try {
    const readFd = openSync(path, constants.O_RDONLY);
    try {
      return { readFd, writeFd: openSync(path, constants.O_WRONLY | constants.O_NONBLOCK) };
    } catch (error) {
      closeSync(readFd);
      throw error;
    }
  } finally {
    closeSync(both);
  }
}

async function makePipes(count: number, open: (path: string) => Pipe): Promise<Pipe[]> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-pipes-'));
  const pipes: Pipe[] = [];
  try {
    const paths = Array.from({ length: count }, (_, i) => join(folder, String(i)));
    await promisify(execFile)('mkfifo', ['-m', '600', ...paths], { timeout: MKFIFO_TIMEOUT_MS });
    for (const path of paths) pipes.push(open(path));
    return pipes;
  } catch (error) {
    pipes.forEach(closePipe);
    throw new Error('pipes could not be made with mkfifo', { cause: error });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
