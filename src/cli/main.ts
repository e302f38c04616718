#!/usr/bin/env node
/** The program `homing`: its commands, and how they end. */
import { Command, CommanderError } from 'commander';
import { version } from '../ops/version.js';
import { EXIT_OURS } from './arguments.js';
import { completionCommand } from './completion.js';
import { doctorCommand } from './doctor.js';
import { CliFault, EXIT, faultOf } from './fault.js';
import { gatewayCommand } from './gateway.js';
import { killCommand } from './kill.js';
import { logsCommand } from './logs.js';
import { say } from './output.js';
import { psCommand } from './ps.js';
import { runCommand } from './run.js';
import { sessionsCommand } from './sessions.js';
import { tokenCommand } from './token.js';
import { upCommand } from './up.js';
import { workerCommand } from './worker.js';

function createProgram(): Command {
  const program = new Command('homing')
    .description(
      'Runs background commands anywhere in a cluster and brings their output home to the tab that started them.',
    )
    .version(version())
    .enablePositionalOptions()
    .showHelpAfterError('(add --help for what is possible)')
    .addHelpText('after', '\nExample:\n  homing up\n  homing run -- echo hello');
  const commands = [
    upCommand(),
    gatewayCommand(),
    workerCommand(),
    runCommand(),
    psCommand(),
    logsCommand(),
    killCommand(),
    sessionsCommand(),
    tokenCommand(),
    doctorCommand(),
    completionCommand(program),
  ];
  for (const command of commands) program.addCommand(command.copyInheritedSettings(program));
  for (const command of [program, ...commands]) command.exitOverride();
  return program;
}

/** @returns the exit status */
async function main(argv: readonly string[]): Promise<number> {
  try {
    await createProgram().parseAsync(argv);
    return Number(process.exitCode ?? 0);
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return 0; // --help and --version
      // The statuses below 125 belong to the command that `homing run` was to run.
      return argv[2] === 'run' ? EXIT_OURS : EXIT.usage;
    }
    const fault = faultOf(error);
    if (fault === undefined) throw error;
    for (const sentence of fault.sentences) say(sentence);
    return fault instanceof CliFault ? fault.status : EXIT.failure;
  }
}

// Whatever a library left open must not hold the process once its work is done.
process.exit(await main(process.argv));
