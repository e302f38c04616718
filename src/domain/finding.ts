/** What an examination found: one check, how it stands, and how to mend it. Pure. */

/** `ok`: as it should be. `warn`: works, with a risk that is named. `fail`: breaks a promise now or at the next fault. */
export type FindingLevel = 'ok' | 'warn' | 'fail';

export interface Finding {
  /** Name of the check, the same in every version: `version`, `eviction`, `persistence` … */
  readonly check: string;
  readonly level: FindingLevel;
  /** What was found, as a phrase with figures and units. Never holds a secret. */
  readonly found: string;
  /** What to do about it; there unless the level is `ok`. */
  readonly mend?: string;
  /** Which of several, such as the address of a master. */
  readonly of?: string;
}

export const good = (check: string, found: string): Finding => ({ check, level: 'ok', found });
export const risky = (check: string, found: string, mend: string): Finding => ({ check, level: 'warn', found, mend });
export const broken = (check: string, found: string, mend: string): Finding => ({ check, level: 'fail', found, mend });

const KIB = 1024;

/** `512 B`, `32 MiB`, `1.5 GiB`. */
export function sizeText(bytes: number): string {
  let value = bytes;
  let unit = 'B';
  for (const next of ['KiB', 'MiB', 'GiB', 'TiB']) {
    if (value < KIB) break;
    value /= KIB;
    unit = next;
  }
  return `${value >= 10 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${unit}`;
}
