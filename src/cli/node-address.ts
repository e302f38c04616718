/** Which node the client programs talk to, and with what token: flags, then HOMING_URL/HOMING_TOKEN, then run.json. */
import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { dataDirOf, readRunFile } from './data-dir.js';
import { type Env, resolveFiles } from './env-files.js';
import { CliFault, EXIT } from './fault.js';

export interface NodeAddress {
  readonly url: string;
  /** '' where the node asks for none. */
  readonly token: string;
}

export interface AddressFlags {
  readonly url?: string;
  readonly token?: string;
  readonly dataDir?: string;
}

/** The options every client program has. */
export function withAddress(command: Command): Command {
  return command
    .option('--url <url>', 'address of a node (HOMING_URL)')
    .option('--token <token>', 'token (HOMING_TOKEN, or HOMING_TOKEN_FILE to keep it out of the process list)')
    .option('--data-dir <dir>', 'data folder of the "homing up" to talk to (HOMING_DATA_DIR)');
}

/** @throws CliFault */
export function findNode(flags: AddressFlags, env: Env): NodeAddress {
  const files = resolveFiles(env, ['HOMING_TOKEN'], (path) => readFileSync(path, 'utf8'));
  if (files.faults.length > 0) throw new CliFault(EXIT.usage, ...files.faults);
  const url = flags.url ?? (env.HOMING_URL || undefined);
  const token = flags.token ?? (files.env.HOMING_TOKEN || undefined);
  if (url !== undefined && !/^(https?|wss?):\/\/./.test(url)) {
    throw new CliFault(EXIT.usage, `"${url}" is not the address of a node: it must begin with http:// or https://`);
  }
  if (url !== undefined && token !== undefined) return { url, token };
  const run = readRunFile(dataDirOf({ HOMING_DATA_DIR: flags.dataDir ?? (env.HOMING_DATA_DIR || undefined) }, env));
  // The token of run.json goes to the node it was made for and to no other.
  if (url !== undefined) return { url, token: run?.url === url ? (run.token ?? '') : '' };
  if (run === undefined) {
    throw new CliFault(
      EXIT.failure,
      'No Homing is running here: start it with "homing up", or name a node with --url or HOMING_URL.',
    );
  }
  return { url: run.url, token: token ?? run.token ?? '' };
}
