/**
 * Asks the registry for known vulnerabilities of what is installed with the product, and fails for each that is not explained here.
 * A registry that has no answer is told as such: nothing was audited then, and nobody should think it was.
 */
import { spawnSync } from 'node:child_process';

/** Advisory (its number, as npm prints it) → why it does not concern Homing. */
const EXPLAINED = new Map();

const { stdout } = spawnSync('npm', ['audit', '--omit=dev', '--json'], { encoding: 'utf8', timeout: 60_000 });
let report;
try {
  report = JSON.parse(stdout);
} catch {
  report = { error: { summary: 'no answer' } };
}
if (report.vulnerabilities === undefined) {
  console.log(`NOT AUDITED: the registry has no answer (${report.error?.summary || report.message || 'unknown'}).`);
  process.exit(0);
}
const advisories = Object.values(report.vulnerabilities).flatMap(({ name, via }) =>
  via
    .filter((one) => typeof one === 'object')
    .map(({ source, title, severity }) => ({ name, source, title, severity })),
);
const open = advisories.filter(({ source }) => !EXPLAINED.has(source));
for (const { name, source, title, severity } of open) console.log(`${name}: ${severity}, ${title} (${source})`);
console.log(`audited: ${advisories.length} advisories, ${open.length} not explained`);
process.exit(open.length > 0 ? 1 : 0);
