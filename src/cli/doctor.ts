/** `homing doctor`: whether Redis and this machine are as Homing needs them, and how to mend what is not. */
import { Command } from 'commander';
import type { Finding, FindingLevel } from '../domain/finding.js';
import { EXIT } from './fault.js';
import { watchPipes, write } from './output.js';
import { type Style, styleFor } from './style.js';
import { wrap } from './table.js';

/** Findings about one thing. */
export interface Section {
  readonly title: string;
  readonly findings: readonly Finding[];
}

interface DoctorFlags {
  readonly dataDir?: string;
  readonly json?: boolean;
}

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('check Redis and this machine, and say how to mend what is wrong')
    .option('--data-dir <dir>', 'data folder of "homing up" (HOMING_DATA_DIR)')
    .option('--json', 'one JSON object: {ok, sections: [{title, findings: [{check, level, found, mend?, of?}]}]}')
    .addHelpText(
      'after',
      `
Checks the Redis of HOMING_REDIS_URL, else that of a running "homing up", else whether there is one to start.
Exit status: 0 when nothing failed (warnings do not count), 1 when something did, 2 when settings are wrong.

Example:
  homing doctor
  HOMING_REDIS_URL=redis-cluster://10.0.0.1:6379,10.0.0.2:6379 homing doctor --json`,
    )
    .action(async (flags: DoctorFlags) => {
      watchPipes();
      const [{ readSettings }, { examine }] = await Promise.all([import('./settings.js'), import('./examination.js')]);
      const settings = readSettings(process.env, { HOMING_DATA_DIR: flags.dataDir });
      const sections = await examine(settings, process.env);
      const failed = sections.some(({ findings }) => findings.some(({ level }) => level === 'fail'));
      const text = flags.json
        ? `${JSON.stringify({ ok: !failed, sections })}\n`
        : report(sections, styleFor(process.stdout, process.env), process.stdout.columns || USUAL_WIDTH);
      await write(process.stdout, text);
      process.exitCode = failed ? EXIT.failure : 0;
    });
}

const WORDS: Readonly<Record<FindingLevel, string>> = { ok: 'ok  ', warn: 'warn', fail: 'FAIL' };
/** Where the text of a finding begins: its level, and the widest name of a check. */
const INDENT = 24;
/** Of what goes to a file, and the least that is readable. */
const USUAL_WIDTH = 100;
const LEAST_WIDTH = 60;

/** For people; lines fit the width. */
export function report(sections: readonly Section[], style: Style, columns: number): string {
  const width = Math.max(columns, LEAST_WIDTH);
  const paint: Readonly<Record<FindingLevel, (text: string) => string>> = {
    ok: style.good,
    warn: style.risky,
    fail: style.broken,
  };
  const lines: string[] = [];
  for (const { title, findings } of sections) {
    lines.push(style.strong(title));
    for (const { check, level, found, mend, of } of findings) {
      const [first = '', ...rest] = wrap(of === undefined ? found : `${of}: ${found}`, width - INDENT);
      lines.push(`  ${paint[level](WORDS[level])}  ${check.padEnd(INDENT - 8)}${first}`);
      for (const line of rest) lines.push(' '.repeat(INDENT) + line);
      for (const line of mend === undefined ? [] : wrap(`→ ${mend}`, width - INDENT)) {
        lines.push(' '.repeat(INDENT) + style.faint(line));
      }
    }
    lines.push('');
  }
  const all = sections.flatMap(({ findings }) => findings);
  const count = (level: FindingLevel) => all.filter((finding) => finding.level === level).length;
  lines.push(summary(count('fail'), count('warn'), style));
  return `${lines.join('\n')}\n`;
}

function summary(failures: number, warnings: number, style: Style): string {
  const many = (count: number, word: string) => `${count} ${word}${count === 1 ? '' : 's'}`;
  const risks = warnings === 0 ? '' : style.risky(many(warnings, 'warning'));
  if (failures > 0) return [style.broken(many(failures, 'failure')), risks].filter((part) => part !== '').join(', ');
  return warnings === 0 ? style.good('Everything is as it should be.') : `Nothing failed, ${risks}.`;
}
