/** Runs a command as a session of its own, streams what it writes, passes on what is typed, and ends as it ended. */
import { randomUUID } from 'node:crypto';
import type { Session } from '../client/index.js';
import { connect } from '../client/node.js';
import type { Outcome } from '../protocol/entries.js';
import type { CommandSnapshot, CommandSpecInput } from '../protocol/methods.js';
import { EXIT_OURS, exitStatus } from './arguments.js';
import { CliFault } from './fault.js';
import { askJson } from './http.js';
import { localSize, pipeInput, takeTerminal } from './input.js';
import { findNode, type NodeAddress } from './node-address.js';
import { SIGNALS } from './options.js';
import { say, watchPipes, write } from './output.js';
import type { RunFlags } from './run.js';
import { type AttendedCommand, createViewedCommand, isInside } from './viewed-command.js';
import { tellConnection, tellQueue } from './waiting.js';

/** Someone sits in front of it: time for a node that restarts, no more. */
const CONNECT_TIMEOUT_MS = 5_000;
/** A command that ends on Ctrl-C within this needs no word about it. */
const SAY_AFTER_MS = 1_000;

/** @returns the exit status */
export async function runHere(argv: string[], flags: RunFlags): Promise<number> {
  const node = findNode(flags, process.env);
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
  if (isInside(node, process.env)) {
    return flags.detach ? detach(node, { ...spec, detached: true }, flags) : followInside(node, spec, flags);
  }
  const { conversation } = flags;
  return flags.detach ? detach(node, { ...spec, conversation }, flags) : follow(node, spec, flags);
}

function labelsOf(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      return at < 1 ? [pair, ''] : [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}

/** What the terminal in front of the person understands. */
const terminalType = ({ pty }: RunFlags): Record<string, string> =>
  pty && process.env.TERM ? { TERM: process.env.TERM } : {};

/** @param body a spec, with a conversation unless it runs inside of a command, which has one already */
async function submitOverHttp(node: NodeAddress, body: object): Promise<{ readonly commandId: string }> {
  return askJson(node, 'POST', '/v1/commands', body, { 'idempotency-key': randomUUID() });
}

async function detach(node: NodeAddress, body: object, flags: RunFlags): Promise<number> {
  const answer = await submitOverHttp(node, body);
  await write(process.stdout, `${flags.json ? JSON.stringify(answer) : answer.commandId}\n`);
  return 0;
}

/** Started by a command: the session that asked for that one is the origin of this one too, and owns it. */
async function followInside(node: NodeAddress, spec: CommandSpecInput, flags: RunFlags): Promise<number> {
  const { commandId } = await submitOverHttp(node, spec);
  const ask = () => askJson<CommandSnapshot>(node, 'GET', `/v1/commands/${encodeURIComponent(commandId)}`);
  return attend(createViewedCommand(node, commandId), flags, ask);
}

async function follow(node: NodeAddress, spec: CommandSpecInput, flags: RunFlags): Promise<number> {
  const { conversation } = flags;
  const session = await connect({ ...node, conversation, client: 'homing run', connectTimeoutMs: CONNECT_TIMEOUT_MS });
  const stopTelling = tellConnection(session, node.url);
  try {
    const handle = await session.run(spec);
    const { commandId } = handle;
    const ask = async () => (await session.request('command.get', { commandId })) as CommandSnapshot;
    return await attend(handle, flags, ask, whenClosed(session));
  } finally {
    stopTelling();
    await session.close();
  }
}

/**
 * Prints it, passes on what comes from here, and waits for its end. @returns the exit status
 * @param ask what is known of it @param lost rejects when there is no hope of an end
 */
async function attend(
  handle: AttendedCommand,
  flags: RunFlags,
  ask: () => Promise<Partial<CommandSnapshot>>,
  lost?: Promise<never>,
): Promise<number> {
  const queue = tellQueue(ask);
  const left = forwardSignals(handle);
  const giveBack = flags.pty ? takeTerminal(handle) : () => undefined;
  const stopInput = flags.stdin ? pipeInput(handle) : () => undefined;
  try {
    const printed = print(handle, flags.json ?? false, queue.over);
    const outcome = await Promise.race([printed, left.byThirdSignal, ...(lost === undefined ? [] : [lost])]);
    if (outcome === 'left') return 128 + (SIGNALS.SIGINT as number);
    if (outcome.error !== undefined) say(outcome.error);
    return exitStatus(outcome, SIGNALS);
  } finally {
    queue.over();
    giveBack();
    stopInput();
    left.stop();
  }
}

/** Writes the output to where it belongs, at the pace of the reader. @param onItem called with each */
async function print(handle: AttendedCommand, json: boolean, onItem: () => void): Promise<Outcome> {
  let readerGone = false;
  watchPipes(() => {
    readerGone = true;
    // As the shell would do it to a program that writes into a closed pipe.
    void handle.kill({ signal: 'SIGPIPE' }).catch(() => undefined);
  });
  if (json) {
    for await (const entry of handle.events) {
      onItem();
      if (!readerGone) await write(process.stdout, `${JSON.stringify(entry)}\n`);
    }
    return handle.ended;
  }
  for await (const item of handle.output) {
    onItem();
    if (readerGone) continue;
    if (item.type === 'gap') say(`${item.bytes ?? 'some'} bytes of output are missing here (${item.reason})`);
    else await write(item.stream === 'err' ? process.stderr : process.stdout, item.bytes);
  }
  return handle.ended;
}

/**
 * Ctrl-C goes to the command; a second one ends it for sure. With no connection neither arrives, so the third one goes
 * away without it.
 */
function forwardSignals(handle: AttendedCommand): { readonly byThirdSignal: Promise<'left'>; stop(): void } {
  let asked = 0;
  let reminder: NodeJS.Timeout | undefined;
  let leave!: (why: 'left') => void;
  const byThirdSignal = new Promise<'left'>((resolve) => {
    leave = resolve;
  });
  const forward = (name: 'SIGINT' | 'SIGTERM' | 'SIGHUP') => {
    asked += 1;
    if (asked > 2) {
      say(`Left alone: homing kill ${handle.commandId}`);
      leave('left');
      return;
    }
    const wish = asked === 1 ? { signal: name } : { signal: 'SIGKILL', graceMs: 0 };
    // Refused only when the command is over, which shows by itself.
    void handle.kill(wish).catch(() => undefined);
    clearTimeout(reminder);
    if (name !== 'SIGINT' || !process.stderr.isTTY) return;
    const next = asked === 1 ? 'kills it at once' : 'leaves it alone';
    reminder = setTimeout(() => say(`The command is asked to end; Ctrl-C again ${next}.`), SAY_AFTER_MS);
  };
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const name of names) process.on(name, forward);
  return {
    byThirdSignal,
    stop() {
      clearTimeout(reminder);
      for (const name of names) process.off(name, forward);
    },
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
