/**
 * What a shell that stands there already is told to become: every word arrives as it was written. Told to real shells, on the
 * descriptors they stand with.
 */
import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { REPORT_FD, readReport, type ToldRequest, toldOf } from '../../src/worker/process-launch.js';

const SHELLS = ['/bin/sh', '/bin/bash'].filter(existsSync);
const DUMP = `const { argv, env } = process;
process.stdout.write(JSON.stringify({ words: argv.slice(1), env, cwd: process.cwd(), stdin: require('fs').readFileSync(0, 'utf8') }));`;

/** Every character there is below 128, but for the one that no argument can hold. */
const CHARACTERS = Array.from({ length: 127 }, (_, i) => String.fromCharCode(i + 1));
const WORDS = [
  '',
  ' ',
  "'",
  "''",
  "'\\''",
  "it's",
  "'quoted'",
  '"',
  '"$HOME"',
  '$HOME $(echo x) `echo x` $((1+1)) $$ $? $@ !! !x',
  '\\',
  '\\\\n \\0 \\x41',
  "ends in a backslash\\'",
  'a\nb',
  '\n',
  '\n\n',
  'ends\n',
  "'\n'",
  '\r\n',
  '# no comment',
  '; exit 9',
  '& | && || > < >> << EOF',
  'EOF\n',
  '*',
  '~',
  '{a,b} [a-z] ?',
  '-',
  '--',
  '-n',
  'NAME=value',
  'é ü ß €',
  '日本語',
  '👩‍👩‍👧 e\u0301 \u202e \ufeff \u2028 \u00a0 \u0085',
  '\u{10ffff}',
  CHARACTERS.join(''),
];
const ALL = [...CHARACTERS, ...CHARACTERS.map((character) => `a${character}b`), ...WORDS];

/** Tells it to a shell, and reads what the program says it was given. */
/** @param inputFd what stands at SCRIPT_FD */
function told(shell: string, request: Partial<ToldRequest>, inputFd?: number) {
  const program = [process.execPath, '-e', DUMP, '--', ...(request.argv ?? [])];
  const script = toldOf({ env: {}, cwd: '/', merged: false, stdin: false, ...request, argv: program });
  if (script === undefined) throw new Error('too long to be told');
  const { output, status } = spawnSync(shell, [], {
    cwd: '/',
    env: {},
    input: script,
    encoding: 'utf8',
    stdio: ['pipe', 'pipe', 'pipe', inputFd ?? 'ignore', 'pipe'],
  });
  expect({ status, stderr: output[2], report: readReport(output[REPORT_FD] ?? '') }).toEqual({
    status: 0,
    stderr: '',
    report: 'started',
  });
  return JSON.parse(output[1] ?? '') as { words: string[]; env: Record<string, string>; cwd: string; stdin: string };
}

describe.each(SHELLS)('%s that is told to become a program', (shell) => {
  it('hands over every argument unchanged: each character, quotes, newlines, empty words, many bytes a character', () => {
    expect(told(shell, { argv: ALL }).words).toEqual(ALL);
  });

  it('hands over every value of its environment unchanged', () => {
    const env = Object.fromEntries(ALL.map((word, i) => [`V${i}`, word]));
    expect(told(shell, { env }).env).toEqual(expect.objectContaining(env));
  });

  it('hands over those variables too that shells keep to themselves, and those it goes by itself', () => {
    const env = {
      OPTIND: "it's",
      PPID: '\n',
      UID: '',
      EUID: '$x',
      SHELLOPTS: 'é',
      _h: "a'b",
      __: '"',
      IFS: 'x',
      PS1: '`',
    };
    expect(told(shell, { env, argv: ['x'] })).toMatchObject({ env, words: ['x'] });
  });

  it('goes to a folder of any name, and reads what stands there or nothing', () => {
    const folder = mkdtempSync(join(tmpdir(), "homing-it's a\n$folder-é"));
    try {
      const file = join(folder, 'input');
      writeFileSync(file, 'read');
      const fd = openSync(file, 'r');
      expect(told(shell, { cwd: folder }, fd)).toMatchObject({ cwd: folder, stdin: '' });
      expect(told(shell, { cwd: folder, stdin: true }, fd)).toMatchObject({ cwd: folder, stdin: 'read' });
      closeSync(fd);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

it('is not told what no shell can take: a NUL, or more than is taken at once', () => {
  const request = { env: {}, cwd: '/', merged: false, stdin: false };
  expect(toldOf({ ...request, argv: ['a\0b'] })).toBeUndefined();
  expect(toldOf({ ...request, argv: ['a', 'x'.repeat(32_768)] })).toBeUndefined();
});
