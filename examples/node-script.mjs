/**
 * Runs one command and prints what it prints, through lost connections and node restarts.
 *
 *   HOMING_URL=http://127.0.0.1:7420 HOMING_TOKEN=… node examples/node-script.mjs 'make test'
 */
import { connect } from 'homing/client';

const session = await connect({
  url: process.env.HOMING_URL ?? 'http://127.0.0.1:7420',
  token: process.env.HOMING_TOKEN ?? '',
  conversation: process.env.HOMING_CONVERSATION ?? 'default',
});
session.on('status', (state) => {
  if (state.state === 'away') console.error(`connection lost, next attempt in ${state.delayMs} ms`);
});

const command = await session.run({ script: process.argv[2] ?? 'echo hello' });
// Ctrl-C ends the command, and with it this loop.
process.once('SIGINT', () => void command.kill({ signal: 'SIGINT' }));
for await (const text of command.text()) process.stdout.write(text);

const { reason, code } = await command.ended;
await session.close();
process.exitCode = reason === 'exited' ? (code ?? 1) : 1;
