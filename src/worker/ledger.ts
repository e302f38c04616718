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
  let waiting: Waiting[] = [];
  let writing: Promise<void> | undefined;

  const hour = () => Math.floor(nowMs() / HOUR_MS);

  /** Takes in what others wrote since. Whole lines only: the rest is being written. */
  async function catchUp(): Promise<void> {
    const oldest = hour() - Math.ceil(keepMs / HOUR_MS);
    for (const name of (await readdir(folder)).sort()) {
      const of = NAME.exec(name)?.[1];
      if (of === undefined) continue;
      if (Number(of) < oldest) {
        offsets.delete(name);
        await rm(join(folder, name), { force: true });
        continue;
      }
      const from = offsets.get(name) ?? 0;
      const text = await readFrom(join(folder, name), from);
      const whole = text.lastIndexOf('\n') + 1;
      offsets.set(name, from + whole);
      for (const line of text.slice(0, whole).split('\n')) {
        const [commandId = ''] = line.split(' ');
        if (commandId === '') continue;
        const before = starts.get(commandId);
        if (before === undefined) starts.set(commandId, { line, name, contested: false });
        else if (before.name !== name) before.contested = true;
      }
    }
    for (const commandId of starts.keys()) {
      if (starts.size <= MAX_STARTS) break;
      starts.delete(commandId);
    }
  }

  async function fileOfNow(): Promise<FileHandle> {
    const name = `starts-${hour()}.log`;
    if (current?.name === name) return current.file;
    const file = await open(join(folder, name), 'a', 0o600);
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

async function readFrom(path: string, offset: number): Promise<string> {
  const file = await open(path, 'r').catch(() => undefined);
  if (file === undefined) return ''; // Somebody else tidied it away.
  try {
    const { size } = await file.stat();
    if (size <= offset) return '';
    const bytes = Buffer.alloc(size - offset);
    await file.read(bytes, 0, bytes.length, offset);
    return bytes.toString('latin1');
  } finally {
    await file.close();
  }
}
