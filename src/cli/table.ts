/** Text that fits the width of a terminal. Pure: the width is an argument; Infinity for files and pipes, which have none. */

export interface Column {
  readonly title: string;
  /** Gives way when the table is too wide; the others keep their text. At most one of a table. */
  readonly shrinks?: boolean;
}

const GAP = '  ';
/** A column that shrinks stays readable. */
const LEAST_WIDTH = 8;

/** One line a row; columns as wide as their widest cell, two spaces between, the last one free. */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[], width: number): string {
  const all = [columns.map(({ title }) => title), ...rows];
  const widths = columns.map((_, at) => Math.max(...all.map((row) => columnsOf(row[at] ?? ''))));
  const total = widths.reduce((sum, wide) => sum + wide, GAP.length * (columns.length - 1));
  const shrinking = columns.findIndex(({ shrinks }) => shrinks === true);
  if (total > width && shrinking >= 0) {
    widths[shrinking] = Math.max(LEAST_WIDTH, (widths[shrinking] as number) - (total - width));
  }
  const line = (row: readonly string[]) =>
    row.map((cell, at) => pad(at === shrinking ? cut(cell, widths[at] as number) : cell, widths[at] as number));
  return all.map((row) => `${line(row).join(GAP).trimEnd()}\n`).join('');
}

/** Lines of at most `width`, broken between words; a longer word stays whole. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && columnsOf(line) + 1 + columnsOf(word) > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** East Asian wide and emoji blocks, which terminals show two columns wide. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{1f300}-\u{1faff}]|[\u{20000}-\u{3fffd}]/u;
const NARROW = /\p{Mark}|\u200d/u;

const columnsOfChar = (char: string): number => {
  if (NARROW.test(char)) return 0;
  return WIDE.test(char) ? 2 : 1;
};

/** Columns a terminal needs for it. */
export function columnsOf(text: string): number {
  let columns = 0;
  for (const char of text) columns += columnsOfChar(char);
  return columns;
}

/** At most `width` columns, the last one an ellipsis when something is cut off. */
export function cut(text: string, width: number): string {
  if (columnsOf(text) <= width) return text;
  let kept = '';
  let columns = 1;
  for (const char of text) {
    columns += columnsOfChar(char);
    if (columns > width) break;
    kept += char;
  }
  return `${kept}…`;
}

const pad = (text: string, width: number): string => text + ' '.repeat(Math.max(0, width - columnsOf(text)));
