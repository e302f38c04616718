/** `homing run` with input and with a terminal, as people and pipes use it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { inTerminal, openPty } from '../../src/worker/pty.js';
import { MAIN } from '../support/cluster.js';
import { type Household, startHousehold } from '../support/household.js';
import { until, within } from '../support/wait.js';

let home: Household;
beforeAll(async () => {
  home = await startHousehold();
});
afterAll(() => home?.[Symbol.asyncDispose]());

describe('homing run passes its input on', () => {
  it('to the last byte, whatever the bytes, and the end of it', async () => {
    const run = home.startWithInput('run', '--', 'sh', '-c', 'sha256sum; echo over');
    const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, i) => (i * 7 + (i >> 8)) % 256));
    run.child.stdin?.end(bytes);
    const digest = Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex');
    expect(await within('its end', run.ended, 20_000)).toBe(0);
    expect(run.stdout()).toBe(`${digest}  -\nover\n`);
  });

  it('as it comes', async () => {
    const run = home.startWithInput('run', '--', 'sh', '-c', 'while read line; do echo "got $line"; done');
    run.child.stdin?.write('one\n');
    await until('the first answer', () => run.stdout() === 'got one\n');
    run.child.stdin?.end('two\n');
    expect(await within('its end', run.ended)).toBe(0);
    expect(run.stdout()).toBe('got one\ngot two\n');
  });

  it('and ends when the command does, although more would come', async () => {
    const run = home.startWithInput('run', '--', 'head', '-c', '3');
    const feeding = setInterval(() => run.child.stdin?.write('xxxx'), 20);
    run.child.stdin?.on('error', () => undefined);
    try {
      expect(await within('its end', run.ended)).toBe(0);
      expect(run.stdout()).toBe('xxx');
    } finally {
      clearInterval(feeding);
    }
  });

  it('or does not read it at all', async () => {
    const run = home.startWithInput('run', '--no-stdin', '--', 'cat');
    expect(await within('its end', run.ended)).toBe(0);
    run.child.stdin?.destroy();
  });
});

/** A program in a terminal of the test's own. */
function inTestTerminal(args: readonly string[]) {
  const pty = openPty({ cols: 91, rows: 27 });
  let screen = '';
  pty.read(
    Buffer.alloc(65_536),
    (bytes) => {
      screen += Buffer.from(bytes).toString('latin1');
    },
    () => undefined,
  );
  const [command = '', ...rest] = inTerminal(pty.path, [process.execPath, MAIN, ...args]);
  const child = spawn(command, rest, { detached: true, stdio: 'ignore', env: { ...home.env, TERM: 'xterm' } });
  return {
    pty,
    child,
    screen: () => screen,
    ended: once(child, 'exit').then(() => child.exitCode),
    type: (text: string) => pty.input.write(Buffer.from(text)),
    [Symbol.dispose]: () => pty.close(),
  };
}

describe('homing run --pty', () => {
  it('shows a terminal of the size of this one, follows its changes, and gives every key to the command', async () => {
    const script =
      'stty size; echo $TERM; trap "echo interrupted" INT; trap "stty size" WINCH; while :; do read line && echo "line $line" && [ "$line" = end ] && exit 4; done';
    using run = inTestTerminal(['run', '--pty', '--', 'sh', '-c', script]);
    await until('the size', () => /27 91\s+xterm\s/.test(run.screen()));
    run.pty.resize({ cols: 60, rows: 20 });
    await until('the new size', () => run.screen().includes('20 60'));
    await run.type('\x03');
    await until('Ctrl-C at the command', () => run.screen().includes('interrupted'));
    await run.type('end\n');
    expect(await within('its end', run.ended)).toBe(4);
    expect(run.screen()).toContain('line end');
  });

  it('works without a terminal here', async () => {
    const { code, stdout } = await home.homing('run', '--pty', '--', 'sh', '-c', 'stty size; [ -t 1 ] && echo yes');
    expect({ code, stdout }).toEqual({ code: 0, stdout: '24 80\r\nyes\r\n' });
  });
});
