/**
 * Reads the pipes of a command and hands out its output as chunks.
 *
 * - The first bytes after a quiet time go at once, what follows within 16 ms goes together, 32 KiB go at once.
 * - Reading is never stopped for anyone downstream; each pipe is read into one buffer that is used again and again, so a
 *   flood makes no garbage here.
 * - Secrets are masked before anything else sees the bytes (CO10).
 * - A chunk never ends inside a UTF-8 character, unless it is the very last.
 */
import { Socket } from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { CHUNK_BYTES, type Chunker, createChunker } from '../domain/chunker.js';
import type { Mask, MaskStream } from '../domain/mask.js';
import type { OutputSource } from './process.js';

const COALESCE_MS = 16;
/** What may be the beginning of a secret waits this long for the rest. */
const MASK_IDLE_MS = 250;
const READ_BYTES = 64 * 1024;
const LOOK_EVERY_MS = 10;
/** A terminal has no end while we hold it open, so quiet must do, after everything that was written has come. */
const TERMINAL_IDLE_MS = 100;
/** Only one whose output is stopped, or that somebody fills without a pause, takes longer. */
const TERMINAL_DRAINED_WITHIN_MS = 2_000;

export interface Output {
  /** When bytes last came, on the clock of `performance.now()`. */
  readonly lastByteAtMs: number;
  /**
   * Resolves when every pipe is at its end, or nothing came for `idleMs`, or `maxMs` have passed (CO6); of a terminal, before that,
   * when everything written in it until now has come, or two seconds have passed.
   */
  settled(idleMs: number, maxMs: number): Promise<void>;
  /** Hands out what waits and lets go of the pipes. Idempotent. */
  close(): void;
}

interface Stream {
  readonly name: OutputSource['stream'];
  readonly mask: MaskStream;
  readonly chunker: Chunker;
  readonly socket: Socket;
  ended: boolean;
}

/**
 * @param sink takes the chunks of all streams in order of arrival; the bytes are its own until it gives them back
 * @param allocate gives a block of exactly this size
 */
export function createOutput(
  sources: readonly OutputSource[],
  mask: Pick<Mask, 'stream'>,
  sink: (stream: OutputSource['stream'], bytes: Uint8Array) => void,
  allocate: (bytes: number) => Uint8Array,
): Output {
  let closed = false;
  let lastByteAtMs = performance.now();
  let flushedAtMs = Number.NEGATIVE_INFINITY;
  let timer: NodeJS.Timeout | undefined;
  let idleTimer: NodeJS.Timeout | undefined;
  let tellEnd: () => void = () => {};
  const ended = new Promise<void>((resolve) => {
    tellEnd = resolve;
  });

  const streams: Stream[] = sources.map((source) => {
    const stream: Stream = {
      name: source.stream,
      mask: mask.stream(),
      chunker: createChunker(CHUNK_BYTES, allocate),
      socket: read(
        source,
        (bytes) => take(stream, bytes),
        () => {
          stream.ended = true;
          if (allEnded()) tellEnd();
        },
      ),
      ended: false,
    };
    return stream;
  });
  const allEnded = () => streams.every(({ ended }) => ended);

  function take(stream: Stream, bytes: Uint8Array): void {
    if (closed) return;
    lastByteAtMs = performance.now();
    pass(stream, stream.mask.push(bytes));
    if (stream.mask.heldBytes > 0 && idleTimer === undefined) idleTimer = setTimeout(showHeld, MASK_IDLE_MS);
    if (stream.chunker.waitingBytes === 0 || timer !== undefined) return;
    const waitMs = flushedAtMs + COALESCE_MS - lastByteAtMs;
    if (waitMs <= 0) flush();
    else timer = setTimeout(flush, waitMs);
  }

  function pass({ name, chunker }: Stream, shown: readonly Uint8Array[]): void {
    for (const bytes of shown) for (const chunk of chunker.push(bytes)) sink(name, chunk);
  }

  /** A prompt that begins like a secret must not look stuck. */
  function showHeld(): void {
    idleTimer = undefined;
    const quietMs = performance.now() - lastByteAtMs;
    if (quietMs < MASK_IDLE_MS) {
      idleTimer = setTimeout(showHeld, MASK_IDLE_MS - quietMs + 1);
      return;
    }
    for (const stream of streams) pass(stream, stream.mask.idle());
    flush();
  }

  function flush(): void {
    clearTimeout(timer);
    timer = undefined;
    flushedAtMs = performance.now();
    for (const stream of streams) {
      const chunk = stream.chunker.flush();
      if (chunk !== undefined) sink(stream.name, chunk);
    }
  }

  async function terminalsDrained(): Promise<void> {
    const drained = sources.map((source) => (source.stream === 'pty' ? source.pty.drained() : undefined));
    if (drained.every((promise) => promise === undefined)) return;
    await Promise.race([Promise.all(drained), ended, sleep(TERMINAL_DRAINED_WITHIN_MS)]);
  }

  return {
    get lastByteAtMs() {
      return lastByteAtMs;
    },
    async settled(idleMs, maxMs) {
      const hasPipes = sources.some((source) => source.stream !== 'pty');
      const quietMs = hasPipes ? idleMs : Math.min(idleMs, TERMINAL_IDLE_MS);
      await terminalsDrained();
      const deadlineMs = performance.now() + maxMs;
      const quietSince = performance.now();
      while (!allEnded() && performance.now() < deadlineMs) {
        // Mostly the pipe ends with its program, and nobody waits for the next look.
        await Promise.race([ended, sleep(LOOK_EVERY_MS)]);
        // Timers run before reads: after a busy turn the pipe may be full although nothing was read for long.
        await nextTurn();
        if (performance.now() - Math.max(lastByteAtMs, quietSince) >= quietMs) return;
      }
    },
    close() {
      if (closed) return;
      clearTimeout(timer);
      clearTimeout(idleTimer);
      for (const source of sources) if (source.stream === 'pty') source.pty.close();
      for (const stream of streams) {
        pass(stream, stream.mask.end());
        const chunk = stream.chunker.end();
        if (chunk !== undefined) sink(stream.name, chunk);
        stream.socket.destroy();
      }
      closed = true;
    },
  };
}

/** @param onBytes gets a view into a buffer that is filled again afterwards */
function read(source: OutputSource, onBytes: (bytes: Uint8Array) => void, onEnd: () => void): Socket {
  if (source.stream === 'pty') return source.pty.read(Buffer.allocUnsafe(READ_BYTES), onBytes, onEnd);
  const { readFd } = source;
  const options = {
    fd: readFd,
    readable: true,
    writable: false,
    onread: {
      buffer: Buffer.allocUnsafe(READ_BYTES),
      callback: (count: number, buffer: Uint8Array) => {
        onBytes(buffer.subarray(0, count));
        return true;
      },
    },
  };
  const socket = new Socket(options);
  // An error of a pipe we only read is its end: what was read before it counts.
  socket.on('error', onEnd);
  socket.on('close', onEnd);
  socket.on('end', onEnd);
  return socket;
}
