/** A program in a real terminal, with what a person would see of it. */
import { spawn } from '@lydell/node-pty';
import { until } from './wait.js';

export interface Terminal extends AsyncDisposable {
  readonly pid: number;
  /** Everything it wrote, with its escape sequences. */
  seen(): string;
  /** Resolves when the text was written. */
  shows(text: string | RegExp, limitMs?: number): Promise<void>;
  type(text: string): void;
  readonly ended: Promise<number>;
}

export function openTerminal(
  file: string,
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  columns = 80,
): Terminal {
  const given = Object.entries({ TERM: 'xterm', ...env }).filter(([, value]) => value !== undefined);
  const pty = spawn(file, [...args], { cols: columns, rows: 24, env: Object.fromEntries(given) });
  let seen = '';
  pty.onData((text) => {
    seen += text;
  });
  let over = false;
  const ended = new Promise<number>((resolve) => {
    pty.onExit(({ exitCode }) => {
      over = true;
      resolve(exitCode);
    });
  });
  return {
    pid: pty.pid,
    seen: () => seen,
    async shows(text, limitMs) {
      await until(
        `${text} on the terminal`,
        () => (typeof text === 'string' ? seen.includes(text) : text.test(seen)),
        limitMs,
      ).catch((error) => {
        throw new Error(`${error.message}; it shows:\n${seen}`);
      });
    },
    type: (text) => pty.write(text),
    ended,
    async [Symbol.asyncDispose]() {
      if (!over) pty.kill('SIGKILL');
      await ended;
    },
  };
}
