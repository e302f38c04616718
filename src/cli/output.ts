/** Writing to the terminal: with back-pressure, and quietly gone when the reader is (`| head`). */
/** Writes and waits while the reader is slow, so that nothing piles up here. */
export function write(stream: NodeJS.WriteStream, data: string | Uint8Array): Promise<void> {
  if (stream.write(data)) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      for (const event of EVENTS) stream.off(event, done);
      resolve();
    };
    // A reader that went away is dealt with by `watchPipes`; here it only must not be waited for.
    for (const event of EVENTS) stream.on(event, done);
  });
}

const EVENTS = ['drain', 'error', 'close'] as const;

/** Columns of the terminal in front of the person; a file or a pipe has no width. */
export const terminalWidth = (): number => (process.stdout.isTTY ? process.stdout.columns : Number.POSITIVE_INFINITY);

/** Says something to the person on stderr, away from the output. */
export function say(sentence: string): void {
  process.stderr.write(`homing: ${sentence}\n`);
}

/** A reader that went away is no fault. @param onGone what to do then, once; without it the program ends with 0 */
export function watchPipes(onGone: () => void = () => process.exit(0)): void {
  let gone = false;
  const handle = (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    if (gone) return;
    gone = true;
    onGone();
  };
  process.stdout.on('error', handle);
  process.stderr.on('error', handle);
}

/** `12s`, `5m`, `3h`, `2d`: how long ago, to one figure. */
export function age(sinceMs: number, nowMs: number): string {
  const seconds = Math.max(0, Math.floor((nowMs - sinceMs) / 1_000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** Text of others in a line of ours: control characters would move the cursor or hide what follows. */
export const printable = (text: string): string =>
  text.replace(/[\u0000-\u001f\u007f-\u009f]/g, (char) => (char === '\n' || char === '\t' ? ' ' : '\uFFFD'));
