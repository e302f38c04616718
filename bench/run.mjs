/** `npm run bench [-- rows]`: measures, prints the table, writes bench/results.json. */
import { writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { ROOT } from './harness.mjs';
import echo from './row-echo.mjs';
import entries from './row-entries.mjs';
import flood from './row-flood.mjs';
import idle from './row-idle.mjs';
import { cost, latency } from './row-paced.mjs';
import start from './row-start.mjs';

const rows = [entries, cost, latency, flood, echo, idle, start];
const wanted = process.argv.slice(2).filter((word) => !word.startsWith('-'));
const pairs = Number(process.argv.find((word) => word.startsWith('--pairs='))?.slice('--pairs='.length) ?? 5);
const chosen = wanted.length === 0 ? rows : rows.filter((row) => wanted.some((id) => row.id.startsWith(id)));
if (chosen.length === 0) throw new Error(`no such row; there are ${rows.map((row) => row.id).join(', ')}`);

const machine = `${cpus().length} cores (${cpus()[0]?.model ?? 'unknown'}), ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}`;
console.log(machine);
const results = { machine, pairs, rows: {} };
for (const row of chosen) {
  console.log(`\n${row.id}  ${row.title}\n    goal: ${row.goal}`);
  const result = await row.run(pairs);
  results.rows[row.id] = { title: row.title, goal: row.goal, ...result };
  for (const [name, figures] of Object.entries(result.figures))
    console.log(`    ${name}: ${JSON.stringify(figures.map(round))}`);
  console.log(`    ratio: ${JSON.stringify(round(result.ratio))}  ${result.reached ? 'reached' : 'NOT reached'}`);
}
writeFileSync(join(ROOT, 'bench/results.json'), `${JSON.stringify(results, null, 2)}\n`);

function round(value) {
  if (typeof value === 'number') return Number(value.toPrecision(4));
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, round(inner)]));
}
