/** `homing worker`: one process that executes commands. */
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { Command } from 'commander';
import { dataDirOf } from './data-dir.js';

const MAIN = fileURLToPath(new URL('./main.js', import.meta.url));

export function workerCommand(): Command {
  return new Command('worker')
    .description('run one worker; settings come from the environment')
    .option('--pool <name>', 'pool whose commands it takes (HOMING_POOL)')
    .option('--concurrency <count>', 'commands at the same time (HOMING_CONCURRENCY)')
    .option('--ops-host <address>', 'address of its ops listener (HOMING_OPS_HOST)')
    .option('--ops-port <port>', 'port of its ops listener, 0 for any; none unless given (HOMING_WORKER_OPS_PORT)')
    .addHelpText(
      'after',
      '\nExample:\n  HOMING_REDIS_URL=redis://redis:6379 homing worker --pool builds --concurrency 4',
    )
    .action(async (flags: { pool?: string; concurrency?: string; opsHost?: string; opsPort?: string }) => {
      const overrides = {
        HOMING_POOL: flags.pool,
        HOMING_CONCURRENCY: flags.concurrency,
        HOMING_OPS_HOST: flags.opsHost,
        HOMING_WORKER_OPS_PORT: flags.opsPort,
      };
      // Only here: the client programs start faster without what a server needs.
      const { readSettings, workerFaults } = await import('./settings.js');
      const settings = readSettings(process.env, overrides, workerFaults);
      const dataDir = dataDirOf(settings, process.env);
      const surroundings = {
        hostEnv: process.env,
        defaultCwd: process.cwd(),
        dataDir,
        program: [process.execPath, MAIN],
      };
      tuneCollector();
      const [{ serve }, { startWorker }] = await Promise.all([import('./serve.js'), import('../compose.js')]);
      process.exitCode = await serve('worker', settings, (log, drainAsked) =>
        startWorker(settings, { log, drainAsked, ...surroundings }),
      );
    });
}

/**
 * Most of what waits lies outside of the heap, which is therefore collected each time that it grew by a fifth. Measured: of 1 GB
 * as shipped 128 MiB resident at the most in place of 172. (`--optimize-for-size` needs 86, and twice the CPU for output.)
 * Little survives, so one thread collects it: helpers only wait for cores that commands want (lines come 11 ms late in place of
 * 15 at p99).
 */
function tuneCollector(): void {
  setFlagsFromString('--heap-growing-percent=20');
  setFlagsFromString('--no-parallel-scavenge');
}
