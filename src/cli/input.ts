/** What a person types, or a pipe brings, on its way to a command; and the local terminal while the command has it. */
import type { CommandHandle } from '../client/index.js';
import { AppError } from '../errors.js';
import { Refusal } from './http.js';
import { say } from './output.js';

/** Answers that say that the command takes no more, which is no fault of this program. */
const NO_MORE: ReadonlySet<string> = new Set([
  'STDIN_CLOSED',
  'COMMAND_ENDED',
  'NOT_OWNER',
  'SESSION_GONE',
  'UNKNOWN_COMMAND',
]);

const saysNoMore = (error: unknown): boolean =>
  (error instanceof AppError || error instanceof Refusal) && error.code !== undefined && NO_MORE.has(error.code);

/** Of the terminal in front of the person; the usual size without one. */
export const localSize = (): { cols: number; rows: number } => ({
  cols: process.stdout.columns || 80,
  rows: process.stdout.rows || 24,
});

/**
 * Sends stdin to the command, at the pace at which it reads, then the end of it.
 * @returns stops reading
 */
export function pipeInput(handle: Pick<CommandHandle, 'write'>): () => void {
  const { stdin } = process;
  let stopped = false;

  async function pump(): Promise<void> {
    try {
      for await (const chunk of stdin) {
        if (stopped) return;
        await handle.write(chunk as Uint8Array);
      }
      if (!stopped) await handle.write('', { eof: true });
    } catch (error) {
      if (stopped || saysNoMore(error)) return;
      // A stdin that can not be read (closed by whoever started us) has nothing in it.
      if ((error as NodeJS.ErrnoException).syscall === 'read') return;
      say(`input could not be passed on: ${(error as Error).message}`);
    }
  }

  void pump();
  return () => {
    stopped = true;
    stdin.destroy();
  };
}

/**
 * Gives the local terminal to the command: every key goes to it as it is, Ctrl-C too, and its size follows ours.
 * @returns gives it back
 */
export function takeTerminal(handle: Pick<CommandHandle, 'resize'>): () => void {
  const { stdin, stdout } = process;
  // The command may be over, or another window of the same session may be the one that counts.
  const resize = () => void handle.resize(localSize().cols, localSize().rows).catch(() => undefined);
  if (stdin.isTTY) stdin.setRawMode(true);
  stdout.on('resize', resize);
  return () => {
    stdout.off('resize', resize);
    if (stdin.isTTY) stdin.setRawMode(false);
  };
}
