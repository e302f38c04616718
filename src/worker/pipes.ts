/**
 * Real pipes for the output of commands.
 *
 * What Node makes for `stdio: 'pipe'` is a socket pair: a program can not open it again as /dev/stderr ("No such device or
 * address"), and it can not be given to stdout and stderr at once, which is the only way to keep their true order. Named
 * pipes, opened at both ends and unlinked at once, are both, and nothing of them stays on the disk.
 */
import { execFile } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Made in one go; one run of mkfifo costs about 2 ms. */
const BATCH = 8;
const REFILL_BELOW = 4;
const MKFIFO_TIMEOUT_MS = 10_000;

export interface Pipe {
  /** Does not block. */
  readonly readFd: number;
  /** Blocks, as programs expect of their stdout. Not inherited unless it is given as stdio. */
  readonly writeFd: number;
}

export interface PipePool {
  /** The caller closes both ends. @throws when the host can make no pipe */
  take(): Promise<Pipe>;
  close(): void;
}

export function createPipePool(): PipePool {
  const ready: Pipe[] = [];
  let filling: Promise<void> | undefined;
  let closed = false;

  function fill(): Promise<void> {
    filling ??= makePipes(BATCH)
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
    async take() {
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

async function makePipes(count: number): Promise<Pipe[]> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-pipes-'));
  const pipes: Pipe[] = [];
  try {
    const paths = Array.from({ length: count }, (_, i) => join(folder, String(i)));
    await promisify(execFile)('mkfifo', ['-m', '600', ...paths], { timeout: MKFIFO_TIMEOUT_MS });
    for (const path of paths) {
      // The reading end first, or opening the writing end would wait for it.
      const readFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
      try {
        pipes.push({ readFd, writeFd: openSync(path, constants.O_WRONLY) });
      } catch (error) {
        closeSync(readFd);
        throw error;
      }
    }
    return pipes;
  } catch (error) {
    pipes.forEach(closePipe);
    throw new Error('pipes for output could not be made with mkfifo', { cause: error });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
