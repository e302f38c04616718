/** Values of options, and the exit status of `homing run`. */
import { constants } from 'node:os';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { exitStatus, parseDuration, parseEnvPair, parseSignal, parseWhole } from '../../src/cli/arguments.js';
import { age, printable } from '../../src/cli/output.js';
import { table } from '../../src/cli/table.js';
import { countLines, lastLines } from '../../src/cli/tail.js';
import { outputOf } from '../../src/client/command-handle.js';
import type { EndReason, Entry, Outcome } from '../../src/protocol/entries.js';
import type { CommandId } from '../../src/protocol/ids.js';

const signals = constants.signals;

describe('durations', () => {
  it.each([
    ['0ms', 0],
    ['500ms', 500],
    ['2s', 2_000],
    ['10m', 600_000],
    ['1.5h', 5_400_000],
    ['1h30m', 5_400_000],
    ['2d', 172_800_000],
  ])('reads %s', (text, ms) => {
    expect(parseDuration(text)).toEqual({ ok: true, value: ms });
  });

  it.each(['', '10', 's', '10 m', '-1s', '1e3s', '10m5', '1y', '999999999999999d'])('refuses "%s"', (text) => {
    expect(parseDuration(text)).toMatchObject({ ok: false, fault: expect.stringContaining(`"${text}"`) });
  });
});

describe('other values', () => {
  it('splits NAME=value at the first sign', () => {
    expect(parseEnvPair('A=b=c')).toEqual({ ok: true, value: ['A', 'b=c'] });
    expect(parseEnvPair('A=')).toEqual({ ok: true, value: ['A', ''] });
    for (const text of ['A', '=b', '1A=b', 'A-B=c']) expect(parseEnvPair(text)).toMatchObject({ ok: false });
  });

  it('knows signals by name, with and without SIG, and by number', () => {
    for (const text of ['TERM', 'SIGTERM', 'sigterm', '15']) {
      expect(parseSignal(text, signals)).toEqual({ ok: true, value: 'SIGTERM' });
    }
    for (const text of ['NOPE', '', '0', '999']) expect(parseSignal(text, signals)).toMatchObject({ ok: false });
  });

  it('takes whole numbers alone', () => {
    expect(parseWhole('3', 1)).toEqual({ ok: true, value: 3 });
    for (const text of ['0', '-1', '1.5', '1e3', '0x10', '']) expect(parseWhole(text, 1)).toMatchObject({ ok: false });
  });
});

describe('the exit status of run', () => {
  const outcome = (reason: EndReason, more: Partial<Outcome> = {}): Outcome => ({
    reason,
    code: null,
    signal: null,
    durationMs: 1,
    outputBytes: 0,
    tail: '',
    leftovers: 0,
    ...more,
  });

  it.each([
    ['the code of the command', outcome('exited', { code: 7 }), 7],
    ['0 for success', outcome('exited', { code: 0 }), 0],
    ['128+n for a signal', outcome('signaled', { signal: 'SIGSEGV' }), 139],
    ['128+n for one that was asked for', outcome('cancelled', { signal: 'SIGINT' }), 130],
    ['the code of one that handled the signal', outcome('cancelled', { code: 3 }), 3],
    ['124 when its time was over, whatever ended it', outcome('timed_out', { signal: 'SIGKILL' }), 124],
    ['124 when it was idle', outcome('idle_timeout', { code: 0 }), 124],
    ['127 when it was not found', outcome('spawn_failed', { error: 'spawn nope ENOENT' }), 127],
    ['126 when it could not be executed', outcome('spawn_failed', { error: 'spawn EACCES' }), 126],
    ['what the worker says of a start that failed', outcome('spawn_failed', { code: 127, error: 'x' }), 127],
    ['125 without code or signal', outcome('lost'), 125],
    ['125 for a signal that this machine does not know', outcome('signaled', { signal: 'SIGNOPE' }), 125],
  ])('[CO8] is %s', (_what, given, status) => {
    expect(exitStatus(given, signals)).toBe(status);
  });
});

describe('tables', () => {
  it('pads all columns but the last', () => {
    expect(table([{ title: 'A' }, { title: 'LONG' }], [['xyz', '1']], Infinity)).toBe('A    LONG\nxyz  1\n');
  });

  it('says how long ago in one figure', () => {
    const nowMs = 10 * 86_400_000;
    expect([0, 59_000, 60_000, 7_200_000, 3 * 86_400_000].map((ago) => age(nowMs - ago, nowMs))).toEqual([
      '0s',
      '59s',
      '1m',
      '2h',
      '3d',
    ]);
    expect(age(nowMs + 5_000, nowMs)).toBe('0s');
  });

  it('shows no control characters of a command line', () => {
    expect(printable('a\u001b[31mb\nc')).toBe('a\uFFFD[31mb c');
  });
});

describe('the last lines of a log', () => {
  const entriesOf = (chunks: readonly string[]): Entry[] =>
    chunks.map((data, i) => ({
      type: 'output',
      commandId: 'cmd_x' as CommandId,
      seq: i + 1,
      ts: 0,
      at: 0,
      stream: 'out',
      data,
    }));
  const textOf = (entries: readonly Entry[]) =>
    entries.map((entry) => Buffer.from((outputOf(entry) as { bytes: Uint8Array }).bytes).toString()).join('');

  it('are the same however the output was cut into entries, with and without a break at the end', () => {
    const chunk = fc.array(fc.constantFrom('a', 'é', '\n'), { maxLength: 5 }).map((chars) => chars.join(''));
    fc.assert(
      fc.property(fc.array(chunk, { maxLength: 8 }), fc.nat(6), (chunks, tail) => {
        const text = chunks.join('');
        const lines = text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
        const wanted = tail === 0 ? '' : lines.slice(-tail).join('');
        expect(textOf(lastLines(entriesOf(chunks), tail))).toBe(wanted);
        expect(countLines(entriesOf(chunks))).toBe(text.split('\n').length - 1);
      }),
    );
  });
});
