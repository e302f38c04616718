/** `homing kill`: asks for the end of a command. */
import { Command } from 'commander';
import { askJson } from './http.js';
import { type AddressFlags, findNode, withAddress } from './node-address.js';
import { duration, signal } from './options.js';
import { watchPipes, write } from './output.js';

interface KillFlags extends AddressFlags {
  readonly signal?: string;
  readonly grace?: number;
  readonly json?: boolean;
}

export function killCommand(): Command {
  const command = new Command('kill')
    .description('end a command: a signal first, SIGKILL after a grace')
    .argument('<id>', 'the command')
    .option('-s, --signal <name>', 'first signal (SIGTERM)', signal)
    .option('--grace <duration>', 'time to end by itself, such as 500ms or 2s', duration)
    .option('--json', 'the answer as JSON')
    .addHelpText('after', '\nExample:\n  homing kill --signal INT --grace 5s cmd_…');
  return withAddress(command).action(async (id: string, flags: KillFlags) => {
    watchPipes();
    const node = findNode(flags, process.env);
    const body = {
      ...(flags.signal === undefined ? {} : { signal: flags.signal }),
      ...(flags.grace === undefined ? {} : { graceMs: flags.grace }),
    };
    const path = `/v1/commands/${encodeURIComponent(id)}/kill`;
    const answer = await askJson<{ state: string }>(node, 'POST', path, body);
    await write(process.stdout, `${flags.json ? JSON.stringify(answer) : answer.state}\n`);
  });
}
