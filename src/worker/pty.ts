/**
 * A terminal for one command.
 *
 * - The worker keeps the command's side of it open until the output was read: closed before, the kernel throws away what
 *   nobody has read yet (measured with 20 KB of `cat`: 40 of 200 short; kept open: none).
 * - The command becomes the leader of a session and opens the terminal itself, which makes it its controlling terminal:
 *   Ctrl-C, job control and SIGWINCH work as in any other.
 */
import { closeSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import { ReadStream } from 'node:tty';
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
  /** The programs in it get SIGWINCH. */
  resize(size: TerminalSize): void;
  /** After the output was read. Idempotent. */
  close(): void;
}

const END_OF_FILE = new Uint8Array([0x04]);

/** @throws when the host has no terminal to give */
export function openPty(size: TerminalSize): Pty {
  const native = loadNative();
  const { master, slave, pty: path } = native.open(size.cols, size.rows);
  let stream: ReadStream | undefined;
  let closed = false;

  const write = (bytes: Uint8Array): Promise<boolean> =>
    new Promise((resolve) => {
      if (closed || stream === undefined) resolve(false);
      else stream.write(bytes, (error) => resolve(error === null || error === undefined));
    });

  return {
    path,
    input: { write, end: async () => void (await write(END_OF_FILE)), close() {} },
    read(buffer, onBytes, onEnd) {
      const onread = {
        buffer,
        callback: (count: number, filled: Uint8Array) => {
          onBytes(filled.subarray(0, count));
          return true;
        },
      };
      stream = new ReadStream(master, { onread } as object);
      // EIO is how a terminal says that nobody is left at the other side.
      stream.on('error', onEnd);
      stream.on('close', onEnd);
      stream.resume();
      return stream;
    },
    resize({ cols, rows }) {
      if (!closed) native.resize(master, cols, rows);
    },
    close() {
      if (closed) return;
      closed = true;
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
