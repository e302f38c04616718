/** `homing ps`: the commands of a conversation. */
import { Command } from 'commander';
import type { CommandSnapshot } from '../protocol/methods.js';
import { askJson } from './http.js';
import { type AddressFlags, findNode, withAddress } from './node-address.js';
import { conversation } from './options.js';
import { age, printable, terminalWidth, watchPipes, write } from './output.js';
import { readPages } from './pages.js';
import { type Style, styleFor } from './style.js';
import { table } from './table.js';

interface PsFlags extends AddressFlags {
  readonly conversation: string;
  readonly all?: boolean;
  readonly json?: boolean;
}

export function psCommand(): Command {
  const command = new Command('ps')
    .description('list the commands of a conversation, newest first')
    .option('-c, --conversation <name>', 'conversation', conversation, 'default')
    .option('-a, --all', 'those that are over, too')
    .option('--json', 'one JSON object a line')
    .addHelpText('after', '\nExample:\n  homing ps -c build --all');
  return withAddress(command).action(async (flags: PsFlags) => {
    watchPipes();
    const node = findNode(flags, process.env);
    const path = `/v1/conversations/${encodeURIComponent(flags.conversation)}/commands`;
    const commands = await readPages(async (query) => {
      const { commands: items, next } = await askJson<{ commands: CommandSnapshot[]; next?: string }>(
        node,
        'GET',
        path + query,
      );
      return { items, next };
    });
    const shown = commands.filter(({ state }) => flags.all || state !== 'ended');
    if (flags.json) {
      for (const snapshot of shown) await write(process.stdout, `${JSON.stringify(snapshot)}\n`);
      return;
    }
    const nowMs = Date.now();
    const rows = shown.map((snapshot) => [
      snapshot.commandId,
      stateOf(snapshot),
      age(snapshot.createdAt, nowMs),
      snapshot.ownerSessionId ?? '-',
      programOf(snapshot),
    ]);
    const style = styleFor(process.stdout, process.env);
    const columns = [
      { title: 'COMMAND' },
      { title: 'STATE', paint: (state: string) => paintState(state, style) },
      { title: 'AGE' },
      { title: 'OWNER', dispensable: true },
      { title: 'PROGRAM', shrinks: true },
    ];
    await write(process.stdout, table(columns, rows, terminalWidth()));
  });
}

function stateOf({ state, outcome, position }: CommandSnapshot): string {
  if (state === 'queued' && position !== undefined) return `${state} ${position}`;
  if (outcome === undefined) return state;
  if (outcome.code !== null && outcome.reason === 'exited') return `exited ${outcome.code}`;
  return outcome.signal === null ? outcome.reason : `${outcome.reason} ${outcome.signal}`;
}

function paintState(state: string, style: Style): string {
  if (state === 'running') return style.good(state);
  if (state.startsWith('queued')) return style.risky(state);
  return state === 'exited 0' ? style.faint(state) : style.broken(state);
}

/** More of it belongs into --json. */
const WIDEST = 200;

function programOf({ argv, script }: CommandSnapshot): string {
  const text = printable(argv?.join(' ') ?? script ?? '');
  return text.length > WIDEST ? `${text.slice(0, WIDEST - 1)}…` : text;
}
