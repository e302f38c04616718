/** The programs as people and scripts use them: real processes, their output and their exit status. */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runHoming } from '../support/cluster.js';
import { type Household, startHousehold } from '../support/household.js';
import { commandLine, isRunning } from '../support/processes.js';
import { until, within } from '../support/wait.js';

const noStackTrace = (text: string) => expect(text).not.toMatch(/^\s+at .+:\d+:\d+/m);
const base = { PATH: process.env.PATH, HOME: '/nonexistent' };

describe('homing up and the programs that talk to it', () => {
  let home: Household;

  beforeAll(async () => {
    home = await startHousehold(['--nodes', '2', '--workers', '1']);
  });
  afterAll(() => home?.[Symbol.asyncDispose]());

  it('prints a line for each address, the address of the app with a token in its fragment, and ready as the last', () => {
    const lines = home.up.stdout().trimEnd().split('\n');
    expect(lines.at(-1)).toBe('ready');
    expect(lines.filter((line) => /^(gateway|ops) [01] +http:\/\/127\.0\.0\.1:\d+$/.test(line))).toHaveLength(4);
    expect(lines.at(-2)).toMatch(/^app +http:\/\/127\.0\.0\.1:\d+\/#token=[\w-]+\.[\w-]+\.[\w-]+$/);
  });

  it('[CO10] keeps its secrets in files of its user alone, and out of every process list', () => {
    const { token, adminToken, url, opsUrl, pids } = home.runFile();
    expect(url).toMatch(/^http:\/\/127/);
    expect(opsUrl).toMatch(/^http:\/\/127/);
    expect(pids).toHaveLength(3);
    for (const file of ['run.json', 'secret']) expect(statSync(join(home.dataDir, file)).mode & 0o777).toBe(0o600);
    const secret = readFileSync(join(home.dataDir, 'secret'), 'utf8').trim();
    expect(home.processes().length).toBeGreaterThanOrEqual(5); // up, two nodes, a worker, Redis
    for (const pid of home.processes()) {
      for (const hidden of [secret, token, adminToken]) expect(commandLine(pid)).not.toContain(hidden);
    }
  });

  it('[DE1] run streams stdout to stdout and stderr to stderr, and ends with the status of the command', async () => {
    const { code, stdout, stderr } = await home.homing('run', '--', 'sh', '-c', 'echo out; echo err >&2; exit 3');
    expect({ code, stdout, stderr }).toEqual({ code: 3, stdout: 'out\n', stderr: 'err\n' });
  });

  it('[DE1] run passes every byte on, in order, at the pace of its reader', async () => {
    const { stdout } = await home.homing('run', '--', 'seq', '1', '100000');
    expect(stdout).toBe(Array.from({ length: 100_000 }, (_, i) => `${i + 1}\n`).join(''));
  });

  it('run needs no -- before a program without options, and leaves those of the program alone', async () => {
    expect(await home.homing('run', 'echo', '-n', '--help')).toMatchObject({ code: 0, stdout: '--help' });
  });

  it.each([
    ['a signal', ['--', 'sh', '-c', 'kill -TERM $$'], 143],
    ['its time', ['--timeout', '300ms', '--', 'sleep', '30'], 124],
    ['a program that is not there', ['--', '/no/such/program'], 127],
    ['a file that is no program', ['--', '/etc/passwd'], 126],
    ['a folder that is not there', ['--cwd', '/no/such/folder', '--', 'true'], 126],
    ['wrong usage', ['--timeout', '10', '--', 'true'], 125],
  ])('[CO8] run says how it ended: %s', async (_what, args, status) => {
    const { code, stdout, stderr } = await home.homing('run', ...args);
    expect({ code, stdout }).toEqual({ code: status, stdout: '' });
    noStackTrace(stderr);
  });

  it('run hands variables to the command, and a label to operators', async () => {
    const args = ['run', '-c', 'labels', '-e', 'A=b=c', '--label', 'kind=test', '--', 'sh', '-c', 'echo "$A"'];
    expect(await home.homing(...args)).toMatchObject({ code: 0, stdout: 'b=c\n' });
    const listed = await home.homing('ps', '-c', 'labels', '--all', '--json');
    expect(JSON.parse(listed.stdout)).toMatchObject({ labels: { kind: 'test' }, state: 'ended' });
  });

  it('[CO5] run forwards Ctrl-C to the command, whose answer decides the status', async () => {
    const script = 'trap "echo bye; exit 9" INT; echo up; while :; do sleep 0.05; done';
    const run = home.start('run', '--', 'sh', '-c', script);
    await until('the command to run', () => run.stdout() === 'up\n');
    run.child.kill('SIGINT');
    expect(await within('the end', run.ended)).toBe(9);
    expect(run.stdout()).toBe('up\nbye\n');
  });

  it('[CO5] a second Ctrl-C kills a command that does not care about the first', async () => {
    const run = home.start('run', '--', 'sh', '-c', 'trap "echo no" INT; echo up; while :; do sleep 0.05; done');
    await until('the command to run', () => run.stdout() === 'up\n');
    run.child.kill('SIGINT');
    await until('the first to be heard', () => run.stdout().includes('no'));
    run.child.kill('SIGINT');
    expect(await within('the end', run.ended)).toBe(137);
  });

  it('run ends a command whose reader went away, as a shell would', async () => {
    const run = home.start('run', '--', 'yes');
    await until('output', () => run.stdout().includes('y\n'));
    run.child.stdout?.destroy();
    expect(await within('the end', run.ended)).toBe(141);
    noStackTrace(run.stderr());
  });

  it('[SE5] run closes its session, so that none is left', async () => {
    await home.homing('run', '-c', 'tidy', '--', 'true');
    expect((await home.homing('sessions', '-c', 'tidy', '--json')).stdout).toBe('');
  });

  it('sessions shows who is there, and ps what they run', async () => {
    const run = home.start('run', '-c', 'shown', '--', 'sh', '-c', 'echo up; sleep 30');
    await until('the command to run', () => run.stdout() === 'up\n');
    const sessions = await home.homing('sessions', '-c', 'shown');
    expect(sessions.stdout).toMatch(/^SESSION .*\nses_\S+ +live .*\n$/);
    const commands = await home.homing('ps', '-c', 'shown');
    expect(commands.stdout).toMatch(/^COMMAND .*\ncmd_\S+ +running .*sh -c echo up; sleep 30\n$/);
    run.child.kill('SIGTERM');
    expect(await within('the end', run.ended)).toBe(143);
  });

  it('--detach prints the id; logs reads and follows it, ps shows it, kill ends it', async () => {
    // Two streams keep no order between them, unless there is time between.
    const script = 'echo one; echo two >&2; sleep 0.3; echo three; while :; do sleep 0.05; done';
    const { code, stdout } = await home.homing('run', '--detach', '-c', 'away', '--', 'sh', '-c', script);
    expect(code).toBe(0);
    const id = stdout.trim();
    expect(id).toMatch(/^cmd_/);
    const following = home.start('logs', '-f', id);
    await until('both streams', () => following.stdout() === 'one\nthree\n' && following.stderr() === 'two\n');
    expect((await home.homing('logs', '--tail', '1', id)).stdout).toBe('three\n');
    expect((await home.homing('kill', '--signal', 'KILL', id)).stdout).toMatch(/^(requested|running|ended)\n$/);
    expect(await within('the end of following', following.ended)).toBe(0);
    const entries = (await home.homing('logs', '--json', id)).stdout.trimEnd().split('\n');
    expect(entries.map((line) => JSON.parse(line).type).at(-1)).toBe('ended');
    expect((await home.homing('ps', '-c', 'away')).stdout).not.toContain(id);
    expect((await home.homing('ps', '-c', 'away', '--all')).stdout).toContain('cancelled SIGKILL');
  });

  it('[IS1] another principal sees nothing, and is told that there is nothing', async () => {
    const { stdout } = await home.homing('run', '--detach', '--', 'true');
    const { stdout: token } = await home.homing('token', '--sub', 'mallory');
    const as = (...args: string[]) => home.homing(...args, '--token', token.trim());
    expect(await as('ps', '--all', '--json')).toMatchObject({ code: 0, stdout: '' });
    for (const args of [
      ['logs', stdout.trim()],
      ['kill', stdout.trim()],
    ]) {
      const { code, stderr } = await as(...args);
      expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('UNKNOWN_COMMAND') });
    }
  });

  it('[IS1] a token without the scope, or for another conversation, is refused with a sentence', async () => {
    const readOnly = (await home.homing('token', '--sub', 'local', '--scope', 'read')).stdout.trim();
    const elsewhere = (await home.homing('token', '--sub', 'local', '-c', 'other')).stdout.trim();
    for (const token of [readOnly, elsewhere, 'nonsense']) {
      const { code, stderr } = await home.homing('run', '--token', token, '--', 'true');
      expect(code).toBe(125);
      expect(stderr).toMatch(/^homing: .+\n$/);
    }
  });

  it('a second up on the same folder is refused by name', async () => {
    const { code, stderr } = await home.homing('up', '--port', '0', '--ops-port', '0');
    expect(code).toBe(1);
    expect(stderr).toContain(home.dataDir);
    expect(home.runFile().pid).toBe(home.up.child.pid);
  });

  it('[SE3] a node that is killed starts again at its address, and run goes on as if nothing was', async () => {
    const before = home.runFile();
    const run = home.start('run', '--', 'sh', '-c', 'for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.2; done');
    await until('first output', () => run.stdout().startsWith('1\n2\n'));
    process.kill(home.pidOf('gateway 0'), 'SIGKILL');
    expect(await within('the end', run.ended, 25_000)).toBe(0);
    expect(run.stdout()).toBe('1\n2\n3\n4\n5\n6\n7\n8\n9\n');
    await until('run.json to know the new one', () => home.pidOf('gateway 0') !== before.pids[0].pid);
    expect(home.runFile()).toMatchObject({ url: before.url, opsUrl: before.opsUrl });
  }, 40_000);
});

describe('the end of homing up', () => {
  it('[CO5] drains on SIGTERM: ends with 0, and nothing is left, not run.json either', async () => {
    await using home = await startHousehold();
    home.up.child.kill('SIGTERM');
    expect(await within('the end', home.up.ended)).toBe(0);
    expect(home.processes()).toEqual([]);
    expect(() => home.runFile()).toThrow(/ENOENT/);
  });

  it('lets a second SIGTERM cut the drain short, and still leaves nothing', async () => {
    await using home = await startHousehold([], { HOMING_DRAIN_MS: '60000' });
    const run = home.start('run', '--', 'sh', '-c', 'trap "" TERM; echo up; while :; do sleep 0.05; done');
    await until('the command to run', () => run.stdout() === 'up\n');
    home.up.child.kill('SIGTERM');
    await until('the drain', () => home.up.stderr().includes('draining'));
    home.up.child.kill('SIGTERM');
    expect(await within('the end', home.up.ended, 20_000)).toBe(1);
    run.child.kill('SIGKILL');
    await until('nothing to be left', () => home.processes().length === 0);
  }, 40_000);

  it('[CO4] leaves no process behind when it is killed: no node, no worker, no Redis, no command', async () => {
    await using home = await startHousehold();
    const { stdout } = await home.homing(
      'run',
      '--detach',
      '--',
      'sh',
      '-c',
      'trap "" TERM; while :; do sleep 0.05; done',
    );
    await until('the command to run', async () =>
      (await home.homing('ps')).stdout.includes(`${stdout.trim()}  running`),
    );
    home.up.child.kill('SIGKILL');
    await until('nothing to be left', () => home.processes().length === 0, 20_000);
    const { code, stderr } = await home.homing('ps');
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('homing up') });
  }, 40_000);

  it('starts a worker again that died', async () => {
    await using home = await startHousehold();
    const before = home.pidOf('worker 0');
    process.kill(before, 'SIGKILL');
    await until('another worker', () => home.pidOf('worker 0') !== before && isRunning(home.pidOf('worker 0')));
    expect(await home.homing('run', '--', 'echo', 'again')).toMatchObject({ code: 0, stdout: 'again\n' });
  });
});

describe('programs that can not start', () => {
  it.each(['gateway', 'worker', 'up'])(
    '%s lists every fault of its settings at once and ends with 2',
    async (program) => {
      const env = { ...base, HOMING_PORT: '99999', HOMING_REDIS_URL: 'http://x', HOMING_LEASE_MS: 'soon' };
      const { code, stdout, stderr } = await runHoming([program], { env });
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
      for (const name of ['HOMING_PORT', 'HOMING_REDIS_URL', 'HOMING_LEASE_MS'])
        expect(stderr).toContain(`homing: ${name}: `);
      noStackTrace(stderr);
    },
  );

  it('gateway, worker and up say that Redis is missing in one sentence, without password or stack trace', async () => {
    const env = { ...base, HOMING_REDIS_URL: 'redis://user:hushhush@127.0.0.1:1', HOMING_DATA_DIR: '/tmp/homing-none' };
    const ports = ['--port', '0', '--ops-port', '0'];
    // Side by side, since each tries for five seconds.
    const programs = [['gateway', ...ports], ['worker'], ['up', ...ports]].map((args) => runHoming(args, { env }));
    for (const { code, stdout, stderr } of await Promise.all(programs)) {
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      expect(stderr).toMatch(/homing: .*127\.0\.0\.1:1.*HOMING_REDIS_URL/);
      expect(stderr).not.toContain('hushhush');
      expect(stderr.trimEnd().split('\n')).toHaveLength(1);
      noStackTrace(stderr);
    }
  });

  it('[IS1] a node listens beyond loopback with a token setting only', async () => {
    const { code, stderr } = await runHoming(['gateway', '--host', '0.0.0.0'], { env: base });
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining('HOMING_JWT_SECRET') });
  });

  it('a program that finds no node says what to do', async () => {
    const env = { ...base, HOMING_DATA_DIR: '/tmp/homing-none' };
    expect(await runHoming(['ps'], { env })).toMatchObject({ code: 1, stderr: expect.stringContaining('"homing up"') });
    const gone = await runHoming(['ps', '--url', 'http://127.0.0.1:1', '--token', 'x'], { env });
    expect(gone).toMatchObject({ code: 1, stderr: expect.stringMatching(/^homing: The node at .* does not answer/) });
  });

  it('token refuses what a node would leave out silently, every fault at once', async () => {
    const env = { ...base, HOMING_JWT_SECRET: 's'.repeat(32) };
    const args = ['token', '--sub', 'a', '--scope', 'read wirte', '-c', 'a*b'];
    const { code, stdout, stderr } = await runHoming(args, { env });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('wirte');
    expect(stderr).toContain('a*b');
  });

  it('every program has a --help with an example', async () => {
    for (const program of [
      'up',
      'gateway',
      'worker',
      'run',
      'ps',
      'logs',
      'kill',
      'sessions',
      'token',
      'doctor',
      'completion',
    ]) {
      const { code, stdout } = await runHoming([program, '--help'], { env: base });
      expect(code).toBe(0);
      expect(stdout).toMatch(new RegExp(`Example:\\n.*homing ${program}`));
    }
  });

  it('wrong usage ends with 2', async () => {
    for (const args of [['nope'], ['kill'], ['up', '--nodes', '0'], ['logs', '--tail', 'x', 'id']]) {
      expect((await runHoming(args, { env: base })).code).toBe(2);
    }
  });
});
