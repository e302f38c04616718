/** `homing logs`: what a command printed, read as a viewer: it owns nothing and acknowledges nothing. */
import { Command } from 'commander';
import { outputOf } from '../client/command-handle.js';
import { fullJitterMs } from '../domain/backoff.js';
import type { Entry } from '../protocol/entries.js';
import { CliFault } from './fault.js';
import { ask, Refusal } from './http.js';
import { type AddressFlags, findNode, type NodeAddress, withAddress } from './node-address.js';
import { wholeFrom } from './options.js';
import { say, watchPipes, write } from './output.js';
import { countLines, lastLines } from './tail.js';

interface LogsFlags extends AddressFlags {
  readonly follow?: boolean;
  readonly tail?: number;
  readonly json?: boolean;
}

export function logsCommand(): Command {
  const command = new Command('logs')
    .description('print the output of a command: stdout to stdout, stderr to stderr')
    .argument('<id>', 'the command')
    .option('-f, --follow', 'go on until it ends')
    .option('--tail <lines>', 'only the last lines', wholeFrom(0))
    .option('--json', 'one entry a line, as JSON')
    .addHelpText('after', '\nExample:\n  homing logs -f --tail 20 cmd_…');
  return withAddress(command).action(async (id: string, flags: LogsFlags) => {
    watchPipes();
    const node = findNode(flags, process.env);
    let { entries, nextSeq } = await firstPart(node, id, flags.tail);
    for (let idle = 0; ; ) {
      for (const entry of entries) await show(entry, flags.json ?? false);
      if (entries.some((entry) => entry.type === 'ended')) return;
      idle = entries.length === 0 ? Math.min(idle + 1, 3) : 0;
      if (entries.length === 0 && !flags.follow) return;
      // 250 ms at least between reads that bring nothing, with jitter on top that grows to two seconds.
      if (entries.length === 0) await pause(fullJitterMs(idle, { baseMs: 250, capMs: 2_000 }, Math.random(), 250));
      const next = () => read(node, id, `fromSeq=${nextSeq}`);
      entries = flags.follow ? await outlast(next, node) : await next();
      nextSeq = nextAfter(entries, nextSeq);
    }
  });
}

/** While following, a node that does not answer is asked again; what it refuses stays refused. */
async function outlast<T>(attempt: () => Promise<T>, { url }: NodeAddress): Promise<T> {
  let lostMs: number | undefined;
  for (let failures = 0; ; failures += 1) {
    try {
      const answer = await attempt();
      if (lostMs !== undefined) say(`Connected again after ${((performance.now() - lostMs) / 1_000).toFixed(1)} s.`);
      return answer;
    } catch (error) {
      if (!(error instanceof CliFault) || (error instanceof Refusal && !error.passing)) throw error;
      if (lostMs === undefined) say(`The connection to ${url} is lost; trying again.`);
      lostMs ??= performance.now();
      await pause(fullJitterMs(failures, { baseMs: 250, capMs: 5_000 }, Math.random(), 250));
    }
  }
}

const FIRST_TAIL_BYTES = 64 * 1024;
const MOST_TAIL_BYTES = 16 * 1024 * 1024;

/** Everything from the beginning, or just enough of the end for so many lines. */
async function firstPart(node: NodeAddress, id: string, tail: number | undefined) {
  if (tail === undefined) {
    const entries = await read(node, id, 'fromSeq=1');
    return { entries, nextSeq: nextAfter(entries, 1) };
  }
  for (let tailBytes = FIRST_TAIL_BYTES; ; tailBytes *= 4) {
    const entries = await readToHead(node, id, tailBytes);
    const first = entries.find((entry) => entry.type === 'output');
    const complete = tailBytes >= MOST_TAIL_BYTES || first?.at === 0 || first === undefined;
    if (complete || countLines(entries) > tail) {
      return { entries: lastLines(entries, tail), nextSeq: nextAfter(entries, 1) };
    }
  }
}

/** The answer may hold less than was asked for: the rest follows after its last entry. */
async function readToHead(node: NodeAddress, id: string, tailBytes: number): Promise<Entry[]> {
  const entries = await read(node, id, `tailBytes=${Math.min(tailBytes, MOST_TAIL_BYTES)}`);
  for (let more = entries; more.length > 0 && more.at(-1)?.type !== 'ended'; ) {
    more = await read(node, id, `fromSeq=${nextAfter(entries, 1)}`);
    entries.push(...more);
  }
  return entries;
}

async function read(node: NodeAddress, id: string, query: string): Promise<Entry[]> {
  const text = await ask(node, 'GET', `/v1/commands/${encodeURIComponent(id)}/log?format=jsonl&${query}`);
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as Entry);
}

const nextAfter = (entries: readonly Entry[], otherwise: number): number => (entries.at(-1)?.seq ?? otherwise - 1) + 1;

async function show(entry: Entry, json: boolean): Promise<void> {
  if (json) return write(process.stdout, `${JSON.stringify(entry)}\n`);
  const item = outputOf(entry);
  if (item?.type === 'gap') say(`${item.bytes ?? 'some'} bytes of output are missing here (${item.reason})`);
  else if (item !== undefined) await write(item.stream === 'err' ? process.stderr : process.stdout, item.bytes);
}

const pause = (delayMs: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, delayMs));
