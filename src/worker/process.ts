/**
 * Starts a command in its place (see `containment.ts`), in its own session and process group, with real pipes for its output,
 * or says in a sentence why it could not be started.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, closeSync, fchownSync } from 'node:fs';
import { access, constants, stat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import type { EndCause, Exit } from '../domain/outcome.js';
import { LIMITS } from '../protocol/limits.js';
import type { CommandSpec } from '../protocol/methods.js';
import type { Place } from './containment.js';
import { findProgram } from './find-program.js';
import { closePipe, type Pipe, type PipePool } from './pipes.js';
import { makeNamedInput, type NamedInput } from './process-input.js';
import { type LaunchFault, launchOf, REPORT_FD, readReport, type ToldRequest, toldOf } from './process-launch.js';
import type { ProcessTree } from './process-tree.js';
import { inTerminal, openPty, type Pty } from './pty.js';
import type { RunAs } from './run-as.js';
import { type Program, programOf } from './script-file.js';
import type { Standby } from './standby.js';
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
  /** After it has exited: why the program was never there, where only that showed it. */
  notStarted(): Promise<SpawnFailed | undefined>;
  readonly outputs: readonly OutputSource[];
  /** Of a command with a stdin or a terminal. */
  readonly input?: InputSink;
  readonly pty?: Pty;
}

type SpawnFailed = Extract<EndCause, { type: 'spawn_failed' }>;

export type StartResult = { readonly type: 'started'; readonly process: RunningProcess } | SpawnFailed;

export interface StartRequest {
  readonly spec: CommandSpec;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Where it is to run. The caller leaves it, unless it was not started. */
  readonly place: Place;
  /** `NAME=value` by which what it starts is known. */
  readonly mark: string;
  /** To be put before everything: its control group; none where it has none. */
  readonly enterGroup: readonly string[];
  /** Commands of the shell that set its limits. */
  readonly limits: readonly string[];
  readonly runAs?: RunAs | undefined;
}

/** A shell that hangs before the program is there, as in a folder whose server does not answer. */
const LAUNCHED_WITHIN_MS = 30_000;
const MAX_REPORT = 1_000;

/** What the host gives to one command; closed in the worker when it was handed over. */
interface Channels {
  /** stdout, and stderr where it is another; none of a shell that stands there, which has its own. */
  readonly pipes: readonly Pipe[];
  readonly stdin: Pipe | NamedInput | undefined;
  readonly pty: Pty | undefined;
}

export async function startProcess(request: StartRequest, pool: PipePool): Promise<StartResult> {
  const { spec, place } = request;
  const pipes: Pipe[] = [];
  let stdin: Pipe | NamedInput | undefined;
  let pty: Pty | undefined;
  let program: Program | undefined;
  const fail = async (why: (path: string) => Promise<SpawnFailed> | SpawnFailed) => {
    pipes.forEach(closePipe);
    if (stdin !== undefined) closePipe(stdin);
    pty?.close();
    place.leave();
    return why(program?.argv[0] ?? '');
  };
  try {
    const folderFault = await faultOfFolder(request.cwd);
    if (folderFault !== undefined) return await fail(() => failed(folderFault, null));
    program = await programOf(spec);
    // The launching shell could not say it in our words.
    await findProgram(program.argv[0] as string, request);
    if (spec.pty !== undefined) pty = openPty(spec.pty);
    const words = wordsOf(request, program, pty);
    const standing = standingFor(request, program, words);
    if (standing === undefined) {
      // It would be taken for a part of the command.
      place.standby?.close();
      if (words.stdin) stdin = await inputFor(request, pool);
      if (pty === undefined) {
        pipes.push(await pool.take());
        if (spec.streams === 'split') pipes.push(await pool.take());
      }
    }
    const started = await launch(program, request, words, standing, { pipes, stdin, pty });
    if ('fault' in started) return await fail((path) => explainFault(started.fault, path, request.cwd));
    for (const { writeFd } of pipes) closeSync(writeFd);
    if (stdin !== undefined) closeSync(stdin.readFd);
    return { type: 'started', process: started };
  } catch (error) {
    return fail((path) => explainFailure(error as NodeJS.ErrnoException, path));
  } finally {
    await program?.scriptFile?.close();
    if (stdin !== undefined && 'forget' in stdin) await stdin.forget();
  }
}

const inputFor = ({ place, runAs }: StartRequest, pool: PipePool): Promise<Pipe | NamedInput> =>
  place.inputFolder === undefined ? pool.takeInput() : makeNamedInput(place.inputFolder, runAs);

/** What the launching shell has to be told. */
function wordsOf({ spec, env, cwd, limits }: StartRequest, program: Program, pty: Pty | undefined): ToldRequest {
  const argv = pty === undefined ? program.argv : inTerminal(pty.path, program.argv);
  const stdin = pty === undefined && spec.stdin === 'pipe';
  return { argv, env, cwd, limits, merged: spec.streams !== 'split', stdin };
}

interface Standing {
  readonly standby: Standby;
  readonly script: string;
}

/** The shell that stands in its place, unless the command needs what had to be there when that was started. */
function standingFor({ place, enterGroup }: StartRequest, program: Program, words: ToldRequest): Standing | undefined {
  const { standby } = place;
  if (standby?.ready !== true || enterGroup.length > 0 || program.scriptFile !== undefined) return undefined;
  const script = toldOf(words);
  return script === undefined ? undefined : { standby, script };
}

interface Started {
  readonly pid: number;
  readonly exited: Promise<Exit>;
  /** What the launching shell says. */
  readonly report: Readable;
  /** Where its stdin is written. */
  readonly inputFd: number | undefined;
  kill(): void;
}

async function spawnNew(
  request: StartRequest,
  program: Program,
  words: ToldRequest,
  channels: Channels,
): Promise<Started> {
  const { pipes, stdin } = channels;
  const [out, err = out] = pipes;
  const { scriptFile } = program;
  if (request.runAs !== undefined) {
    const outputs = pipes.map(({ writeFd }) => writeFd);
    giveTo(request.runAs, scriptFile === undefined ? outputs : [...outputs, scriptFile.fd], channels);
  }
  const stdinPath = stdin !== undefined && 'path' in stdin ? stdin.path : undefined;
  const { argv, env } = launchOf(words, stdinPath);
  const [file = '', ...args] = [...request.enterGroup, ...request.place.enter, ...argv];
  const child = spawn(file, args, {
    cwd: '/',
    env,
    // One pipe for both keeps the true order of what was written to them. Then SCRIPT_FD and REPORT_FD.
    stdio: [
      stdinPath === undefined ? (stdin?.readFd ?? 'ignore') : 'ignore',
      out?.writeFd ?? 'ignore',
      err?.writeFd ?? 'ignore',
      scriptFile?.fd ?? 'ignore',
      'pipe',
    ],
    // A session and group of its own.
    detached: true,
  });
  const exited = new Promise<Exit>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
  await spawned(child);
  const report = child.stdio[REPORT_FD] as Readable;
  return { pid: child.pid as number, exited, report, inputFd: stdin?.writeFd, kill: () => void child.kill('SIGKILL') };
}

/** The shell that stands there goes on to the program. */
function goOn(
  { standby, script }: Standing,
  { runAs }: StartRequest,
  { stdin }: ToldRequest,
  channels: Channels,
): Started {
  const { pid, exited, report, out, err, kill } = standby;
  // Before the program looks: without a writer its stdin would be at its end.
  const inputFd = stdin ? standby.openInput() : undefined;
  if (runAs !== undefined) giveTo(runAs, [out, err, ...(inputFd === undefined ? [] : [inputFd])], channels);
  standby.tell(script);
  return { pid, exited, report, inputFd, kill };
}

async function launch(
  program: Program,
  request: StartRequest,
  words: ToldRequest,
  standing: Standing | undefined,
  channels: Channels,
): Promise<RunningProcess | { readonly fault: LaunchFault }> {
  const { pipes, pty } = channels;
  const { spec, place, cwd, mark } = request;
  const started =
    standing === undefined
      ? await spawnNew(request, program, words, channels)
      : goOn(standing, request, words, channels);
  const { pid, exited, inputFd } = started;
  const report = readReportOf(started);
  const fault = await report.first;
  if (fault !== undefined) return { fault };
  if (!report.wentOn()) throw new Error('its room ended before it was there');
  const { leader, tree } = place.adopt(pid, mark);
  const outputs = outputsOf(spec, pipes, standing, pty);
  return {
    pid: leader,
    tree,
    exited,
    notStarted: async () => {
      const late = report.fault();
      return late === undefined ? undefined : explainFault(late, program.argv[0] ?? '', cwd);
    },
    outputs,
    ...(pty === undefined ? {} : { pty, input: pty.input }),
    ...(inputFd === undefined ? {} : { input: pipeSink(inputFd) }),
  };
}

/** What of its output is to be read. A shell that stood there had both pipes, whatever the command needs. */
function outputsOf(
  { streams }: CommandSpec,
  pipes: readonly Pipe[],
  standing: Standing | undefined,
  pty: Pty | undefined,
): readonly OutputSource[] {
  const reading = pipes.map(({ readFd }) => readFd);
  if (standing !== undefined) {
    standing.standby.take();
    reading.push(standing.standby.out, standing.standby.err);
  }
  const wanted = pty !== undefined ? 0 : streams === 'split' ? 2 : 1;
  reading.slice(wanted).forEach(closeSync);
  if (pty !== undefined) return [{ stream: 'pty', pty }];
  return reading.slice(0, wanted).map((readFd, i) => ({ stream: i === 0 ? 'out' : 'err', readFd }));
}

/**
 * Programs open /dev/stdout and the like again, which asks for the rights of a file.
 *
 * @param fds of pipes, either end, and of a script
 */
function giveTo({ uid, gid }: RunAs, fds: readonly number[], { stdin, pty }: Channels): void {
  for (const fd of fds) fchownSync(fd, uid, gid);
  if (stdin !== undefined) fchownSync(stdin.readFd, uid, gid);
  if (pty !== undefined) chownSync(pty.path, uid, gid);
}

/** What the launching shell says. `first` rejects when it hangs; it is killed then. */
function readReportOf({ report: pipe, kill }: Started): {
  readonly first: Promise<LaunchFault | undefined>;
  /** Whether it said that the program comes next. */
  wentOn(): boolean;
  fault(): LaunchFault | undefined;
} {
  let report = '';
  const fault = () => {
    const said = readReport(report);
    return said === 'started' ? undefined : said;
  };
  const first = new Promise<LaunchFault | undefined>((resolve, reject) => {
    const timer = setTimeout(() => {
      kill();
      pipe.destroy();
      reject(new Error(`it did not start within ${LAUNCHED_WITHIN_MS} ms`));
    }, LAUNCHED_WITHIN_MS);
    const settle = () => {
      clearTimeout(timer);
      resolve(fault());
    };
    pipe.on('data', (bytes: Buffer) => {
      if (report.length < MAX_REPORT) report += bytes.toString('latin1');
      if (readReport(report) !== undefined) settle();
    });
    pipe.once('close', settle).once('error', settle);
  });
  return { first, wentOn: () => report.startsWith('go\n'), fault };
}

const spawned = (child: ChildProcess): Promise<void> =>
  new Promise((resolve, reject) => {
    child.once('spawn', resolve);
    // Stays: a later error, as of a failed kill, must not end the worker.
    child.on('error', reject);
  });

/** What the launching shell met, in the words of `explainFailure`. */
async function explainFault({ step, code }: LaunchFault, path: string, cwd: string): Promise<SpawnFailed> {
  if (step === 'cwd') return failed(`the working folder ${quoted(cwd)} may not be entered`, null);
  if (step === 'limits') return failed('this host does not allow the resource limits that were asked for', null);
  return explainFailure(Object.assign(new Error(), { code: code === 127 ? 'ENOENT' : 'EACCES' }), path);
}

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

const failed = (error: string, code: 126 | 127 | null): SpawnFailed => ({
  type: 'spawn_failed',
  error,
  code,
});

/** Names the program, never its arguments or environment: they may hold what nobody should read in an error. */
async function explainFailure(error: NodeJS.ErrnoException, path: string): Promise<SpawnFailed> {
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
