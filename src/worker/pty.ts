/**
 * A terminal for one command.
 *
 * - The worker keeps the command's side of it open until the output was read: closed before, the kernel throws away what
 *   nobody has read yet (measured with 20 KB of `cat`: 40 of 200 short; kept open: none).
 * - The command becomes the leader of a session and opens the terminal itself, which makes it its controlling terminal:
 *   Ctrl-C, job control and SIGWINCH work as in any other.
 * - What was written is handed on by the kernel when it finds the time, 4,095 bytes at once: on a busy host the last bytes came
 *   155 ms after the exit (measured). So the worker writes a mark behind them, and has everything when it has read that.
 */
import { closeSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import { ReadStream } from 'node:tty';
import { type MarkSearch, makeMark, searchMark } from './end-mark.js';
import type { InputSink } from './stdin.js';

/** What node-pty is built on. Its own `spawn` closes the terminal too early and hides the descriptors. */
interface NativePty {
  open(cols: number, rows: number): { readonly master: number; readonly slave: number; readonly pty: string };
  resize(master: number, cols: number, rows: number): void;
}

export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

export interface Pty {
  /** Of the device, for the command to open. */
  readonly path: string;
  /** What is written here is what the command reads; `end` types Ctrl-D. */
  readonly input: InputSink;
  /** Begins to read. To be called once. @param onBytes gets a view into a buffer that is filled again afterwards */
  read(buffer: Uint8Array, onBytes: (bytes: Uint8Array) => void, onEnd: () => void): Socket;
  /**
   * Resolves when everything that was written in it before was handed out, or when it is closed. While its output is stopped
   * (Ctrl-S), or whoever is left in it fills it, that may be never: the caller has a limit.
   */
  drained(): Promise<void>;
  /** The programs in it get SIGWINCH. */
  resize(size: TerminalSize): void;
  /** After the output was read. Idempotent. */
  close(): void;
}

const END_OF_FILE = new Uint8Array([0x04]);
/** For room for the mark. */
const TRY_AGAIN_MS = 10;

/** @throws when the host has no terminal to give */
export function openPty(size: TerminalSize): Pty {
  const native = loadNative();
  const { master, slave, pty: path } = native.open(size.cols, size.rows);
  let stream: ReadStream | undefined;
  let closed = false;
  let passOn: (bytes: Uint8Array) => void = () => {};
  let search: MarkSearch | undefined;
  let drain: { readonly done: Promise<void>; end(): void } | undefined;

  const write = (bytes: Uint8Array): Promise<boolean> =>
    new Promise((resolve) => {
      if (closed || stream === undefined) resolve(false);
      else stream.write(bytes, (error) => resolve(error === null || error === undefined));
    });

  /** @param rest of the mark */
  function writeMark(rest: Uint8Array): void {
    if (closed) return;
    let written = 0;
    try {
      written = writeSync(slave, rest);
    } catch (error) {
      // Hung up: nobody can write in it any more, and nothing will tell when the last was read.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') {
        drain?.end();
        return;
      }
    }
    if (written < rest.length) setTimeout(() => writeMark(rest.subarray(written)), TRY_AGAIN_MS).unref();
  }

  function startDrain(): Promise<void> {
    let end = () => {};
    const done = new Promise<void>((resolve) => {
      end = () => {
        search = undefined;
        drain = undefined;
        resolve();
      };
    });
    drain = { done, end };
    const mark = makeMark();
    search = searchMark(mark, (bytes) => passOn(bytes), end);
    writeMark(mark);
    return done;
  }

  return {
    path,
    input: { write, end: async () => void (await write(END_OF_FILE)), close() {} },
    read(buffer, onBytes, onEnd) {
      const onread = {
        buffer,
        callback: (count: number, filled: Uint8Array) => {
          const bytes = filled.subarray(0, count);
          if (search === undefined) onBytes(bytes);
          else search.push(bytes);
          return true;
        },
      };
      const over = () => {
        drain?.end();
        onEnd();
      };
      passOn = onBytes;
      stream = new ReadStream(master, { onread } as object);
      // EIO is how a terminal says that nobody is left at the other side.
      stream.on('error', over);
      stream.on('close', over);
      stream.resume();
      return stream;
    },
    async drained() {
      // Of an earlier one that was not waited for: its mark stands before ours.
      while (drain !== undefined) await drain.done;
      if (!closed) await startDrain();
    },
    resize({ cols, rows }) {
      if (!closed) native.resize(master, cols, rows);
    },
    close() {
      if (closed) return;
      closed = true;
      drain?.end();
      closeSync(slave);
      if (stream === undefined) closeSync(master);
      else stream.destroy();
    },
  };
}

/**
 * What to execute, as the leader of a new session without a terminal, for a program to run in this terminal: a shell
 * that opens it (which makes it the session's) and then becomes the program.
 */
export const inTerminal = (path: string, argv: readonly string[]): string[] => [
  '/bin/sh',
  '-c',
  'exec "$@" 0<>"$0" 1>&0 2>&0',
  path,
  ...argv,
];

function loadNative(): NativePty {
  const require = createRequire(import.meta.url);
  const { requireBinary } = require('@lydell/node-pty/requireBinary.js') as {
    requireBinary(file: string): NativePty;
  };
  return requireBinary('pty.node');
}
