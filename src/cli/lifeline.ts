/**
 * Ties a child process to its parent by a pipe: the kernel closes it when the parent is gone, however it went, also by
 * SIGKILL. The pipe is the child's stdin; nothing is ever written to it.
 */
import type { Env } from './env-files.js';

const VARIABLE = 'HOMING_LIFELINE';

/** What a parent adds to the environment of a child whose stdin is a pipe that it holds. */
export const LIFELINE_ENV: Readonly<Record<string, string>> = { [VARIABLE]: 'stdin' };

/** Calls `onGone` once when the parent is gone; does nothing in a process without a lifeline. @returns stops watching */
export function watchLifeline(env: Env, onGone: () => void): () => void {
  if (env[VARIABLE] !== 'stdin') return () => undefined;
  const { stdin } = process;
  let told = false;
  const tell = () => {
    if (told) return;
    told = true;
    onGone();
  };
  stdin.on('end', tell);
  stdin.on('close', tell);
  stdin.on('error', tell);
  stdin.resume();
  return () => {
    told = true;
    stdin.destroy();
  };
}
