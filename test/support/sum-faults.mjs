/**
 * Sums what the runs of random faults left in .artifacts/ into the table of docs/delivery.md.
 * Runs that failed are in it too: a number that hides them would prove nothing.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = process.argv[2] ?? `${root}.artifacts/`;
const page = `${root}docs/delivery.md`;
const runs = readdirSync(folder)
  .filter((name) => /^faults-\d+\.json$/.test(name))
  .map((name) => JSON.parse(readFileSync(`${folder}/${name}`, 'utf8')));

const sum = (pick) => runs.reduce((total, run) => total + pick(run), 0);
const merged = (pick) => {
  const all = {};
  for (const run of runs) for (const [name, count] of Object.entries(pick(run))) all[name] = (all[name] ?? 0) + count;
  return all;
};
const times = {};
for (const run of runs) {
  for (const [kind, list] of Object.entries(run.recoveryMs)) times[kind] = [...(times[kind] ?? []), ...list];
}
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor((list.length - 1) / 2)];
const number = (value) => value.toLocaleString('en-US');

const faults = merged((run) => run.faults);
const kinds = Object.keys(faults).sort();
const rows = kinds.map((kind) => {
  const list = times[kind] ?? [];
  const recovered = list.length === 0 ? ['–', '–'] : [seconds(median(list)), seconds(Math.max(...list))];
  return `| ${kind} | ${number(faults[kind])} | ${list.length} | ${recovered.join(' | ')} |`;
});
const endings = Object.entries(merged((run) => run.endings)).map(([reason, count]) => `${number(count)} ${reason}`);

const text = `| | |
|---|---|
| runs, of which failed | ${runs.length}, ${runs.filter((run) => !run.ok).length} |
| random faults for | ${(sum((run) => run.seconds) / 60).toFixed(1)} minutes |
| faults | ${number(sum((run) => Object.values(run.faults).reduce((a, b) => a + b, 0)))} |
| pages opened, reloads and moves | ${number(sum((run) => run.applications))}, ${number(sum((run) => run.reloads))} |
| commands | ${number(sum((run) => run.commands))}: ${endings.join(', ')} |
| entries delivered | ${number(sum((run) => run.delivered))} |
| lost, duplicated, misdelivered | ${sum((run) => run.lost)}, ${sum((run) => run.duplicated)}, ${sum((run) => run.misdelivered)} |
| stale ones dropped by the fences | ${number(sum((run) => run.staleDropped))} |

| fault | how often | measured alone | recovered after, median | worst |
|---|---|---|---|---|
${rows.join('\n')}
`;
const [before, rest] = readFileSync(page, 'utf8').split('<!-- figures -->\n');
const after = rest.split('<!-- end of figures -->\n')[1];
writeFileSync(page, `${before}<!-- figures -->\n${text}<!-- end of figures -->\n${after}`);
