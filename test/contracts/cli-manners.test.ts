/** How the programs behave in a terminal, in a pipe and when something is lost on the way. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SHELLS } from '../../src/cli/completion-scripts.js';
import { MAIN, runHoming } from '../support/cluster.js';
import { type Household, startHousehold } from '../support/household.js';
import { openTerminal } from '../support/terminal.js';
import { until, within } from '../support/wait.js';

const bash = (script: string, env: Record<string, string | undefined>) =>
  promisify(execFile)('bash', ['-c', script], { env: { ...env, HOMING: MAIN, NODE: process.execPath } });

describe('homing in a terminal and in a pipe', () => {
  let home: Household;

  beforeAll(async () => {
    home = await startHousehold([], { HOMING_CONCURRENCY: '1', HOMING_KILL_GRACE_MS: '8000' });
  });
  afterAll(() => home?.[Symbol.asyncDispose]());

  const inTerminal = (args: readonly string[], columns?: number, env: Record<string, string> = {}) =>
    openTerminal(process.execPath, [MAIN, ...args], { ...home.env, ...env }, columns);

  it('logs and ps whose reader goes away end quietly', async () => {
    const id = (await home.homing('run', '--detach', '-c', 'pipe', '--', 'seq', '1', '200000')).stdout.trim();
    await home.homing('logs', '-f', id);
    const script = (program: string) => `"$NODE" "$HOMING" ${program} | head -n 1; echo "\${PIPESTATUS[0]}"`;
    expect(await bash(script(`logs ${id}`), home.env)).toMatchObject({ stdout: '1\n0\n', stderr: '' });
    expect(await bash(script(`logs --json ${id}`), home.env)).toMatchObject({ stderr: '' });
    expect((await bash(script('ps -c pipe --all'), home.env)).stderr).toBe('');
  });

  it('ps fits the terminal, in colours that NO_COLOR takes away; a pipe gets all of it in plain text', async () => {
    const words = Array.from({ length: 20 }, (_, i) => `word-${i}`);
    await home.homing('run', '-c', 'wide', '--', 'echo', ...words);
    const show = async (columns: number, env: Record<string, string> = {}) => {
      await using terminal = inTerminal(['ps', '-c', 'wide', '--all'], columns, env);
      expect(await within('the end', terminal.ended)).toBe(0);
      return terminal.seen().trimEnd().split('\r\n');
    };
    for (const columns of [80, 132]) {
      const lines = await show(columns, { NO_COLOR: '1' });
      expect(lines).toHaveLength(2);
      for (const line of lines) {
        expect(line).not.toContain('\u001b');
        expect(line.length).toBeLessThanOrEqual(columns);
      }
      expect(lines[1]).toMatch(/^cmd_[a-z2-7]{16}_[a-z2-7]{26} .*echo word-0.*…$/);
    }
    expect((await show(80))[1]).toContain('\u001b[2mexited 0\u001b[22m');
    const piped = (await home.homing('ps', '-c', 'wide', '--all')).stdout;
    expect(piped).toContain('word-19');
    expect(piped).not.toContain('\u001b');
  });

  it('run says at which position a command is queued, on a terminal, until it starts', async () => {
    const runs = () => inTerminal(['run', '-c', 'queue', '--', 'sh', '-c', 'echo up; exec sleep 60']);
    await using first = runs();
    await first.shows('up');
    await using second = runs();
    await second.shows('homing: queued, position 1 …');
    await using third = inTerminal(['run', '-c', 'queue', '--', 'echo', 'my turn']);
    await third.shows('homing: queued, position 2 …');
    expect((await home.homing('ps', '-c', 'queue')).stdout).toMatch(/ queued 2 .*\n.* queued 1 .*\n.* running /);
    first.type('\u0003');
    expect(await within('the end of the first', first.ended)).toBe(130);
    await second.shows('up');
    await third.shows('homing: queued, position 1 …');
    expect(third.seen()).not.toContain('my turn');
    second.type('\u0003');
    expect(await within('the end of the third', third.ended)).toBe(0);
    // The line was taken away before anything else was written.
    expect(third.seen()).toMatch(/queued[^\n]*\r\u001b\[Kmy turn\r\n$/);
  });

  it('[CO5] run says what another Ctrl-C would do to a command that goes on', async () => {
    const script = 'trap "" INT; echo up; while :; do sleep 0.05; done';
    await using run = inTerminal(['run', '--', 'sh', '-c', script]);
    await run.shows('up');
    run.type('\u0003');
    await run.shows('Ctrl-C again kills it at once');
    run.type('\u0003');
    expect(await within('the end', run.ended)).toBe(137);
  });

  it('run --json gives entries, and with --detach the answer', async () => {
    const { code, stdout } = await home.homing('run', '--json', '--', 'sh', '-c', 'echo hi; exit 4');
    const entries = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(entries.map(({ type }) => type)).toEqual(['started', 'output', 'ended']);
    expect(code).toBe(4);
    const detached = JSON.parse((await home.homing('run', '--json', '--detach', '--', 'true')).stdout);
    expect(detached).toMatchObject({ commandId: expect.stringMatching(/^cmd_/) });
  });

  it('[SE3] logs -f outlasts the death of its node, and says so', { timeout: 40_000 }, async () => {
    const script = 'i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; sleep 0.1; done';
    const id = (await home.homing('run', '--detach', '-c', 'follow', '--', 'sh', '-c', script)).stdout.trim();
    const following = home.start('logs', '-f', id);
    await until('first lines', () => following.stdout().includes('3\n'));
    process.kill(home.pidOf('gateway 0'), 'SIGKILL');
    expect(await within('the end', following.ended, 30_000)).toBe(0);
    expect(following.stdout()).toBe(Array.from({ length: 60 }, (_, i) => `${i + 1}\n`).join(''));
    expect(following.stderr()).toMatch(/^homing: The connection to \S+ is lost; .*\nhoming: Connected again after /);
  });

  it('run leaves a command alone at the third Ctrl-C, when nobody hears the first two', {
    timeout: 40_000,
  }, async () => {
    await using run = inTerminal(['run', '-c', 'deaf', '--', 'sh', '-c', 'echo up; exec sleep 60']);
    await run.shows('up');
    const node = home.pidOf('gateway 0');
    process.kill(node, 'SIGSTOP');
    try {
      run.type('\u0003');
      await run.shows('Ctrl-C again kills it at once');
      run.type('\u0003');
      await run.shows('Ctrl-C again leaves it alone');
      run.type('\u0003');
      await run.shows(/homing: Left alone: homing kill cmd_\S+/);
      expect(await within('the end', run.ended, 20_000)).toBe(130);
    } finally {
      process.kill(node, 'SIGCONT');
    }
  });
});

describe('completion', () => {
  let folder = '';
  const script = (shell: string) => join(folder, `homing.${shell}`);

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'homing-completion-'));
    for (const shell of SHELLS) {
      const { code, stdout } = await runHoming(['completion', shell]);
      expect(code).toBe(0);
      await writeFile(script(shell), stdout);
    }
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  const has = async (shell: string): Promise<boolean> =>
    promisify(execFile)(shell, ['-c', 'exit 0']).then(
      () => true,
      () => false,
    );

  it('works in bash', async () => {
    const complete = async (...words: string[]) => {
      const quoted = words.map((word) => `'${word}'`).join(' ');
      const program = `source "${script('bash')}"; COMP_WORDS=(homing ${quoted}); COMP_CWORD=${words.length}; _homing; printf '%s\\n' "\${COMPREPLY[@]}"`;
      return (await bash(program, { PATH: process.env.PATH })).stdout.trim().split('\n');
    };
    expect(await complete('r')).toEqual(['run']);
    expect(await complete('do')).toEqual(['doctor']);
    expect(await complete('run', '--det')).toEqual(['--detach']);
    expect(await complete('up', '--data-dir', '/et')).toEqual(['/etc']);
    expect(await complete('run', '-c', 'x', '--', 'bas')).toContain('bash');
    expect(await complete('completion', 'f')).toEqual(['fish']);
  });

  it('works in fish', async (context) => {
    if (!(await has('fish'))) return context.skip();
    const complete = async (line: string) => {
      const program = `source ${script('fish')}; complete -C '${line}'`;
      const { stdout } = await promisify(execFile)('fish', ['--no-config', '-c', program], {
        env: { ...process.env, HOME: folder },
      });
      return stdout
        .trim()
        .split('\n')
        .map((answer) => answer.split('\t')[0]);
    };
    expect(await complete('homing r')).toEqual(['run']);
    expect(await complete('homing run --det')).toEqual(['--detach']);
    expect(await complete('homing completion ')).toEqual(expect.arrayContaining(['bash', 'fish', 'zsh']));
  });

  it('works in zsh', async (context) => {
    if (!(await has('zsh'))) return context.skip();
    await using shell = openTerminal('zsh', ['-f', '-i'], { PATH: process.env.PATH, HOME: folder }, 120);
    shell.type(
      `PS1='> '; autoload -U compinit; compinit -u -d ${folder}/dump; source ${script('zsh')}; echo load''ed\n`,
    );
    await shell.shows('loaded');
    shell.type('homing doc\t');
    await shell.shows('homing doctor');
    shell.type('\u0015homing run --det\t');
    await shell.shows('homing run --detach');
    shell.type('\u0015homing completion f\t');
    await shell.shows('homing completion fish');
    shell.type('\u0015exit\n');
    await within('the end of zsh', shell.ended);
  });
});
