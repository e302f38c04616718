/** Colours, where a person looks at them: on a terminal, unless NO_COLOR (no-color.org) or TERM=dumb says otherwise. */
import type { Env } from './env-files.js';

export interface Style {
  good(text: string): string;
  risky(text: string): string;
  broken(text: string): string;
  faint(text: string): string;
  strong(text: string): string;
}

const painter = (on: boolean, open: number, close: number) => (text: string) =>
  on && text !== '' ? `\u001b[${open}m${text}\u001b[${close}m` : text;

/** @param stream where the text goes */
export function styleFor(stream: { readonly isTTY?: boolean }, env: Env): Style {
  const on = stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
  return {
    good: painter(on, 32, 39),
    risky: painter(on, 33, 39),
    broken: painter(on, 31, 39),
    faint: painter(on, 2, 22),
    strong: painter(on, 1, 22),
  };
}
