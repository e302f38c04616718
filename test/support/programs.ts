/** Small programs for commands to run. Each takes its pace from files or figures, so that a test knows what will come. */
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const sh = (script: string, ...args: string[]) => ({ argv: ['/bin/sh', '-c', script, 'sh', ...args] });
const bash = (script: string, ...args: string[]) => ({ argv: ['/bin/bash', '-c', script, 'bash', ...args] });

/**
 * For bash: `nap SECONDS`, which starts no process but waits for a pipe that nobody writes to. A `sleep` takes some milliseconds
 * of the processor, and a dozen programs with 50 of them a second are all that a machine can do.
 */
export const NAP = 'exec 9<> <(:); nap() { read -rt "$1" -u 9 || :; }';

/** Prints `<label> 1` … `<label> count`, one line every `everyMs`. */
export const lines = (label: string, count: number, everyMs = 0) => ({
  ...(everyMs === 0
    ? sh('i=1; while [ $i -le $2 ]; do echo "$1 $i"; i=$((i+1)); done', label, String(count))
    : bash(
        `${NAP}; i=1; while [ $i -le $2 ]; do echo "$1 $i"; i=$((i+1)); nap $3; done`,
        label,
        String(count),
        String(everyMs / 1000),
      )),
  output: Array.from({ length: count }, (_, i) => `${label} ${i + 1}\n`).join(''),
});

/** A place where a test and its programs meet. */
export interface Stage extends AsyncDisposable {
  readonly folder: string;
  /** A program that prints `first`, waits for `gate` to open, prints `rest` and ends. */
  gated(gate: string, first: string, rest: string): { argv: string[] };
  /** A program that appends a line to a file at each start, then runs until `gate` opens. */
  counted(gate: string): { argv: string[] };
  /** A program that prints numbered lines without end until `gate` opens, and keeps its own copy of all it printed. */
  chatty(gate: string, everyMs: number): { argv: string[] };
  open(gate: string): void;
  /** How often the counted program of this gate was started. */
  starts(gate: string): number;
  /** What the chatty program of this gate printed, by its own account. */
  printed(gate: string): string;
}

export async function createStage(): Promise<Stage> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-stage-'));
  const at = (gate: string, what: string) => join(folder, `${gate}.${what}`);
  const readIfThere = (path: string) => (existsSync(path) ? readFileSync(path, 'utf8') : '');
  return {
    folder,
    gated: (gate, first, rest) =>
      bash(`${NAP}; echo "$2"; until [ -e "$1" ]; do nap 0.05; done; echo "$3"`, at(gate, 'open'), first, rest),
    counted(gate) {
      appendFileSync(at(gate, 'starts'), '');
      return bash(
        `${NAP}; echo $$ >> "$2"; echo started; until [ -e "$1" ]; do nap 0.05; done; echo done`,
        at(gate, 'open'),
        at(gate, 'starts'),
      );
    },
    chatty: (gate, everyMs) =>
      bash(
        `${NAP}; i=1; until [ -e "$1" ]; do echo "line $i of output"; echo "line $i of output" >> "$2"; i=$((i+1)); nap $3; done`,
        at(gate, 'open'),
        at(gate, 'printed'),
        String(everyMs / 1000),
      ),
    open: (gate) => writeFileSync(at(gate, 'open'), ''),
    starts: (gate) => readIfThere(at(gate, 'starts')).split('\n').filter(Boolean).length,
    printed: (gate) => readIfThere(at(gate, 'printed')),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

/**
 * Prints exactly `bytes` bytes, as fast as the pipe takes them, in lines of 64 that say where they are:
 * `000000000000 xxxx…`. So any piece of it can be checked alone.
 */
export const flood = (bytes: number) => ({
  argv: [
    process.execPath,
    '-e',
    `const total = Number(process.argv[1]); const fs = require('node:fs');
     let sent = 0;
     while (sent < total) {
       let block = '';
       for (let at = sent; at < total && block.length < 65536; at += 64) {
         block += String(at).padStart(12, '0') + ' ' + 'x'.repeat(50) + '\\n';
       }
       block = block.slice(0, total - sent);
       let done = 0; const data = Buffer.from(block);
       while (done < data.length) {
         try { done += fs.writeSync(1, data, done); } catch (error) { if (error.code !== 'EAGAIN') throw error; }
       }
       sent += data.length;
     }`,
    String(bytes),
  ],
});

/** The byte that `flood` prints at each offset of a range. */
export function floodBytes(from: number, to: number): Buffer {
  const firstLine = Math.floor(from / 64);
  const lastLine = Math.ceil(to / 64);
  let text = '';
  for (let line = firstLine; line < lastLine; line += 1) {
    text += `${String(line * 64).padStart(12, '0')} ${'x'.repeat(50)}\n`;
  }
  return Buffer.from(text.slice(from - firstLine * 64, to - firstLine * 64));
}
