/**
 * Starts a command in its place (see `containment.ts`), in its own session and process group, with real pipes for its output,
 * or says in a sentence why it could not be started.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, closeSync, fchownSync } from 'node:fs';
import { access, constants, stat } from 'node:fs/promises';
import type { EndCause, Exit } from '../domain/outcome.js';
import { LIMITS } from '../protocol/limits.js';
import type { CommandSpec } from '../protocol/methods.js';
import { findProgram } from './find-program.js';
import type { Place } from './containment.js';
import { closePipe, type Pipe, type PipePool } from './pipes.js';
import { faultIn, type LaunchFault, launchOf, REPORT_FD } from './process-launch.js';
import type { ProcessTree } from './process-tree.js';
import { inTerminal, openPty, type Pty } from './pty.js';
import type { RunAs } from './run-as.js';
import { type Program, programOf } from './script-file.js';
import { type InputSink, pipeSink } from './stdin.js';

/** Where output of a command comes from. */
export type OutputSource =
  /** The reader closes it. */
  { readonly stream: 'out' | 'err'; readonly readFd: number } | { readonly stream: 'pty'; readonly pty: Pty };

export interface RunningProcess {
  /** Of the leader, on the host. */
  readonly pid: number;
  readonly tree: ProcessTree;
  /** Of the leader. Never rejects. */
  readonly exited: Promise<Exit>;
  readonly outputs: readonly OutputSource[];
  /** Of a command with a stdin or a terminal. */
  readonly input?: InputSink;
  readonly pty?: Pty;
}

export type StartResult =
  | { readonly type: 'started'; readonly process: RunningProcess }
  | Extract<EndCause, { type: 'spawn_failed' }>;

export interface StartRequest {
  readonly spec: CommandSpec;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

export async function startProcess(request: StartRequest, pool: PipePool): Promise<StartResult> {
  // Checked first, since a bad folder and a missing program are the same ENOENT to spawn.
  const folderFault = await faultOfFolder(request.cwd);
  if (folderFault !== undefined) return failed(folderFault, null);

  const { spec } = request;
  const pipes: Pipe[] = [];
  let stdin: Pipe | undefined;
  let pty: Pty | undefined;
  let program: Program | undefined;
  try {
    program = await programOf(spec);
    if (spec.pty !== undefined) {
      // A shell opens the terminal and becomes the program: what it can not find must be told here.
      await findProgram(program.argv[0] as string, request);
      pty = openPty(spec.pty);
    } else {
      pipes.push(await pool.take());
      if (spec.streams === 'split') pipes.push(await pool.take());
      if (spec.stdin === 'pipe') stdin = await pool.takeInput();
    }
    const process = await spawnWith(program, request, { pipes, stdin, pty });
    for (const pipe of pipes) closeSync(pipe.writeFd);
    if (stdin !== undefined) closeSync(stdin.readFd);
    return { type: 'started', process };
  } catch (error) {
    pipes.forEach(closePipe);
    if (stdin !== undefined) closePipe(stdin);
    pty?.close();
    return explainFailure(error as NodeJS.ErrnoException, program?.argv[0] ?? '');
  } finally {
    await program?.scriptFile?.close();
  }
}

async function spawnWith(
  program: Program,
  { cwd, env }: StartRequest,
  {
    pipes,
    stdin,
    pty,
  }: { readonly pipes: readonly Pipe[]; readonly stdin?: Pipe | undefined; readonly pty?: Pty | undefined },
): Promise<RunningProcess> {
  const [out, err = out] = pipes;
  const { scriptFile } = program;
  const argv = pty === undefined ? program.argv : inTerminal(pty.path, program.argv);
  const child = spawn(argv[0] as string, argv.slice(1), {
    cwd,
    env,
    // One pipe for both keeps the true order of what was written to them. The script, if any, is SCRIPT_FD.
    stdio: [
      stdin?.readFd ?? 'ignore',
      out?.writeFd ?? 'ignore',
      err?.writeFd ?? 'ignore',
      ...(scriptFile === undefined ? [] : [scriptFile.fd]),
    ],
    // A session and group of its own; signals reach the group by its id.
    detached: true,
  });
  const exited = new Promise<Exit>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
  await spawned(child);
  const pid = child.pid as number;
  return {
    pid,
    group: processGroup(pid),
    exited,
    outputs:
      pty === undefined
        ? pipes.map(({ readFd }, i) => ({ stream: i === 0 ? 'out' : 'err', readFd }))
        : [{ stream: 'pty', pty }],
    ...(pty === undefined ? {} : { pty, input: pty.input }),
    ...(stdin === undefined ? {} : { input: pipeSink(stdin.writeFd) }),
  };
}

const spawned = (child: ChildProcess): Promise<void> =>
  new Promise((resolve, reject) => {
    child.once('spawn', resolve);
    // Stays: a later error, as of a failed kill, must not end the worker.
    child.on('error', reject);
  });

async function faultOfFolder(cwd: string): Promise<string | undefined> {
  try {
    if (!(await stat(cwd)).isDirectory()) return `the working folder ${quoted(cwd)} is not a folder`;
    await access(cwd, constants.X_OK);
    return undefined;
  } catch (error) {
    const denied = (error as NodeJS.ErrnoException).code === 'EACCES';
    return `the working folder ${quoted(cwd)} ${denied ? 'may not be entered' : 'does not exist'}`;
  }
}

const failed = (error: string, code: 126 | 127 | null): Extract<EndCause, { type: 'spawn_failed' }> => ({
  type: 'spawn_failed',
  error,
  code,
});

/** Names the program, never its arguments or environment: they may hold what nobody should read in an error. */
async function explainFailure(
  error: NodeJS.ErrnoException,
  path: string,
): Promise<Extract<EndCause, { type: 'spawn_failed' }>> {
  const program = quoted(path);
  switch (error.code) {
    case 'ENOENT':
      if (!path.includes('/')) return failed(`the program ${program} was not found on PATH`, 127);
      return (await exists(path))
        ? failed(`the interpreter of ${program} was not found`, 127)
        : failed(`the program ${program} was not found`, 127);
    case 'ENOTDIR':
      return failed(`the program ${program} was not found`, 127);
    case 'EACCES':
    case 'EPERM':
      return failed(`the program ${program} may not be executed: permission denied`, 126);
    case 'ENOEXEC':
      return failed(`the program ${program} is not in a form this host can execute`, 126);
    case 'E2BIG':
      return failed(
        `arguments and environment are too large for this host (one may have ${LIMITS.maxArgBytes} bytes)`,
        126,
      );
    case 'ERR_INVALID_ARG_VALUE':
      return failed('arguments and environment must not contain a NUL character', 126);
    default:
      return failed(`the host could not start a process (${error.code ?? error.message})`, null);
  }
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

const quoted = (name: string): string => JSON.stringify(name.length > 200 ? `${name.slice(0, 200)}…` : name);
