/** The table and the curves of docs/performance.md, made from the results between two marks. Everything else there is written by hand. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './harness.mjs';

const FILE = join(ROOT, 'docs/performance.md');
const BEGIN = '<!-- begin: made by npm run bench -- docs -->';
const END = '<!-- end -->';
/** Cores that others may use before a row is called preliminary. */
const CALM_CORES = 0.2;

/** @param pictures [{file, title}] of which those that exist are shown */
export function writeTable({ rows: results }, rows, pictures) {
  const known = rows.filter(({ id }) => results[id] !== undefined);
  const lines = known.flatMap(({ id }) =>
    results[id].verdicts.map(({ work, goal, measured, reached }) => {
      const said = reached === undefined ? '' : reached ? ': reached' : ': **not reached**';
      return `| ${id} | ${work} | ${goal} | ${measured}${said} |`;
    }),
  );
  const of = (field) => [...new Set(known.map(({ id }) => results[id][field]))].sort();
  const days = [...new Set(of('at').map((at) => at.slice(0, 10)))];
  const pairs = known.map(({ id }) => `${id}: ${results[id].pairs}`).join(', ');
  const busy = known.filter(({ id }) => !(results[id].busy <= CALM_CORES)).map(({ id }) => id);
  const text = [
    BEGIN,
    '',
    `Measured on ${days.join(', ')}: ${of('machine').join('; ')}; one Redis, everything on the same machine. Medians, in brackets the lowest and`,
    `the highest of the pairs (${pairs}).`,
    ...(busy.length === 0 ? [] : [`Others may have used the machine during ${busy.join(', ')}: preliminary.`]),
    '',
    '| row | work | goal | measured |',
    '|---|---|---|---|',
    ...lines,
    '',
    ...pictures
      .filter(({ file }) => existsSync(join(ROOT, 'docs/img', file)))
      .map(({ file, title }) => `![${title}](img/${file})`),
    '',
    END,
  ].join('\n');
  const before = readFileSync(FILE, 'utf8');
  const [head, rest] = before.split(BEGIN);
  const tail = rest?.split(END)[1];
  if (tail === undefined) throw new Error(`docs/performance.md lacks its marks, ${BEGIN} and ${END}`);
  writeFileSync(FILE, `${head}${text}${tail}`);
}
