/** `homing completion`: prints a completion script, made from the commands themselves. */
import { Argument, Command } from 'commander';
import { type CompletedCommand, completionScript, SHELLS, type Shell } from './completion-scripts.js';
import { watchPipes, write } from './output.js';

/** @param program with every command added to it by the time this one runs */
export function completionCommand(program: Command): Command {
  return new Command('completion')
    .description('print a completion script for a shell')
    .addArgument(new Argument('<shell>', 'which one').choices(SHELLS))
    .addHelpText(
      'after',
      `
Put one of these into the start file of your shell.

Example:
  source <(homing completion bash)    # ~/.bashrc
  source <(homing completion zsh)     # ~/.zshrc, after compinit
  homing completion fish | source     # ~/.config/fish/config.fish`,
    )
    .action(async (shell: Shell) => {
      watchPipes();
      await write(process.stdout, completionScript(shell, program.commands.map(described)));
    });
}

function described(command: Command): CompletedCommand {
  const [first] = command.registeredArguments;
  return {
    name: command.name(),
    description: command.description(),
    options: command
      .createHelp()
      .visibleOptions(command)
      .map((option) => {
        const value = /[<[]([^\]>.]+)/.exec(option.flags)?.[1];
        return {
          flags: [option.short, option.long].filter((flag) => flag !== undefined),
          description: option.description,
          ...(value === undefined ? {} : { value }),
        };
      }),
    words: first?.argChoices ?? [],
    runsProgram: first?.variadic ?? false,
  };
}
