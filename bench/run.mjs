/**
 * `npm run bench`: measures every row, prints the table, writes bench/results.json, the curves and the table of
 * docs/performance.md. `npm run bench -- 1a 5 --pairs=3` measures single rows and keeps what is known of the others;
 * `--small` tries them out with a tenth of everything and keeps nothing. `npm run bench -- docs` and `-- pictures` only write anew what is made from the results.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { writeTable } from './docs.mjs';
import { endOnSignals, pause, ROOT, SMALL } from './harness.mjs';
import { drawPictures } from './pictures.mjs';
import backlog from './row-backlog.mjs';
import cluster from './row-cluster.mjs';
import echo from './row-echo.mjs';
import entries from './row-entries.mjs';
import flood from './row-flood.mjs';
import idle from './row-idle.mjs';
import lines from './row-lines.mjs';
import memory from './row-memory.mjs';
import { cost, latency } from './row-paced.mjs';
import quiet from './row-quiet.mjs';
import resume from './row-resume.mjs';
import start from './row-start.mjs';

const FILE = join(ROOT, 'bench/results.json');
const MADE = ['docs', 'pictures'];
/** In order of the table. A row says itself how many pairs it needs when nobody asks for a number. */
const rows = [entries, lines, cost, latency, flood, echo, idle, quiet, resume, memory, cluster, start, backlog];

const options = process.argv.slice(2).filter((word) => word.startsWith('-'));
const strange = options.filter((word) => !/^(--small|--pairs=\d+)$/.test(word));
if (strange.length > 0) throw new Error(`no option ${strange.join(', ')}; there are --pairs=<number> and --small`);
const words = process.argv.slice(2).filter((word) => !word.startsWith('-'));
const wanted = words.filter((word) => !MADE.includes(word));
const unknown = wanted.filter((word) => !rows.some(({ id }) => isRow(id, word)));
if (unknown.length > 0)
  throw new Error(`no row ${unknown.join(', ')}; there are ${rows.map(({ id }) => id).join(', ')}`);
const asked = Number(process.argv.find((word) => word.startsWith('--pairs='))?.slice('--pairs='.length) ?? 0);
const alone = wanted.length > 0;

const machine = `${cpus().length} cores (${cpus()[0]?.model ?? 'unknown'}), ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}`;
const results = existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : { rows: {} };
endOnSignals();
if (words.length === 0 || alone) await measure();
if (!SMALL) {
  writeTable(results, rows, drawPictures(results));
  // Written as everything here is, so that the check of the format holds.
  spawnSync('npx', ['biome', 'format', '--write', FILE], { stdio: 'ignore' });
}

/** `1` means 1a and 1b, `2` only 2. */
function isRow(id, word) {
  return id === word || id.replace(/[a-z]$/, '') === word;
}

async function measure() {
  console.log(machine);
  const beganMs = performance.now();
  for (const row of rows) {
    if (alone && !wanted.some((word) => isRow(row.id, word))) continue;
    const pairs = asked || (SMALL ? 1 : row.pairs);
    console.log(`\n${row.id}  ${row.title}`);
    const busy = await busyCores();
    const rowBeganMs = performance.now();
    const result = await row.run(pairs, { alone });
    const seconds = Math.round((performance.now() - rowBeganMs) / 1_000);
    const at = new Date().toISOString().slice(0, 16);
    results.rows[row.id] = { title: row.title, machine, at, pairs, busy, seconds, ...round(result) };
    for (const [name, figures] of Object.entries(result.figures))
      console.log(`    ${name}: ${JSON.stringify(round(figures))}`);
    for (const { work, goal, measured, reached } of result.verdicts)
      console.log(
        `    ${work}\n        goal ${goal}: ${measured}: ${{ true: 'reached', false: 'NOT reached' }[reached] ?? 'stated'}`,
      );
    console.log(`    ${seconds} s, ${busy.toFixed(1)} cores were busy before`);
    // After each row: what was measured stays when a later one fails.
    if (!SMALL) writeFileSync(FILE, `${JSON.stringify(results, null, 1)}\n`);
  }
  console.log(`\n${Math.round((performance.now() - beganMs) / 1_000)} s in all`);
}

/** How many cores others use, seen for a second in which the bench itself does nothing. */
async function busyCores() {
  const read = () => cpus().map(({ times }) => [times.idle, Object.values(times).reduce((sum, time) => sum + time)]);
  const before = read();
  await pause(1_000);
  return read().reduce((sum, [idle, all], n) => sum + 1 - (idle - before[n][0]) / (all - before[n][1]), 0);
}

function round(value) {
  if (typeof value === 'number') return Number(value.toPrecision(4));
  if (Array.isArray(value)) return value.map(round);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, round(inner)]));
}
