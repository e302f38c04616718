/** Every command in the README runs, as it is written there; and every file it names is there. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MARKER, markerFor } from '../support/processes.js';
import { until, within } from '../support/wait.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');
const [start = '', test = '', ...session] = [...README.matchAll(/```sh\n([\s\S]*?)```/g)].map(
  (block) => block[1] as string,
);

/** Each `npx` alone takes half a second of a free core. */
const RUN_LIMIT_MS = 40_000;

describe('the README', { timeout: RUN_LIMIT_MS + 5_000 }, () => {
  let dataDir = '';
  let system: ChildProcess;
  let said = '';

  const env = (): NodeJS.ProcessEnv => ({
    PATH: process.env.PATH,
    HOME: dataDir,
    [MARKER]: markerFor('readme'),
    HOMING_DATA_DIR: dataDir,
    HOMING_PORT: '0',
    HOMING_OPS_PORT: '0',
    npm_config_update_notifier: 'false',
    npm_config_cache: process.env.npm_config_cache ?? join(process.env.HOME ?? dataDir, '.npm'),
  });

  async function run(script: string): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const child = spawn('bash', ['-euo', 'pipefail', '-c', script], { cwd: ROOT, env: env() });
    const out = { stdout: '', stderr: '' };
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out.stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      out.stderr += text;
    });
    await within(`the end of: ${script}`, once(child, 'close'), RUN_LIMIT_MS).catch((error) => {
      throw new Error(`${error.message}; it said: ${out.stdout}${out.stderr}; the system: ${said.slice(-4_000)}`);
    });
    return { code: child.exitCode, ...out };
  }

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'homing-readme-'));
    // "npm ci" is what brought this test here; the rest of the line is run as it is written.
    const [install, command = ''] = start.trim().split(' && ');
    expect(install).toBe('npm ci');
    system = spawn('bash', ['-c', `exec ${command}`], { cwd: ROOT, env: env(), detached: true });
    for (const stream of [system.stdout, system.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        said += text;
      });
    }
    await until('ready', () => {
      if (system.exitCode !== null) throw new Error(`"${command}" ended: ${said}`);
      return /^ready$/m.test(said);
    }).catch((error) => {
      throw new Error(`${error.message}; it said:\n${said}`);
    });
  });

  afterAll(async () => {
    if (system?.pid !== undefined && system.exitCode === null) {
      const gone = once(system, 'exit');
      process.kill(-system.pid, 'SIGTERM');
      await within('the end of the system', gone, 15_000);
    }
    await rm(dataDir, { recursive: true, force: true });
  }, 30_000);

  it('starts with two commands: one that starts it, and the one that CI runs', () => {
    expect(start.trim()).toBe('npm ci && npm start');
    expect(test.trim()).toBe('npm ci && npm test');
    const ci = readFileSync(join(ROOT, '.ci/run'), 'utf8');
    expect(ci).toMatch(/^npm ci\b/m);
    expect(ci).toMatch(/^export HOMING_TEST_PART=all\nnpm test\b/m);
  });

  it('[OW1] two terminals on one conversation each print their own', async () => {
    // As written, but with what the first terminal shows in a file, so that the two can be told apart.
    const [first = '', ...rest] = (session[0] as string).split('\n');
    expect(first.endsWith('&')).toBe(true);
    const other = join(dataDir, 'first-terminal');
    const { code, stdout, stderr } = await run([first.replace(/&$/, `> "${other}" &`), ...rest].join('\n'));
    expect(code, stderr).toBe(0);
    const expected = (name: string) => [1, 2, 3].map((i) => `tab ${name}: ${i}\n`).join('');
    expect(readFileSync(other, 'utf8')).toBe(expected('one'));
    expect(stdout).toBe(expected('two'));
  });

  it('[OW4] a detached command is listed and its log followed to the end', async () => {
    const { code, stdout, stderr } = await run(session[1] as string);
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/cmd_[a-z2-7]{16}_[a-z2-7]{26}/);
    expect(stdout.endsWith('on my own\nand done\n')).toBe(true);
  });

  it('[CO5] a command is killed from the terminal', async () => {
    const { code, stdout, stderr } = await run(session[2] as string);
    expect(code, stderr).toBe(0);
    expect(stdout).toContain('requested');
  });

  it('[CO8] the exit status of a command is the exit status of homing run, and its streams are kept apart', async () => {
    const { code, stdout, stderr } = await run(`npx homing run -- sh -c 'echo out; echo err >&2; exit 7'`);
    expect([code, stdout]).toEqual([7, 'out\n']);
    expect(stderr).toContain('err\n');
    expect((await run('npx homing run -- /no/such/program')).code).toBe(127);
    expect((await run(`npx homing run --timeout 300ms -- sleep 60`)).code).toBe(124);
    expect((await run(`npx homing run -- sh -c 'kill -KILL $$'`)).code).toBe(137);
  });

  it('names only files that are there', () => {
    const named = [...README.matchAll(/\b(?:src|docs|test)\/[\w./-]+\.\w+|docker-compose\.yml/g)].map(([path]) => path);
    expect(named.length).toBeGreaterThan(8);
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});
