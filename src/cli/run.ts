/** `homing run`: runs a command as a session of its own, streams its output and ends as the command ended. */
import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import type { CommandHandle, Session } from '../client/index.js';
import { connect } from '../client/node.js';
import type { Outcome } from '../protocol/entries.js';
import type { CommandSpecInput } from '../protocol/methods.js';
import { EXIT_OURS, exitStatus } from './arguments.js';
import { CliFault, faultOf } from './fault.js';
import { askJson } from './http.js';
import { localSize, pipeInput, takeTerminal } from './input.js';
import { type AddressFlags, findNode, type NodeAddress, withAddress } from './node-address.js';
import { collect, conversation, duration, envPair, SIGNALS } from './options.js';
import { say, watchPipes, write } from './output.js';
import { createViewedCommand, isInside } from './viewed-command.js';

/** Someone sits in front of it: time for a node that restarts, no more. */
const CONNECT_TIMEOUT_MS = 5_000;

interface RunFlags extends AddressFlags {
  readonly conversation: string;
  readonly pty?: boolean;
  /** False for `--no-stdin`. */
  readonly stdin: boolean;
  readonly detach?: boolean;
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
    .addHelpText(
      'after',
      `
Exit status: that of the command; 128+n for signal n; 124 timed out; 126 not executable; 127 not found; 125 otherwise.

Example:
  homing run -- sh -c 'echo hello; sleep 1; echo world'
  homing run -c build --timeout 10m --env CI=1 -- make test`,
    )
    .passThroughOptions();
  return withAddress(command).action(async (argv: string[], flags: RunFlags) => {
    try {
      process.exitCode = await run(argv, flags);
    } catch (error) {
      // Every failure of Homing itself has one status here, since the others belong to the command.
      const fault = faultOf(error) ?? new CliFault(EXIT_OURS, (error as Error).message);
      throw new CliFault(EXIT_OURS, ...fault.sentences);
    }
  });
}

async function run(argv: string[], flags: RunFlags): Promise<number> {
  const node = findNode(flags, process.env);
  const inside = isInside(node, process.env);
  const spec: CommandSpecInput = {
    argv,
    streams: 'split',
    ...(flags.pty ? { pty: localSize() } : {}),
    // With nobody connected, a detached command would wait for its input for ever.
    ...(flags.stdin && !flags.pty && !flags.detach ? { stdin: 'pipe' } : {}),
    ...(flags.cwd === undefined ? {} : { cwd: flags.cwd }),
    ...(flags.env === undefined && !flags.pty ? {} : { env: { ...terminalType(flags), ...flags.env } }),
    ...(flags.pool === undefined ? {} : { pool: flags.pool }),
    ...(flags.timeout === undefined ? {} : { timeouts: { runMs: flags.timeout } }),
    ...(flags.label === undefined ? {} : { labels: labelsOf(flags.label) }),
  };
  if (inside) return flags.detach ? detach(node, { ...spec, detached: true }) : followInside(node, spec, flags);
  return flags.detach ? detach(node, spec, flags.conversation) : follow(node, spec, flags);
}

function labelsOf(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      return at < 1 ? [pair, ''] : [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}

/** @param conversationName absent inside of a command, which has one already */
async function detach(node: NodeAddress, spec: CommandSpecInput, conversationName?: string): Promise<number> {
  const commandId = await submitOverHttp(node, { ...spec, conversation: conversationName });
  await write(process.stdout, `${commandId}\n`);
  return 0;
}

/** What the terminal in front of the person understands. */
const terminalType = ({ pty }: RunFlags): Record<string, string> =>
  pty && process.env.TERM ? { TERM: process.env.TERM } : {};

/** Started by a command: the session that asked for that one is the origin of this one too, and owns it. */
async function followInside(node: NodeAddress, spec: CommandSpecInput, flags: RunFlags): Promise<number> {
  const handle = createViewedCommand(node, await submitOverHttp(node, spec));
  return attend(handle, flags);
}

async function submitOverHttp(node: NodeAddress, body: object): Promise<string> {
  const headers = { 'idempotency-key': randomUUID() };
  return (await askJson<{ commandId: string }>(node, 'POST', '/v1/commands', body, headers)).commandId;
}

async function follow(node: NodeAddress, spec: CommandSpecInput, flags: RunFlags): Promise<number> {
  const connectTimeoutMs = CONNECT_TIMEOUT_MS;
  const session = await connect({ ...node, conversation: flags.conversation, client: 'homing run', connectTimeoutMs });
  try {
    return await attend(await session.run(spec), flags, whenClosed(session));
  } finally {
    await session.close();
  }
}

/** What can be done to a command that one sees, whether one owns it or not. */
type AttendedCommand = Pick<CommandHandle, 'output' | 'ended' | 'kill' | 'write' | 'resize'>;

/** Prints it, passes on what comes from here, and waits for its end. @param lost rejects when there is no hope of that */
async function attend(handle: AttendedCommand, flags: RunFlags, lost?: Promise<never>): Promise<number> {
  const stopForwarding = forwardSignals(handle);
  const giveBack = flags.pty ? takeTerminal(handle) : () => undefined;
  const stopInput = flags.stdin ? pipeInput(handle) : () => undefined;
  try {
    const outcome = await Promise.race([print(handle), ...(lost === undefined ? [] : [lost])]);
    if (outcome.error !== undefined) say(outcome.error);
    return exitStatus(outcome, SIGNALS);
  } finally {
    giveBack();
    stopInput();
    stopForwarding();
  }
}

/** Writes the output to where it belongs, at the pace of the reader. */
async function print(handle: AttendedCommand): Promise<Outcome> {
  let readerGone = false;
  watchPipes(() => {
    readerGone = true;
    // As the shell would do it to a program that writes into a closed pipe.
    void handle.kill({ signal: 'SIGPIPE' }).catch(() => undefined);
  });
  for await (const item of handle.output) {
    if (readerGone) continue;
    if (item.type === 'gap') say(`${item.bytes ?? 'some'} bytes of output are missing here (${item.reason})`);
    else await write(item.stream === 'err' ? process.stderr : process.stdout, item.bytes);
  }
  return handle.ended;
}

/** Ctrl-C goes to the command; a second one ends it for sure. @returns stops forwarding */
function forwardSignals(handle: AttendedCommand): () => void {
  let asked = 0;
  const forward = (name: 'SIGINT' | 'SIGTERM' | 'SIGHUP') => {
    asked += 1;
    const wish = asked === 1 ? { signal: name } : { signal: 'SIGKILL', graceMs: 0 };
    // Refused only when the command is over, which shows by itself.
    void handle.kill(wish).catch(() => undefined);
  };
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const name of names) process.on(name, forward);
  return () => {
    for (const name of names) process.off(name, forward);
  };
}

/** Rejects when the session is over before the command is. */
function whenClosed(session: Session): Promise<never> {
  return new Promise((_resolve, reject) => {
    session.on('status', (state) => {
      if (state.state === 'closed') reject(new CliFault(EXIT_OURS, `The session ended: ${state.reason}.`));
    });
  });
}
