/** The snippets of a document, and programs that run them as a reader would: in a folder where `homing` is installed. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MARKER, markerFor } from './processes.js';
import { DEFAULT_LIMIT_MS, until, within } from './wait.js';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** The fenced blocks of one language, in order. */
export function snippetsOf(document: string, language: string): string[] {
  const text = readFileSync(join(ROOT, document), 'utf8');
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map(
    (block) => block[1] as string,
  );
}

export interface Program {
  readonly child: ChildProcess;
  readonly stdout: string;
  readonly stderr: string;
  /** Its exit status. */
  ended(limitMs?: number): Promise<number | null>;
  /** What it wrote so far fits. */
  says(what: RegExp): Promise<RegExpExecArray>;
  stop(): Promise<void>;
}

export function startProgram(command: string, args: readonly string[], env: Record<string, string>): Program {
  const child = spawn(command, args, {
    cwd: ROOT,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, [MARKER]: markerFor('snippet'), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const over = once(child, 'close');
  const program = {
    child,
    stdout: '',
    stderr: '',
    async ended(limitMs = DEFAULT_LIMIT_MS) {
      await within(`the end of ${command} ${args.at(-1)}`, over, limitMs);
      return child.exitCode;
    },
    says: (what: RegExp) =>
      until(`${what}`, () => {
        const found = what.exec(program.stdout);
        if (found === null && child.exitCode !== null) throw new Error(`it ended: ${program.stderr}`);
        return found ?? undefined;
      }),
    async stop() {
      child.kill('SIGTERM');
      await within('its end', over);
    },
  };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    program.stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    program.stderr += text;
  });
  return program;
}

/** Runs a JavaScript snippet as a module of its own; the package finds itself by its name. */
export async function runModule(source: string, env: Record<string, string>) {
  await mkdir(join(ROOT, '.artifacts'), { recursive: true });
  const folder = await mkdtemp(join(ROOT, '.artifacts/snippet-'));
  try {
    const file = join(folder, 'snippet.mjs');
    await writeFile(file, source);
    const program = startProgram(process.execPath, [file], env);
    const code = await program.ended();
    return { code, stdout: program.stdout, stderr: program.stderr };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
