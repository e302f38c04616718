/** `homing up`: the whole product on one machine. */
import { Command } from 'commander';
import type { Settings } from '../config.js';
import { portFaults } from './child-environment.js';
import { wholeFrom } from './options.js';

export interface UpFlags {
  readonly port?: string;
  readonly opsPort?: string;
  readonly nodes: number;
  readonly workers: number;
  readonly dataDir?: string;
  /** False after --no-download. */
  readonly download: boolean;
}

export function upCommand(): Command {
  return new Command('up')
    .description('run everything on this machine: Redis, gateway nodes and workers')
    .option('--port <port>', 'port of the first node, 0 for any; node i listens on port + 10·i (HOMING_PORT)')
    .option('--ops-port <port>', 'port of its ops listener, likewise (HOMING_OPS_PORT)')
    .option('--nodes <count>', 'gateway nodes', wholeFrom(1), 1)
    .option('--workers <count>', 'workers', wholeFrom(0), 1)
    .option('--data-dir <dir>', "folder for Redis's data, the secret and run.json (HOMING_DATA_DIR)")
    .option('--no-download', 'never fetch a Redis: use the one on the PATH, or one fetched before')
    .addHelpText('after', '\nExample:\n  homing up --nodes 2 --workers 2')
    .action(async (flags: UpFlags) => {
      const overrides = { HOMING_PORT: flags.port, HOMING_OPS_PORT: flags.opsPort, HOMING_DATA_DIR: flags.dataDir };
      const { nodeFaults, readSettings } = await import('./settings.js');
      const faults = (settings: Settings) => [...nodeFaults(settings), ...portFaults(settings, flags.nodes)];
      const settings = readSettings(process.env, overrides, faults);
      const { up } = await import('./household.js');
      process.exitCode = await up(flags, settings);
    });
}
