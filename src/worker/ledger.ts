/**
 * What this host has started, in files that outlive Redis and the worker: a command that stands there is never started here
 * again (CO2), also when a Redis that lost its last writes gives it out once more.
 *
 * - Written and synced before the start. Starts at the same time share one sync.
 * - All workers of a host append to the same file; its order decides between them.
 * - One file for each hour, kept for `keepMs`; at most `MAX_STARTS` of the latest are remembered.
 */
import { type FileHandle, mkdir, open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, messageOf } from '../errors.js';
import type { ClaimId, CommandId } from '../protocol/ids.js';

export interface Ledger {
  /**
   * Resolves when the start is on the disk: true, or false when somebody's start of this command stands there already.
   * @throws Error when it can not be written; nothing may be started then
   */
  enter(commandId: CommandId, claimId: ClaimId): Promise<boolean>;
  close(): Promise<void>;
}

export interface LedgerOptions {
  /** Shared by the workers of this host; made when it is not there. */
  readonly folder: string;
  readonly keepMs: number;
  readonly nowMs: () => number;
}

const HOUR_MS = 3_600_000;
const LOOK_AROUND_MS = 60_000;
/** Clocks of processes on one host hardly differ, but one may sleep between looking at it and writing. */
const AROUND_TURN_MS = 120_000;
const BLOCK_BYTES = 16_384;
const MAX_STARTS = 100_000;
const NAME = /^starts-(\d+)\.log$/;

/** The line that stands first for a command. */
interface Start {
  readonly line: string;
  readonly name: string;
  /** Another file has one too, written at the same time at the turn of an hour: their order is not known. */
  contested: boolean;
}

interface Waiting {
  readonly commandId: CommandId;
  readonly line: string;
  resolve(first: boolean): void;
  reject(error: unknown): void;
}

/** @throws AppError INVALID_PARAMS with a sentence when the folder can not be used */
export async function openLedger({ folder, keepMs, nowMs }: LedgerOptions): Promise<Ledger> {
  const starts = new Map<string, Start>();
  /** How far each file was read. */
  const offsets = new Map<string, number>();
  let current: { readonly name: string; readonly file: FileHandle } | undefined;
  let lookedAroundMs = Number.NEGATIVE_INFINITY;
  let waiting: Waiting[] = [];
  let writing: Promise<void> | undefined;

  const hour = () => Math.floor(nowMs() / HOUR_MS);

  /** Takes in what others wrote since, in the file of now; in all of them now and then, and around the turn of an hour. */
  async function catchUp(): Promise<void> {
    if (current !== undefined && nowMs() - lookedAroundMs < LOOK_AROUND_MS && !nearTurn(nowMs())) {
      takeIn(current.name, await readNew(current.file, offsets.get(current.name) ?? 0));
    } else {
      lookedAroundMs = nowMs();
      await lookAround();
    }
    for (const commandId of starts.keys()) {
      if (starts.size <= MAX_STARTS) break;
      starts.delete(commandId);
    }
  }

  /** Reads all files, and tidies away what is kept no longer. */
  async function lookAround(): Promise<void> {
    const oldest = hour() - Math.ceil(keepMs / HOUR_MS);
    for (const name of (await readdir(folder)).sort()) {
      const of = NAME.exec(name)?.[1];
      if (of === undefined) continue;
      if (Number(of) < oldest) {
        offsets.delete(name);
        await rm(join(folder, name), { force: true });
        continue;
      }
      const file = await open(join(folder, name), 'r').catch(() => undefined);
      if (file === undefined) continue; // Somebody else tidied it away.
      try {
        takeIn(name, await readNew(file, offsets.get(name) ?? 0));
      } finally {
        await file.close();
      }
    }
  }

  /** Whole lines only: the rest is being written. */
  function takeIn(name: string, text: string): void {
    const whole = text.lastIndexOf('\n') + 1;
    offsets.set(name, (offsets.get(name) ?? 0) + whole);
    for (const line of text.slice(0, whole).split('\n')) {
      const [commandId = ''] = line.split(' ');
      if (commandId === '') continue;
      const before = starts.get(commandId);
      if (before === undefined) starts.set(commandId, { line, name, contested: false });
      else if (before.name !== name) before.contested = true;
    }
  }

  async function fileOfNow(): Promise<FileHandle> {
    const name = `starts-${hour()}.log`;
    if (current?.name === name) return current.file;
    const file = await open(join(folder, name), 'a+', 0o600);
    await current?.file.close();
    current = { name, file };
    return file;
  }

  async function writeAll(): Promise<void> {
    while (waiting.length > 0) {
      const batch = waiting;
      waiting = [];
      try {
        const file = await fileOfNow();
        // Begins a line of its own, whatever somebody else had no time to finish.
        await file.appendFile(`\n${batch.map(({ line }) => `${line}\n`).join('')}`);
        await file.datasync();
        await catchUp();
        for (const { commandId, line, resolve } of batch) {
          const start = starts.get(commandId);
          resolve(start?.line === line && !start.contested);
        }
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
  }

  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await fileOfNow();
    await catchUp();
  } catch (error) {
    const sentence = `HOMING_DATA_DIR: the ledger of starts can not be kept in ${folder} (${messageOf(error)})`;
    throw new AppError('INVALID_PARAMS', sentence, { cause: error });
  }

  return {
    enter(commandId, claimId) {
      // Without a sync: the first start was synced by whoever made it.
      if (starts.has(commandId)) return Promise.resolve(false);
      return new Promise((resolve, reject) => {
        waiting.push({ commandId, line: `${commandId} ${claimId}`, resolve, reject });
        writing ??= writeAll().finally(() => {
          writing = undefined;
        });
      });
    },
    async close() {
      await writing;
      await current?.file.close();
      current = undefined;
    },
  };
}

const nearTurn = (nowMs: number): boolean => {
  const sinceTurn = nowMs % HOUR_MS;
  return sinceTurn < AROUND_TURN_MS || sinceTurn > HOUR_MS - AROUND_TURN_MS;
};

async function readNew(file: FileHandle, offset: number): Promise<string> {
  let text = '';
  const block = Buffer.allocUnsafe(BLOCK_BYTES);
  for (let at = offset; ; ) {
    const { bytesRead } = await file.read(block, 0, BLOCK_BYTES, at);
    text += block.toString('latin1', 0, bytesRead);
    at += bytesRead;
    if (bytesRead < BLOCK_BYTES) return text;
  }
}
