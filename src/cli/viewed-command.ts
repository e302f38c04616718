/** A command seen over HTTP, without a session: how a program inside a command follows what it started. */
import { outputOf } from '../client/command-handle.js';
import type { CommandHandle, OutputChunk, OutputGap } from '../client/index.js';
import { fullJitterMs } from '../domain/backoff.js';
import type { Entry, Outcome } from '../protocol/entries.js';
import { ask, askJson, Refusal } from './http.js';
import type { NodeAddress } from './node-address.js';

/** Between reads that bring nothing; grows while nothing comes. */
const POLL = { baseMs: 100, capMs: 1_000 };
const LEAST_POLL_MS = 50;
/** Base64 of one write stays well below the limit of a body. */
const WRITE_BYTES = 256 * 1024;
const STDIN_FULL_MS = 100;

/** Whether this program was started by a command of Homing and talks with that command's own token. */
export const isInside = ({ token }: NodeAddress, env: Readonly<Record<string, string | undefined>>): boolean =>
  env.HOMING_COMMAND_ID !== undefined && token.startsWith(`${env.HOMING_COMMAND_ID}.`);

/** What can be done to a command that one sees, whether one owns it or not. */
export type AttendedCommand = Pick<
  CommandHandle,
  'commandId' | 'output' | 'events' | 'ended' | 'kill' | 'write' | 'resize'
>;

export function createViewedCommand(node: NodeAddress, commandId: string): AttendedCommand {
  const path = `/v1/commands/${encodeURIComponent(commandId)}`;
  let offset = 0;
  let end!: (outcome: Outcome) => void;
  const ended = new Promise<Outcome>((resolve) => {
    end = resolve;
  });

  async function* events(): AsyncGenerator<Entry> {
    let nextSeq = 1;
    for (let idle = 0; ; ) {
      const text = await ask(node, 'GET', `${path}/log?format=jsonl&fromSeq=${nextSeq}`);
      const lines = text.split('\n').filter((line) => line !== '');
      for (const line of lines) {
        const entry = JSON.parse(line) as Entry;
        nextSeq = entry.seq + 1;
        yield entry;
        if (entry.type === 'ended') return end(entry.outcome);
      }
      idle = lines.length === 0 ? idle + 1 : 0;
      if (idle > 0) await pause(fullJitterMs(idle, POLL, Math.random(), LEAST_POLL_MS));
    }
  }

  async function* output(): AsyncGenerator<OutputChunk | OutputGap> {
    for await (const entry of events()) {
      const item = outputOf(entry);
      if (item !== undefined) yield item;
    }
  }

  /** Until the program reads some of what waits. */
  async function writePart(bytes: Uint8Array, eof: boolean): Promise<void> {
    const body = { offset, base64: Buffer.from(bytes).toString('base64'), ...(eof ? { eof } : {}) };
    for (;;) {
      try {
        offset = (await askJson<{ nextOffset: number }>(node, 'POST', `${path}/stdin`, body)).nextOffset;
        return;
      } catch (error) {
        if (!(error instanceof Refusal && error.code === 'STDIN_FULL')) throw error;
        await pause(STDIN_FULL_MS);
      }
    }
  }

  return {
    commandId,
    output: { [Symbol.asyncIterator]: output },
    events: { [Symbol.asyncIterator]: events },
    ended,
    kill: (options = {}) => askJson<{ state: string }>(node, 'POST', `${path}/kill`, options),
    async write(data, { eof = false } = {}) {
      const bytes = typeof data === 'string' ? Buffer.from(data) : data;
      for (let from = 0; from < bytes.length || (eof && from === 0); from += WRITE_BYTES) {
        await writePart(bytes.subarray(from, from + WRITE_BYTES), eof && from + WRITE_BYTES >= bytes.length);
      }
    },
    async resize(cols, rows) {
      await ask(node, 'POST', `${path}/resize`, { cols, rows });
    },
  };
}

const pause = (delayMs: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, delayMs));
