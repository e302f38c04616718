/** `homing run`: its options. What it does is in `run-here.ts`, which is loaded when it is needed. */
import { Command } from 'commander';
import { EXIT_OURS } from './arguments.js';
import { CliFault, faultOf } from './fault.js';
import { type AddressFlags, withAddress } from './node-address.js';
import { collect, conversation, duration, envPair } from './options.js';

export interface RunFlags extends AddressFlags {
  readonly conversation: string;
  readonly pty?: boolean;
  /** False for `--no-stdin`. */
  readonly stdin: boolean;
  readonly detach?: boolean;
  readonly json?: boolean;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly timeout?: number;
  readonly pool?: string;
  readonly label?: readonly string[];
}

export function runCommand(): Command {
  const command = new Command('run')
    .description('run a command on a worker and stream its output here')
    .argument('<argv...>', 'the program and its arguments, after --')
    .option('-c, --conversation <name>', 'conversation it belongs to', conversation, 'default')
    .option('--cwd <dir>', "folder on the worker's host")
    .option('-e, --env <name=value>', 'variable for the command; repeatable', envPair)
    .option('--timeout <duration>', 'end it after this, such as 90s or 10m', duration)
    .option('--pool <name>', 'pool whose workers may take it')
    .option('--label <name=value>', 'label for operators; repeatable', collect)
    .option('--detach', 'submit it, print its id, and go')
    .option('--pty', 'in a terminal of its own, which this one shows')
    .option('--no-stdin', 'give it no input and leave that of this program alone')
    .option('--json', 'its entries instead of its output, one a line, as JSON; with --detach the answer')
    .addHelpText(
      'after',
      `
Ctrl-C goes to the command; a second one kills it; a third one leaves it to itself.
Exit status: that of the command; 128+n for signal n; 124 timed out; 126 not executable; 127 not found; 125 otherwise.

Example:
  homing run -- sh -c 'echo hello; sleep 1; echo world'
  homing run -c build --timeout 10m --env CI=1 -- make test
  homing run --pty -- top
  id=$(homing run --detach -- sleep 60)`,
    )
    .passThroughOptions();
  return withAddress(command).action(async (argv: string[], flags: RunFlags) => {
    try {
      const { runHere } = await import('./run-here.js');
      process.exitCode = await runHere(argv, flags);
    } catch (error) {
      // Every failure of Homing itself has one status here, since the others belong to the command.
      const fault = faultOf(error) ?? new CliFault(EXIT_OURS, (error as Error).message);
      throw new CliFault(EXIT_OURS, ...fault.sentences);
    }
  });
}
