/** A program and its arguments from one line, with the quoting everybody knows from a shell and nothing else of it. Pure. */

export type ParsedArgv =
  | { readonly ok: true; readonly argv: readonly string[] }
  | { readonly ok: false; readonly message: string };

/** Words are split at blanks; '…' is literal, in "…" a backslash quotes " and \, outside of quotes any character. */
export function parseArgv(line: string): ParsedArgv {
  const argv: string[] = [];
  let word: string | undefined;
  let quote: '"' | "'" | undefined;
  for (let i = 0; i < line.length; i += 1) {
    const char = line[i] as string;
    const next = line[i + 1];
    if (quote !== undefined) {
      if (char === quote) quote = undefined;
      else if (quote === '"' && char === '\\' && (next === '"' || next === '\\')) word += line[++i] as string;
      else word += char;
    } else if (char === '"' || char === "'") {
      quote = char;
      word ??= '';
    } else if (char === '\\') {
      if (next === undefined) return { ok: false, message: 'The line ends with a backslash that quotes nothing.' };
      word = (word ?? '') + next;
      i += 1;
    } else if (/\s/.test(char)) {
      if (word !== undefined) argv.push(word);
      word = undefined;
    } else {
      word = (word ?? '') + char;
    }
  }
  if (quote !== undefined) return { ok: false, message: `A quote (${quote}) is not closed.` };
  if (word !== undefined) argv.push(word);
  if (argv.length === 0) return { ok: false, message: 'Name a program to run.' };
  return { ok: true, argv };
}

/** `90`, `90s`, `10m`, `2h` as milliseconds; undefined for anything else. */
export function parseDuration(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h)?$/.exec(text.trim());
  if (match === null) return undefined;
  const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }[match[2] ?? 's'] ?? 1_000;
  const ms = Math.round(Number(match[1]) * unitMs);
  return ms >= 1 ? ms : undefined;
}
