/** Text that fits the width of a terminal. Pure: the width is an argument; Infinity for files and pipes, which have none. */

export interface Column {
  readonly title: string;
  /** Gives way first when the table is too wide: its text is cut. At most one of a table. */
  readonly shrinks?: boolean;
  /** Gives way when that is not enough: it is left out. */
  readonly dispensable?: boolean;
  /** Puts colour on a cell, which takes no room. */
  paint?(cell: string): string;
}

const GAP = '  ';
/** A column that shrinks stays readable. */
const LEAST_WIDTH = 12;

/** One line a row; columns as wide as their widest cell, two spaces between, the last one free. */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[], width: number): string {
  const widest = columns.map(({ title }, at) =>
    Math.max(...[title, ...rows.map((row) => row[at] ?? '')].map(columnsOf)),
  );
  const least = (at: number) => Math.min(widest[at] as number, columns[at]?.shrinks ? LEAST_WIDTH : Infinity);
  const total = (shown: readonly number[], of: (at: number) => number) =>
    shown.reduce((sum, at) => sum + of(at), GAP.length * (shown.length - 1));
  let shown = columns.map((_, at) => at);
  if (total(shown, least) > width) shown = shown.filter((at) => columns[at]?.dispensable !== true);
  const excess = Math.max(0, total(shown, (at) => widest[at] as number) - width);
  const room = (at: number) =>
    columns[at]?.shrinks ? Math.max(least(at), (widest[at] as number) - excess) : widest[at];

  const line = (row: readonly string[], isTitle: boolean) => {
    const cells = shown.map((at, index) => {
      const cell = cut(row[at] ?? '', room(at) as number);
      const padding = index === shown.length - 1 ? '' : ' '.repeat(Math.max(0, (room(at) as number) - columnsOf(cell)));
      return (isTitle ? cell : (columns[at]?.paint?.(cell) ?? cell)) + padding;
    });
    return `${cells.join(GAP).trimEnd()}\n`;
  };
  const titles = columns.map(({ title }) => title);
  return line(titles, true) + rows.map((row) => line(row, false)).join('');
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
