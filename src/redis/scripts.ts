/**
 * Loads scripts/*.lua as commands of a connection. A script is sent whole once per socket and by its digest afterwards;
 * a server that forgot it gets it again. Files that begin with `_` are parts of others: `-- @include _file.lua`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import type { Cluster, Redis } from 'ioredis';
import { AppError } from '../errors.js';
import { asRedisError } from './redis-errors.js';

export type ScriptArgument = string | number | Buffer;

export interface Scripts {
  /**
   * Runs scripts/<name>.lua. Numbers arrive as text.
   * @throws AppError REDIS_UNAVAILABLE when Redis does not answer or refuses for now; the script may have run
   */
  run(name: string, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown>;
  /** The same with every text of the answer as bytes. */
  runForBytes(name: string, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown>;
}

type ScriptCommand = (keyCount: number, ...keysAndArgs: ScriptArgument[]) => Promise<unknown>;

const FOLDER = new URL('./scripts/', import.meta.url);
/** Without a shebang Redis runs a script in a legacy mode, where its flags do not hold (FAULTS O1). */
const SHEBANG = '#!lua';

/** @param folder where the scripts are; another one only in tests, to see a rule switched off */
export function createScripts(redis: Redis | Cluster, folder: URL = FOLDER): Scripts {
  const commands = new Map<string, ScriptCommand>();
  const byteCommands = new Map<string, ScriptCommand>();
  for (const file of readdirSync(folder)) {
    if (!file.endsWith('.lua') || file.startsWith('_')) continue;
    const name = file.slice(0, -'.lua'.length);
    const lua = readScript(folder, file, []);
    if (!lua.startsWith(SHEBANG)) throw new Error(`scripts/${file} must begin with ${SHEBANG}`);
    // The prefix keeps `append` and `touch` of ours apart from the commands of Redis.
    const commandName = `homing:${name}`;
    redis.defineCommand(commandName, { lua });
    const defined = redis as unknown as Record<string, ScriptCommand>;
    const command = defined[commandName];
    const byteCommand = defined[`${commandName}Buffer`];
    if (command === undefined || byteCommand === undefined) throw new Error(`scripts/${file} was not defined`);
    commands.set(name, command.bind(redis));
    byteCommands.set(name, byteCommand.bind(redis));
  }

  const runIn =
    (defined: ReadonlyMap<string, ScriptCommand>): Scripts['run'] =>
    async (name, keys, args) => {
      const command = defined.get(name);
      if (command === undefined) throw new Error(`there is no script ${name}`);
      try {
        return await command(keys.length, ...keys, ...args);
      } catch (error) {
        throw named(asRedisError(error), name, keys);
      }
    };
  return { run: runIn(commands), runForBytes: runIn(byteCommands) };
}

/** What is wrong with a key is said without its name by Redis. */
function named(error: unknown, name: string, keys: readonly string[]): unknown {
  if (error instanceof AppError || !(error instanceof Error)) return error;
  return new Error(`${error.message} (script ${name} on ${keys.join(', ')})`, { cause: error });
}

/** One script with its parts, as Redis gets it. */
export const scriptText = (name: string, folder: URL = FOLDER): string => readScript(folder, `${name}.lua`, []);

function readScript(folder: URL, file: string, within: readonly string[]): string {
  if (within.includes(file)) throw new Error(`scripts/${file} includes itself`);
  const text = readFileSync(new URL(file, folder), 'utf8');
  return text.replace(/^-- @include (\S+)\s*$/gm, (_line, part: string) => readScript(folder, part, [...within, file]));
}
