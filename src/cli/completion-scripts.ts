/** Completion scripts for shells, from what the program says about itself. Pure. */

export interface CompletedOption {
  /** `--port`, and `-c` where there is one. */
  readonly flags: readonly string[];
  readonly description: string;
  /** What its value is called; undefined for a switch. */
  readonly value?: string;
}

export interface CompletedCommand {
  readonly name: string;
  readonly description: string;
  readonly options: readonly CompletedOption[];
  /** Words its first argument may be. */
  readonly words: readonly string[];
  /** Whether its arguments are a program and that program's own. */
  readonly runsProgram: boolean;
}

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

export function completionScript(shell: Shell, commands: readonly CompletedCommand[]): string {
  switch (shell) {
    case 'bash':
      return bash(commands);
    case 'zsh':
      return zsh(commands);
    case 'fish':
      return fish(commands);
  }
}

const takesFolder = ({ value }: CompletedOption): boolean => value === 'dir';
const flagsOf = (options: readonly CompletedOption[]): string => options.flatMap(({ flags }) => flags).join(' ');
/** One line, for between single quotes. */
const plain = (text: string): string => text.replaceAll(/\s+/g, ' ').replaceAll("'", '’');
/** As `plain`, where zsh would read these as its own. */
const zshPlain = (text: string): string => plain(text).replaceAll(/[\\:[\]]/g, '\\$&');

function bash(commands: readonly CompletedCommand[]): string {
  const cases = commands.map(({ name, options, words, runsProgram }) => {
    const valued = options.filter(({ value }) => value !== undefined);
    const folders = flagsOf(valued.filter(takesFolder)).replaceAll(' ', '|');
    const others = flagsOf(valued.filter((option) => !takesFolder(option))).replaceAll(' ', '|');
    return [
      `    ${name})`,
      '      case "$before" in',
      ...(folders === '' ? [] : [`        ${folders}) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;`]),
      ...(others === '' ? [] : [`        ${others}) COMPREPLY=(); return ;;`]),
      '      esac',
      ...(runsProgram
        ? ['      [[ $word == -* ]] || { mapfile -t COMPREPLY < <(compgen -c -- "$word"); return; }']
        : []),
      `      mapfile -t COMPREPLY < <(compgen -W "${[...words, flagsOf(options)].join(' ').trim()}" -- "$word") ;;`,
    ].join('\n');
  });
  return `# Completion of homing for bash:  source <(homing completion bash)
_homing() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} command=\${COMP_WORDS[1]} at
  # After -- the words are those of another program.
  for ((at = 2; at < COMP_CWORD; at++)); do
    [[ \${COMP_WORDS[at]} == -- ]] || continue
    if ((at + 1 == COMP_CWORD)); then mapfile -t COMPREPLY < <(compgen -c -- "$word")
    else mapfile -t COMPREPLY < <(compgen -f -- "$word"); fi
    return
  done
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "${commands.map(({ name }) => name).join(' ')} --help --version" -- "$word")
    return
  fi
  case "$command" in
${cases.join('\n')}
  esac
}
complete -F _homing homing
`;
}

function zsh(commands: readonly CompletedCommand[]): string {
  const option = ({ flags, description, value }: CompletedOption): string[] => {
    const action = value === undefined ? '' : `:${zshPlain(value)}:${value === 'dir' ? '_files -/' : ''}`;
    return flags.map((flag) => `'*${flag}[${zshPlain(description)}]${action}'`);
  };
  const cases = commands.map(({ name, options, words, runsProgram }) => {
    const rest = runsProgram
      ? ["'*:::program:_normal'"]
      : words.length > 0
        ? [`'1:word:(${words.join(' ')})'`]
        : ["'*:argument:'"];
    return `    ${name}) _arguments -S ${[...options.flatMap(option), ...rest].join(' \\\n      ')} ;;`;
  });
  return `#compdef homing
# Completion of homing for zsh:  source <(homing completion zsh)
_homing() {
  local -a commands
  commands=(
${commands.map(({ name, description }) => `    '${name}:${zshPlain(description)}'`).join('\n')}
  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
${cases.join('\n')}
  esac
}
if [[ $funcstack[1] == _homing ]]; then _homing "$@"; else compdef _homing homing; fi
`;
}

function fish(commands: readonly CompletedCommand[]): string {
  const lines = commands.flatMap(({ name, description, options, words, runsProgram }) => [
    `complete -c homing -n __fish_use_subcommand -a ${name} -d '${plain(description)}'`,
    ...options.map((option) => {
      const flags = option.flags.map((flag) => (flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`));
      const value =
        option.value === undefined ? '' : takesFolder(option) ? " -r -a '(__fish_complete_directories)'" : ' -r';
      return `complete -c homing -n '__fish_seen_subcommand_from ${name}' ${flags.join(' ')}${value} -d '${plain(option.description)}'`;
    }),
    ...(words.length > 0
      ? [`complete -c homing -n '__fish_seen_subcommand_from ${name}' -a '${words.join(' ')}'`]
      : []),
    ...(runsProgram
      ? [`complete -c homing -n '__fish_seen_subcommand_from ${name}' -a '(__fish_complete_subcommand)'`]
      : []),
  ]);
  return `# Completion of homing for fish:  homing completion fish | source\ncomplete -c homing -f\n${lines.join('\n')}\n`;
}
