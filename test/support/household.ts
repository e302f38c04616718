/** A real `homing up` in a data folder of its own, and `homing` programs that talk to it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MAIN, runHoming } from './cluster.js';
import { commandLine, isRunning, MARKER, marked } from './processes.js';
import { until, within } from './wait.js';

let households = 0;

/** Processes that name this folder in their command line, as Redis does, whose environment is empty. */
const mentioning = (folder: string): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => isRunning(pid) && commandLine(pid).includes(folder));

export interface StartedProgram {
  readonly child: ChildProcess;
  stdout(): string;
  stderr(): string;
  /** Resolves with the exit code when all its output was read. */
  readonly ended: Promise<number | null>;
}

/** Starts a program and collects what it says. */
export function startProgram(
  args: readonly string[],
  env: Record<string, string | undefined>,
  stdin: 'ignore' | 'pipe' = 'ignore',
): StartedProgram {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: [stdin, 'pipe', 'pipe'], env });
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text) => {
    stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text) => {
    stderr += text;
  });
  const ended = once(child, 'close').then(() => child.exitCode);
  return { child, stdout: () => stdout, stderr: () => stderr, ended };
}

export async function startHousehold(args: readonly string[] = [], more: Record<string, string> = {}) {
  const dataDir = await mkdtemp(join(tmpdir(), 'homing-up-'));
  households += 1;
  const marker = `${process.pid}:up${households}`;
  const env: Record<string, string | undefined> = {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    [MARKER]: marker,
    HOMING_ENV_ALLOW: `PATH HOME ${MARKER}`,
    HOMING_DATA_DIR: dataDir,
    HOMING_LEASE_MS: '2000',
    HOMING_DRAIN_MS: '3000',
    HOMING_KILL_GRACE_MS: '300',
    ...more,
  };
  const up = startProgram(['up', '--port', '0', '--ops-port', '0', ...args], env);

  const household = {
    dataDir,
    env,
    up,
    /** Every process that came from this `up` and still runs: itself, nodes, workers, Redis, commands. */
    processes: () => [...new Set([...marked(marker), ...mentioning(dataDir)])],
    runFile: () => JSON.parse(readFileSync(join(dataDir, 'run.json'), 'utf8')),
    pidOf: (name: string): number =>
      household.runFile().pids.find((child: { name: string; pid: number }) => child.name === name)?.pid ?? 0,
    homing: (...of: string[]) => runHoming(of, { env }),
    start: (...of: string[]) => startProgram(of, env),
    /** As `start`, with a stdin to write to. */
    startWithInput: (...of: string[]) => startProgram(of, env, 'pipe'),
    async [Symbol.asyncDispose](): Promise<void> {
      up.child.kill('SIGTERM');
      await within('the end of homing up', up.ended, 20_000).catch(() => up.child.kill('SIGKILL'));
      for (const pid of marked(marker)) {
        try {
          process.kill(pid, 'SIGKILL');
        } catch {
          // Gone by itself.
        }
      }
      await until('the last process to be gone', () => marked(marker).every((pid) => !isRunning(pid)), 5_000);
      await rm(dataDir, { recursive: true, force: true });
    },
  };
  try {
    await until('homing up to be ready', () => {
      if (up.child.exitCode !== null) throw new Error('it ended');
      return /^ready$/m.test(up.stdout());
    });
  } catch (error) {
    await household[Symbol.asyncDispose]();
    throw new Error(`${error}; it said:\n${up.stdout()}\n${up.stderr()}`);
  }
  return household;
}

export type Household = Awaited<ReturnType<typeof startHousehold>>;
