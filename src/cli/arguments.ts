/** Reads the values of options. Pure; a fault is a sentence that names what was given. */
import type { Outcome } from '../protocol/entries.js';

export type Parsed<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly fault: string };

const ok = <T>(value: T): Parsed<T> => ({ ok: true, value });
const fault = (text: string): { readonly ok: false; readonly fault: string } => ({ ok: false, fault: text });

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `500ms`, `2s`, `10m`, `1.5h`, `1d`, `1h30m`; in milliseconds. A number without a unit is none. */
export function parseDuration(text: string): Parsed<number> {
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/.test(text)) {
    return fault(`"${text}" is not a duration: write a number and a unit, such as 500ms, 2s, 10m or 1h30m`);
  }
  let totalMs = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    totalMs += Number(number) * (UNIT_MS[unit ?? ''] ?? 0);
  }
  return Number.isSafeInteger(Math.round(totalMs)) ? ok(Math.round(totalMs)) : fault(`"${text}" is too long`);
}

/** `NAME=value`; the value may hold further `=`, and may be empty. */
export function parseEnvPair(text: string): Parsed<readonly [name: string, value: string]> {
  const at = text.indexOf('=');
  if (at < 1) return fault(`"${text}" is not NAME=value`);
  const name = text.slice(0, at);
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return fault(`"${name}" is not the name of a variable`);
  return ok([name, text.slice(at + 1)]);
}

/** `TERM`, `SIGTERM`, `sigterm` or `15` of the names given; `SIGTERM`. */
export function parseSignal(text: string, known: Readonly<Record<string, number>>): Parsed<string> {
  if (/^\d+$/.test(text)) {
    const found = Object.entries(known).find(([, number]) => number === Number(text));
    return found === undefined ? fault(`${text} is not the number of a signal`) : ok(found[0]);
  }
  const name = text.toUpperCase().startsWith('SIG') ? text.toUpperCase() : `SIG${text.toUpperCase()}`;
  return name in known ? ok(name) : fault(`"${text}" is not the name of a signal`);
}

/** A whole number of at least `least`. */
export function parseWhole(text: string, least: number): Parsed<number> {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(value) && value >= least) return ok(value);
  return fault(`"${text}" is not a whole number of at least ${least}`);
}

/** What `homing run` ends with when there is neither a code nor a signal, or when Homing itself failed. */
export const EXIT_OURS = 125;

/**
 * The exit status of `homing run`: the command's code; 128+n for signal n; 124 timed out or idle; 126 not executable,
 * 127 not found; 125 for the rest.
 */
export function exitStatus(outcome: Outcome, signals: Readonly<Record<string, number>>): number {
  switch (outcome.reason) {
    case 'timed_out':
    case 'idle_timeout':
      return 124;
    case 'spawn_failed':
      if (outcome.code !== null) return outcome.code;
      return /ENOENT|not found|no such/i.test(outcome.error ?? '') ? 127 : 126;
    default: {
      if (outcome.code !== null) return outcome.code;
      const number = outcome.signal === null ? undefined : signals[outcome.signal];
      return number === undefined ? EXIT_OURS : 128 + number;
    }
  }
}
