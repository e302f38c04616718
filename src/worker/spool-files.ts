/**
 * The disk part of the spools: output of commands that wait for Redis or for their rate, beyond what may be in memory.
 *
 * - One file for each command that needs one, mode 0600, of at most `HOMING_SPOOL_BYTES`. Its name is removed as soon as it
 *   is open: nobody else finds it, and however the worker dies, nothing of it stays on the disk.
 * - Calls are synchronous: what was put is out of memory when the call returns, so the bound is exact. They end in the page
 *   cache (32 KiB: about 15 µs); the same few MiB are written again and again, and given back when the spool is empty.
 * - A disk that is full or broken is said, once a while, and counted. The spool then holds its output in memory as if there
 *   were no disk, or states a gap; nothing fails.
 */
import { closeSync, ftruncateSync, mkdirSync, openSync, readdirSync, readSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { createExtents } from '../domain/extents.js';
import type { Log, Meter } from '../domain/ports.js';
import type { Shelf } from '../domain/spool.js';
import { messageOf } from '../errors.js';
import type { CommandId } from '../protocol/ids.js';

export interface SpoolFile extends Shelf {
  /** Lets go of the file and what is in it. Idempotent. */
  close(): void;
}

export interface SpoolFiles {
  /** Opens nothing before the first byte. The caller closes it. */
  of(commandId: CommandId, options: SpoolFileOptions): SpoolFile;
}

export interface SpoolFileOptions {
  readonly maxBytes: number;
  readonly allocate: (bytes: number) => Uint8Array;
  readonly log: Log;
  readonly meter: Pick<Meter, 'count'>;
}

/** After a failure the disk is left alone for a while. */
const REST_MS = 5_000;

/** @param folder made when it is needed; leftovers of workers that died in the moment between opening and removing go now */
export function createSpoolFiles(folder: string, nowMs: () => number): SpoolFiles {
  sweep(folder);
  return { of: (commandId, options) => createSpoolFile(join(folder, commandId), nowMs, options) };
}

function createSpoolFile(path: string, nowMs: () => number, options: SpoolFileOptions): SpoolFile {
  const { maxBytes, allocate, log, meter } = options;
  let extents = createExtents(maxBytes);
  let fd: number | undefined;
  let restUntilMs = Number.NEGATIVE_INFINITY;
  let closed = false;

  function failed(error: unknown, sentence: string): void {
    meter.count('homing_spool_disk_failures_total');
    if (nowMs() >= restUntilMs) log.warn({ error: messageOf(error) }, sentence);
    restUntilMs = nowMs() + REST_MS;
  }

  function giveBack(place: number, bytes: number): void {
    extents.giveBack(place, bytes);
    if (extents.usedBytes > 0 || fd === undefined) return;
    extents = createExtents(maxBytes);
    try {
      ftruncateSync(fd, 0);
    } catch {
      // It only takes room until the command is over.
    }
  }

  return {
    put(bytes) {
      if (closed || nowMs() < restUntilMs) return undefined;
      const place = extents.take(bytes.length);
      if (place === undefined) return undefined;
      try {
        fd ??= openNameless(path);
        writeAll(fd, bytes, place);
        return place;
      } catch (error) {
        failed(error, 'output can not wait on the disk, it waits in memory');
        giveBack(place, bytes.length);
        return undefined;
      }
    },
    take(place, bytes) {
      if (fd === undefined) return undefined;
      const into = allocate(bytes);
      try {
        readAll(fd, into, place);
        return into;
      } catch (error) {
        failed(error, 'output that waited on the disk can not be read, a gap is told');
        return undefined;
      } finally {
        giveBack(place, bytes);
      }
    },
    drop: giveBack,
    close() {
      closed = true;
      if (fd !== undefined) closeSync(fd);
      fd = undefined;
    },
  };
}

function openNameless(path: string): number {
  mkdirSync(join(path, '..'), { recursive: true, mode: 0o700 });
  const fd = openSync(path, 'w+', 0o600);
  rmSync(path, { force: true });
  return fd;
}

function writeAll(fd: number, bytes: Uint8Array, place: number): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done, bytes.length - done, place + done);
}

function readAll(fd: number, into: Uint8Array, place: number): void {
  for (let done = 0; done < into.length; ) {
    const count = readSync(fd, into, done, into.length - done, place + done);
    if (count === 0) throw new Error('the file is shorter than what was written');
    done += count;
  }
}

/** A file with a name is one that nobody writes to any more, or that is losing its name in this moment. */
function sweep(folder: string): void {
  try {
    for (const name of readdirSync(folder)) rmSync(join(folder, name), { force: true });
  } catch {
    // Not there yet, or not ours to tidy.
  }
}
