/** `homing gateway`: one node of a cluster. */
import { Command } from 'commander';

export function gatewayCommand(): Command {
  return new Command('gateway')
    .description('run one gateway node; settings come from the environment')
    .option('--host <address>', 'address to listen on (HOMING_HOST)')
    .option('--port <port>', 'port to listen on, 0 for any (HOMING_PORT)')
    .option('--ops-host <address>', 'address of the ops listener (HOMING_OPS_HOST)')
    .option('--ops-port <port>', 'port of the ops listener, 0 for any (HOMING_OPS_PORT)')
    .addHelpText('after', '\nExample:\n  HOMING_REDIS_URL=redis://redis:6379 homing gateway --host 0.0.0.0')
    .action(async (flags: { host?: string; port?: string; opsHost?: string; opsPort?: string }) => {
      const overrides = {
        HOMING_HOST: flags.host,
        HOMING_PORT: flags.port,
        HOMING_OPS_HOST: flags.opsHost,
        HOMING_OPS_PORT: flags.opsPort,
      };
      // Only here: the client programs start faster without what a server needs.
      const { nodeFaults, readSettings } = await import('./settings.js');
      const settings = readSettings(process.env, overrides, nodeFaults);
      const [{ serve }, { startNode }] = await Promise.all([import('./serve.js'), import('../compose.js')]);
      process.exitCode = await serve('gateway', settings, (log, drainAsked) =>
        startNode(settings, { log, drainAsked }),
      );
    });
}
