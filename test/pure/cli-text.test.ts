/** What people see: tables that fit, colours only where they belong, completion scripts. */
import { describe, expect, it } from 'vitest';
import { completionScript, SHELLS } from '../../src/cli/completion-scripts.js';
import { report } from '../../src/cli/doctor.js';
import { styleFor } from '../../src/cli/style.js';
import { columnsOf, cut, table, wrap } from '../../src/cli/table.js';
import { queuedText } from '../../src/cli/waiting.js';

const COLUMNS = [{ title: 'ID' }, { title: 'OWNER', dispensable: true }, { title: 'PROGRAM', shrinks: true }];
const ROWS = [
  ['cmd_1', 'ses_1', 'sh -c echo a rather long program that goes on'],
  ['cmd_22', 'ses_2', 'true'],
];

describe('a table', () => {
  it('is as wide as its cells where there is no width', () => {
    expect(table(COLUMNS, ROWS, Number.POSITIVE_INFINITY)).toBe(
      [
        'ID      OWNER  PROGRAM',
        'cmd_1   ses_1  sh -c echo a rather long program that goes on',
        'cmd_22  ses_2  true',
        '',
      ].join('\n'),
    );
  });

  it.each([60, 45, 40, 31, 26])('fits %d columns', (width) => {
    const lines = table(COLUMNS, ROWS, width).trimEnd().split('\n');
    expect(lines).toHaveLength(3);
    for (const line of lines) expect(columnsOf(line)).toBeLessThanOrEqual(width);
    expect(lines[1]).toContain('cmd_1');
  });

  it('cuts the long column first, and leaves a dispensable one out when that is not enough', () => {
    expect(table(COLUMNS, ROWS, 40)).toContain('ses_1  sh -c echo a rather long…\n');
    expect(table(COLUMNS, ROWS, 26)).not.toContain('OWNER');
    expect(table(COLUMNS, ROWS, 26)).toContain('cmd_1   sh -c echo a rath…\n');
  });

  it('counts columns and not characters, and paint takes no room', () => {
    expect([columnsOf('日本'), columnsOf('é'), columnsOf('e\u0301'), columnsOf('🙂')]).toEqual([4, 1, 1, 2]);
    expect(cut('日本語', 5)).toBe('日本…');
    const painted = [{ title: 'A', paint: (cell: string) => `<${cell}>` }, { title: 'B' }];
    expect(table(painted, [['日本', 'x']], 80)).toBe('A     B\n<日本>  x\n');
  });

  it('breaks lines between words', () => {
    expect(wrap('one two three', 7)).toEqual(['one two', 'three']);
    expect(wrap('a-word-that-is-too-long b', 5)).toEqual(['a-word-that-is-too-long', 'b']);
  });
});

describe('colours', () => {
  const sections = [{ title: 'T', findings: [{ check: 'c', level: 'fail' as const, found: 'f', mend: 'Mend it.' }] }];
  it('are there on a terminal only, and not where NO_COLOR is set', () => {
    expect(report(sections, styleFor({ isTTY: true }, {}), 80)).toContain('\u001b[31mFAIL\u001b[39m');
    for (const [stream, env] of [
      [{}, {}],
      [{ isTTY: true }, { NO_COLOR: '1' }],
      [{ isTTY: true }, { TERM: 'dumb' }],
    ] as const) {
      expect(report(sections, styleFor(stream, env), 80)).not.toContain('\u001b');
    }
    // An empty NO_COLOR is none (no-color.org).
    expect(styleFor({ isTTY: true }, { NO_COLOR: '' }).good('x')).not.toBe('x');
  });
});

it('a queued command has a position where it is known, and a reason where it is held back', () => {
  expect(queuedText({ position: 3 })).toBe('homing: queued, position 3 …');
  expect(queuedText({})).toBe('homing: queued …');
  const held = 'homing: queued, held back by the limit of its tenant, position 2 …';
  expect(queuedText({ held: 'tenant', position: 2 })).toBe(held);
});

it.each(SHELLS)('the completion for %s survives what descriptions hold', (shell) => {
  const script = completionScript(shell, [
    {
      name: 'x',
      description: `it's [a] "b": c`,
      options: [{ flags: ['-d', '--dir'], description: `d's: [e]`, value: 'dir' }],
      words: [],
      runsProgram: false,
    },
  ]);
  expect(script).toContain('--dir'.replace('--', shell === 'fish' ? '-l ' : '--'));
  expect(script).not.toContain("it's");
});
