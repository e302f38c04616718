/** `homing sessions`: the open sessions of a conversation. */
import { Command } from 'commander';
import type { SessionSummary } from '../domain/ports.js';
import { askJson } from './http.js';
import { type AddressFlags, findNode, withAddress } from './node-address.js';
import { conversation } from './options.js';
import { age, terminalWidth, watchPipes, write } from './output.js';
import { readPages } from './pages.js';
import { styleFor } from './style.js';
import { table } from './table.js';

interface SessionsFlags extends AddressFlags {
  readonly conversation: string;
  readonly json?: boolean;
}

export function sessionsCommand(): Command {
  const command = new Command('sessions')
    .description('list the open sessions of a conversation, latest user activity first')
    .option('-c, --conversation <name>', 'conversation', conversation, 'default')
    .option('--json', 'one JSON object a line')
    .addHelpText('after', '\nExample:\n  homing sessions -c build --json');
  return withAddress(command).action(async (flags: SessionsFlags) => {
    watchPipes();
    const node = findNode(flags, process.env);
    const path = `/v1/conversations/${encodeURIComponent(flags.conversation)}/sessions`;
    const sessions = await readPages(async (query) => {
      const { sessions: items, next } = await askJson<{ sessions: SessionSummary[]; next?: string | number }>(
        node,
        'GET',
        path + query,
      );
      return { items, next };
    });
    if (flags.json) {
      for (const session of sessions) await write(process.stdout, `${JSON.stringify(session)}\n`);
      return;
    }
    const nowMs = Date.now();
    const rows = sessions.map(({ sessionId, state, lastActiveAt, owned, nodeId }) => [
      sessionId,
      state,
      age(lastActiveAt, nowMs),
      String(owned),
      nodeId || '-',
    ]);
    const style = styleFor(process.stdout, process.env);
    const columns = [
      { title: 'SESSION' },
      { title: 'STATE', paint: (state: string) => (state === 'live' ? style.good(state) : style.risky(state)) },
      { title: 'ACTIVE' },
      { title: 'OWNS' },
      { title: 'NODE', dispensable: true },
    ];
    await write(process.stdout, table(columns, rows, terminalWidth()));
  });
}
