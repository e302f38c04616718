/** What a command may do to its host and what is left of it, at both levels of containment, with real processes. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { chmod, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KillRequest } from '../../src/domain/ports.js';
import type { Outcome } from '../../src/protocol/entries.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { commandSpec } from '../../src/protocol/methods.js';
import { createContainment } from '../../src/worker/containment.js';
import { probeKeeper, probeRoom } from '../../src/worker/containment-probe.js';
import { sweepLeftovers } from '../../src/worker/containment-sweep.js';
import { openHost } from '../../src/worker/host.js';
import { openLedger } from '../../src/worker/ledger.js';
import { createPipePool } from '../../src/worker/pipes.js';
import { startProcess } from '../../src/worker/process.js';
import { childrenOf, commandLine, isRunning, MARKER, marked } from '../support/processes.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores, silentLog } from '../support/stores.js';
import {
  type Logged,
  program,
  readWholeLog,
  runOnce,
  type Spec,
  script,
  startWorkerOn,
  submitFromTab,
} from '../support/test-worker.js';
import { never, until, within } from '../support/wait.js';

let redis: TestRedis;
let stores: Stores;
let folder: string;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
  folder = await mkdtemp(join(tmpdir(), 'homing-containment-'));
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

type TestWorker = Awaited<ReturnType<typeof startWorkerOn>>;

const kill = (request: Partial<KillRequest> = {}): KillRequest => ({
  signal: 'SIGTERM',
  graceMs: 300,
  reason: 'cancelled',
  ...request,
});

const everyPid = () => readdirSync('/proc').filter((name) => /^\d+$/.test(name));
/** Processes whose command line has this in it, but for shells that only quote it. */
const running = (text: string) =>
  everyPid()
    .map(Number)
    .filter((pid) => pid !== process.pid && isRunning(pid) && commandLine(pid).includes(text));

/** Those that end a process that does not expect them; two names of one signal count once. */
const SIGNALS = Object.entries(constants.signals).filter(
  ([name, number], i, all) =>
    !/^SIG(CHLD|CONT|STOP|TSTP|TTIN|TTOU|URG|WINCH|IOT|POLL|UNUSED)$/.test(name) &&
    all.findIndex(([, other]) => other === number) <= i,
);

let figures = 0;
/** A number of seconds that no other process sleeps. */
const uniqueSeconds = () => String(600_000 + (process.pid % 10_000) * 10 + ++figures);

async function runOn(worker: TestWorker, spec: Spec): Promise<Logged & { readonly commandId: CommandId }> {
  const commandId = await submitFromTab(stores, spec);
  await within('the end of the command', worker.run(commandId), 15_000);
  return { ...(await readWholeLog(stores, commandId)), commandId };
}

/** Starts it and waits until it said something. */
async function begin(worker: TestWorker, spec: Spec, text: string) {
  const commandId = await submitFromTab(stores, spec);
  const over = worker.run(commandId);
  await until(`"${text}" in the log`, async () => (await readWholeLog(stores, commandId)).output.includes(text));
  return {
    commandId,
    kill: (request?: Partial<KillRequest>) => stores.commands.requestKill(commandId, kill(request)),
    async outcome(): Promise<Outcome> {
      await within('the end of the command', over, 15_000);
      return (await readWholeLog(stores, commandId)).outcome;
    },
  };
}

describe.each([
  ['pidns', 'room keeper', []],
  ['pidns', 'setpriv and unshare', ['perl']],
  ['group', 'process group', ['unshare', 'bwrap']],
] as const)('at containment %s by %s', (level, means, without) => {
  let worker: TestWorker;
  beforeAll(async () => {
    worker = await startWorkerOn(stores, redis.url, {}, { without });
  });
  afterAll(() => worker[Symbol.asyncDispose]());

  it('[CO4] the level is told with the start of a command and by the worker', async () => {
    const { said } = await runOn(worker, { argv: ['true'] });
    expect(said[0]?.params).toMatchObject({ containment: level });
    const facts = (await stores.presence.workers()).find(({ id }) => id === worker.worker.workerId)?.facts;
    expect(facts).toMatchObject({ containment: level, means });
  });

  it.each([0, 3, 126, 127, 137, 255])('[CO8] exit code %i comes through as it is', async (code) => {
    const { outcome } = await runOn(worker, script(`exit ${code}`));
    expect(outcome).toMatchObject({ reason: 'exited', code, signal: null, leftovers: 0 });
    expect(outcome.error).toBeUndefined();
  });

  it.each(SIGNALS)('[CO8] signal %s comes through as it is', async (name, number) => {
    const { outcome } = await runOn(worker, script(`ulimit -c 0; kill -${number} $$; sleep 5`));
    expect(outcome).toMatchObject({ reason: 'signaled', code: null, signal: name, leftovers: 0 });
  });

  it('[CO8] a command that signals its own group, or all it may, ends as it would anywhere', async () => {
    const own = await runOn(
      worker,
      script('trap "" HUP; sleep 5 & kill -HUP 0; echo still here; kill %1 2>/dev/null; exit 4'),
    );
    expect(own.output.toString()).toContain('still here');
    expect(own.outcome).toMatchObject({ reason: 'exited', code: 4 });
    if (level === 'group') return; // There it would be everybody on this machine.
    const all = await runOn(worker, script('sleep 600 & kill -KILL -1; sleep 0.2; kill -KILL -1; echo alone; exit 5'));
    expect(all.outcome).toMatchObject({ reason: 'exited', code: 5, leftovers: 0 });
  });

  it('[CO8] a command that was stopped and went on still tells its end', async () => {
    const stopped = await runOn(worker, script('(sleep 0.3; kill -CONT $$) & kill -STOP $$; echo went on; exit 6'));
    expect(stopped.outcome).toMatchObject({ reason: 'exited', code: 6 });
  });

  it('[CO5] a program that traps SIGTERM gets its whole kill grace', async () => {
    const command = await begin(worker, program('last-words.sh', '8'), 'ready');
    await command.kill({ graceMs: 10_000 });
    expect(await command.outcome()).toMatchObject({ reason: 'cancelled', code: 7, signal: null, leftovers: 0 });
    const { output } = await readWholeLog(stores, command.commandId);
    expect(output.toString()).toMatch(/^ready\n(Terminated\n)?asked\nsaved\n$/);
  });

  it('[CO5] kill means the whole tree: child, own session, daemon, no environment, deaf to SIGTERM', async () => {
    const seconds = uniqueSeconds();
    const command = await begin(worker, program('plants.sh', seconds, 'hidden'), 'planted');
    expect(running(`sleep ${seconds}`).length).toBeGreaterThanOrEqual(6);
    await Promise.all([command.kill(), command.kill()]);
    expect(await command.outcome()).toMatchObject({ reason: 'cancelled', signal: 'SIGKILL', leftovers: 0 });
    expect(running(`sleep ${seconds}`)).toEqual([]);
    expect(await command.kill()).toEqual({ type: 'ended' });
  });

  it('[CO5] what a command leaves behind is ended with it', async () => {
    const seconds = uniqueSeconds();
    const { outcome } = await runOn(
      worker,
      script(`setsid sleep ${seconds} & (sleep ${seconds} &) ; sleep 0.2; exit 2`),
    );
    expect(outcome).toMatchObject({ reason: 'exited', code: 2, leftovers: 0 });
    expect(running(`sleep ${seconds}`)).toEqual([]);
  });

  it('[CO5] with leftovers: keep the command runs until the last of them is gone, and can be killed', async () => {
    const gate = join(folder, `gate-${level}-${without.length}`);
    const kept = await begin(worker, { ...program('keeper.sh', gate), leftovers: 'keep' }, 'early');
    await never(
      'an end before its child ended',
      async () => (await stores.commands.get(kept.commandId))?.snapshot.state !== 'running',
      800,
    );
    await writeFile(gate, '');
    expect(await kept.outcome()).toMatchObject({ reason: 'exited', code: 3, leftovers: 0, tail: 'early\nlate\n' });

    const killed = await begin(worker, { ...program('keeper.sh', join(folder, 'never')), leftovers: 'keep' }, 'early');
    const leader = (await readWholeLog(stores, killed.commandId)).said[0]?.params.pid;
    await until('its leader to be gone', () => !isRunning(leader));
    await killed.kill();
    expect(await killed.outcome()).toMatchObject({ reason: 'cancelled', code: 3, leftovers: 0 });
  });

  it('[CO6] a grandchild that holds the pipe does not hold the end back', async () => {
    const beganMs = performance.now();
    const { outcome } = await runOn(worker, program('holder.sh', 'setsid'));
    expect(performance.now() - beganMs).toBeLessThan(2_500);
    expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
  });

  it('[CO8] of a kill and an exit at the same time one decides, and there is one end', async () => {
    for (let i = 0; i < 10; i++) {
      const commandId = await submitFromTab(stores, script('echo ready; sleep 0.1; exit 9'));
      const over = worker.run(commandId);
      await until('its start', async () => (await readWholeLog(stores, commandId)).output.length > 0);
      await new Promise((resolve) => setTimeout(resolve, 60 + 8 * i));
      await stores.commands.requestKill(commandId, kill({ graceMs: 1_000 }));
      await within('the end of the command', over);
      const { said, outcome } = await readWholeLog(stores, commandId);
      expect(said.filter(({ method }) => method === 'command.ended')).toHaveLength(1);
      expect(['exited', 'cancelled']).toContain(outcome.reason);
      if (outcome.reason === 'exited') expect(outcome.code).toBe(9);
      else expect(outcome.code === 9 || outcome.signal === 'SIGTERM').toBe(true);
    }
  });

  it('[CO5] names what SIGKILL did not end', async (context) => {
    const freezer = `/sys/fs/cgroup/freezer/homing-test-${process.pid}-${level}-${without.length}`;
    try {
      mkdirSync(freezer);
    } catch {
      context.skip(); // Only a frozen process outlives SIGKILL at will.
    }
    try {
      const command = await begin(worker, script('sleep 987654 & echo $!; wait'), '\n');
      const pid = running('sleep 987654').find((one) => commandLine(one) === 'sleep 987654')!;
      writeFileSync(join(freezer, 'cgroup.procs'), String(pid));
      writeFileSync(join(freezer, 'freezer.state'), 'FROZEN');
      await until('it to be frozen', () => readFileSync(join(freezer, 'freezer.state'), 'utf8').startsWith('FROZEN'));
      await command.kill({ graceMs: 50 });
      const outcome = await command.outcome();
      expect(outcome).toMatchObject({ reason: 'kill_failed', leftovers: 1 });
      expect(outcome.error).toBe(`still there after SIGKILL: ${pid} (sleep)`);
    } finally {
      writeFileSync(join(freezer, 'freezer.state'), 'THAWED');
      await until('the end of what was frozen', () => running('sleep 987654').length === 0);
      // The kernel lets go of who ended in it a moment later.
      await until('an empty freezer', () => rmdirSync(freezer) === undefined);
    }
  });

  it('[CO8] a limit that is reached has its own reason, with the figure', async () => {
    const limited = async (text: string, resources: Spec['resources']) =>
      (await runOn(worker, { ...script(text), resources })).outcome;
    expect(await limited('while :; do :; done', { cpuSeconds: 1 })).toMatchObject({
      reason: 'resource_limit',
      error: 'the limit of 1 s of processor time was reached',
    });
    expect(await limited('ulimit -c 0; head -c 100000 /dev/zero > big; echo no', { fileBytes: 4096 })).toMatchObject({
      code: expect.anything(),
    });
    expect(await limited(`exec head -c 100000 /dev/zero > ${folder}/big`, { fileBytes: 4096 })).toMatchObject({
      reason: 'resource_limit',
      error: 'a file grew to the limit of 4096 bytes',
    });
    expect(await limited('for i in 1 2 3 4 5 6 7 8; do sleep 600 & done; wait', { processes: 5 })).toMatchObject({
      reason: 'resource_limit',
      error: expect.stringMatching(/^it had \d+ processes; the limit is 5$/),
    });
    expect(await limited('yes | head -c 1000000; sleep 600', { outputBytes: 5_000 })).toMatchObject({
      reason: 'output_limit',
      error: 'the limit of 5000 bytes of output was reached',
    });
    expect((await runOn(worker, { ...script('ulimit -n'), resources: { openFiles: 64 } })).output.toString()).toBe(
      '64\n',
    );
  });

  it('[CO8] memory over its limit is told as out_of_memory', async () => {
    const argv = [process.execPath, '-e', 'const a = []; setInterval(() => a.push(Buffer.alloc(8 << 20, 1)), 10)'];
    const { outcome } = await runOn(worker, { argv, resources: { memoryBytes: 200 * 1024 * 1024 } });
    expect(outcome).toMatchObject({
      reason: 'out_of_memory',
      error: expect.stringMatching(/^it used \d+ bytes of memory; the limit is 209715200$/),
      leftovers: 0,
    });
  });

  it('[CO8] the kernel ending it for want of memory is told apart from any other SIGKILL', async (context) => {
    const memory = `/sys/fs/cgroup/memory/homing-test-${process.pid}-${level}`;
    try {
      mkdirSync(memory);
      writeFileSync(join(memory, 'memory.limit_in_bytes'), String(64 * 1024 * 1024));
    } catch {
      context.skip(); // Another way to make the kernel do it would endanger this machine.
    }
    try {
      const eat = 'const a = []; for (;;) a.push(Buffer.alloc(8 << 20, 1))';
      const { outcome } = await runOn(
        worker,
        script(`echo $$ > ${memory}/cgroup.procs; exec ${process.execPath} -e '${eat}'`),
      );
      expect(outcome).toMatchObject({ reason: 'out_of_memory', signal: 'SIGKILL' });
    } finally {
      await until('its group to be empty', () => {
        try {
          rmdirSync(memory);
          return true;
        } catch {
          return false;
        }
      });
    }
  });

  it('the environment arrives whole, and no helper on the way takes it for its own', async () => {
    const env = {
      QUOTES: `'"$(id)\`\\`,
      LINES: 'a\nb\n',
      EMPTY: '',
      IFS: 'x',
      OPTIND: 'no number',
      _h: 'mine',
      PWD: '/q',
    };
    const { output } = await runOn(worker, {
      argv: [process.execPath, '-p', 'JSON.stringify(process.env)'],
      env: { ...env, NO_COLOR: '1' },
    });
    const seen = JSON.parse(output.toString());
    expect(seen).toMatchObject(env);
    expect(Object.keys(seen).filter((name) => /^_h./.test(name) || name === 'OLDPWD')).toEqual([]);
    const loud = await runOn(worker, { argv: ['/bin/echo', 'once'], env: { LD_PRELOAD: '/no/such/library.so' } });
    expect(loud.output.toString().match(/cannot be preloaded/g)).toHaveLength(1);
    expect(loud.outcome).toMatchObject({ reason: 'exited', code: 0 });
  });

  it('[CO8] a program whose interpreter is missing is not started', async () => {
    const path = join(folder, `bad-${level}`);
    await writeFile(path, '#!/no/such/interpreter\n');
    await chmod(path, 0o755);
    const { outcome } = await runOn(worker, { argv: [path] });
    expect(outcome).toMatchObject({
      reason: 'spawn_failed',
      code: 127,
      error: `the interpreter of "${path}" was not found`,
    });
  });
});

describe.runIf(process.getuid?.() === 0)('the probe of a worker', () => {
  const enter = ['/usr/bin/nsenter', '--pid', '--mount', '--', '/usr/bin/setsid'];
  const unshare = ['/usr/bin/unshare', '--pid', '--fork', '--kill-child', '--mount-proc'];
  const seen = (make: string[]) => probeRoom({ name: 'x', make, enter });

  it('[CO4] trusts what held, and nothing that lets a planted process live, cannot be made or is not there', async () => {
    expect(await seen(['/usr/bin/setpriv', '--pdeathsig', 'KILL', ...unshare])).toBeUndefined();
    expect(await seen(unshare)).toMatch(/^\d+ processes outlived the death of their worker$/);
    expect(await seen(['/bin/false'])).toBe('it ended at once');
    expect(await seen(['/no/such/tool'])).toEqual(expect.any(String));
  });
});

describe('a room keeper', () => {
  const keepers = () => running('room-keeper.pl').filter((pid) => childrenOf(process.pid).includes(pid));
  const standing = {
    enter: ['/usr/bin/nsenter', '--pid', '--mount', '--', '/usr/bin/setsid'],
    userNamespace: process.getuid?.() !== 0,
    shell: ['/bin/sh'],
  };

  it('[CO4] [CO8] that dies takes its rooms with it, which is told, and the next command has a room again', async () => {
    await using worker = await startWorkerOn(stores, redis.url);
    const seconds = uniqueSeconds();
    const command = await begin(worker, script(`setsid sleep ${seconds} & echo up; sleep ${seconds}`), 'up');
    expect(keepers()).toHaveLength(1);
    process.kill(keepers()[0] as number, 'SIGKILL');
    expect(await command.outcome()).toMatchObject({ reason: 'signaled', signal: 'SIGKILL', leftovers: 0 });
    expect(running(`sleep ${seconds}`)).toEqual([]);
    for (const code of [4, 5, 6]) {
      expect((await runOn(worker, script(`exit ${code}`))).outcome).toMatchObject({ reason: 'exited', code });
    }
    expect(keepers()).toHaveLength(1);
  });

  it('[CO8] a command whose room ends before it is there was not started, and says so', async () => {
    const containment = await createContainment({ id: 'x', floor: 'auto', path: '', log: silentLog });
    const pipes = createPipePool();
    const place = await containment.place(undefined, '/');
    for (const pid of keepers()) process.kill(pid, 'SIGKILL');
    const spec = commandSpec.parse({ script: 'echo there' });
    const request = { spec, cwd: '/', env: {}, place, mark: 'NO=MARK', enterGroup: [], limits: [] };
    expect(await startProcess(request, pipes)).toEqual({
      type: 'spawn_failed',
      error: 'the host could not start a process (its room ended before it was there)',
      code: null,
    });
    pipes.close();
    await containment.close();
  });

  it('gives a command nothing but what it is to have', async () => {
    await using worker = await startWorkerOn(stores, redis.url);
    const own =
      'echo fds: $(ls /proc/self/fd); grep SigIgn /proc/self/status; ps -o pid=,pgid=,sid= -p $$; ps -e -o pid=';
    const { output } = await runOn(worker, { ...script(own), streams: 'split' });
    const [fds, ignored, leader, ...pids] = output.toString().trim().split('\n');
    // The last one is what ls reads from.
    expect(fds).toBe('fds: 0 1 2 3');
    expect(ignored).toMatch(/\t0+$/);
    expect(new Set(leader?.trim().split(/ +/)).size).toBe(1);
    // The init, the command, and ps.
    expect(pids).toHaveLength(3);
  });

  it('makes as many rooms as commands come at once', async () => {
    await using worker = await startWorkerOn(stores, redis.url, { concurrency: 40 });
    const ends = await Promise.all(
      Array.from({ length: 40 }, (_, code) => runOn(worker, script(`echo ${code}; exit ${code}`))),
    );
    expect(ends.map(({ output, outcome }) => [output.toString(), outcome.code])).toEqual(
      ends.map((_, code) => [`${code}\n`, code]),
    );
  });

  it('[CO4] is trusted when its rooms died with it, and not when one lives on, can not be made or is not there', async () => {
    const perl = '/usr/bin/perl';
    expect(await probeKeeper({ ...standing, perl })).toBeUndefined();
    const deaf = join(folder, 'perl-without-prctl');
    const text = `#!/bin/sh\nsed s/^dies_with_parent.*// "$1" > ${deaf}.pl; shift; exec ${perl} ${deaf}.pl "$@"\n`;
    await writeFile(deaf, text, { mode: 0o755 });
    expect(await probeKeeper({ ...standing, perl: deaf })).toMatch(
      /^\d+ processes outlived the death of their worker$/,
    );
    expect(await probeKeeper({ ...standing, perl: '/bin/false' })).toBe('the keeper of rooms ended');
    expect(await probeKeeper({ ...standing, perl: '/no/such/perl' })).toEqual(expect.any(String));
    expect(await probeKeeper({ ...standing, perl, shell: ['/no/such/shell'] })).toEqual(expect.any(String));
    await until('none of them to be left', () => keepers().length === 0);
  });
});

describe('what a worker does not offer', () => {
  it('[CO4] pidns on a worker of level group: the command is refused with words', async () => {
    const { outcome, said } = await runOnce(
      stores,
      redis.url,
      { argv: ['true'], containment: 'pidns' },
      {},
      { level: 'group' },
    );
    expect(said).toHaveLength(1);
    expect(outcome).toMatchObject({
      reason: 'refused',
      error: expect.stringMatching(/^containment: .*CONTAINMENT_UNAVAILABLE/),
    });
    const able = await runOnce(stores, redis.url, { argv: ['true'], containment: 'pidns' });
    expect(able.outcome).toMatchObject({ reason: 'exited', code: 0 });
  });

  it('[CO4] a worker whose floor is pidns does not start where that was not seen to work', async () => {
    const host = openHost({
      id: 'x',
      floor: 'pidns',
      without: ['unshare', 'bwrap'],
      dataDir: folder,
      keepMs: 1_000,
      path: '',
      log: silentLog,
    });
    await expect(host).rejects.toThrow(/^HOMING_CONTAINMENT is pidns, which this host does not allow/);
  });

  it.each([
    [{ runAs: 'nobody-of-that-name' }, /^HOMING_RUN_AS: there is no user/],
    [{ runAs: 'two words' }, /^HOMING_RUN_AS: must be the name/],
    [{ workRoot: '/no/such/folder' }, /^HOMING_WORK_ROOT: \/no\/such\/folder is not a folder/],
    [{ dataDir: '/dev/null/x' }, /^HOMING_DATA_DIR: the ledger of starts can not be kept/],
    [{ sandbox: 'readonly', without: ['bwrap'] }, /^HOMING_SANDBOX: needs bubblewrap/],
  ] as const)('settings that can not be kept stop the worker with a sentence: %j', async (wrong, sentence) => {
    const host = openHost({
      id: 'x',
      floor: 'auto',
      dataDir: folder,
      keepMs: 1_000,
      path: '',
      log: silentLog,
      ...wrong,
    });
    await expect(host).rejects.toThrow(sentence);
  });
});

describe('a sandbox', () => {
  const inside = (profile: string, text: string, more: Spec = {}) => ({
    ...script(text),
    ...more,
    sandbox: { profile },
  });
  const tries =
    'touch /etc/x 2>/dev/null && echo root; touch here && echo folder; touch /tmp/x && echo tmp; ls /tmp | grep -v x';

  it('lets a command write to its working folder and a private /tmp alone', async () => {
    const { output } = await runOnce(stores, redis.url, inside('workspace', `${tries} 2>/dev/null`, { cwd: folder }));
    expect(output.toString()).toMatch(/^folder\ntmp\n/);
    expect(output.toString()).not.toContain('root');
    expect(existsSync(join(folder, 'here'))).toBe(true);
    expect(existsSync('/tmp/x')).toBe(false);
  });

  it('takes the network, and with readonly the working folder', async () => {
    const text = `${tries} 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1; mount -o remount,rw / 2>/dev/null && echo escaped`;
    await rm(join(folder, 'here'), { force: true });
    const { output } = await runOnce(stores, redis.url, inside('readonly', text, { cwd: folder }));
    const lines = output
      .toString()
      .split('\n')
      .map((line) => line.trim());
    expect(lines.filter((line) => ['root', 'folder', 'escaped'].includes(line))).toEqual([]);
    expect(lines).toContain('tmp');
    expect(lines).toContain('lo');
    expect(lines.some((line) => /^(eth|en|wl)/.test(line))).toBe(false);
  });

  it('keeps exit codes, signals, stdin and terminals as they are', async () => {
    expect((await runOnce(stores, redis.url, inside('offline', 'exit 137'))).outcome).toMatchObject({ code: 137 });
    expect((await runOnce(stores, redis.url, inside('offline', 'kill -9 $$'))).outcome).toMatchObject({
      signal: 'SIGKILL',
    });
    const tty = await runOnce(
      stores,
      redis.url,
      inside('readonly', 'test -t 0 && tty && echo yes', { pty: { cols: 80, rows: 24 } }),
    );
    expect(tty.output.toString()).toContain('yes');
  });

  it('may be asked for tighter than the worker has it, never wider', async () => {
    const host = { sandbox: 'offline' } as const;
    const wider = await runOnce(stores, redis.url, inside('workspace', 'true'), {}, host);
    expect(wider.outcome).toMatchObject({
      reason: 'refused',
      error: expect.stringMatching(/^sandbox.profile: this worker runs every command in offline/),
    });
    const tighter = await runOnce(stores, redis.url, inside('readonly', 'true'), {}, host);
    expect(tighter.outcome).toMatchObject({ reason: 'exited', code: 0 });
    const silent = await runOnce(stores, redis.url, { ...script('touch /etc/x'), cwd: '/' }, {}, host);
    expect(silent.outcome.code).not.toBe(0);
  });
});

describe.runIf(process.getuid?.() === 0)('commands as another user', () => {
  // As text: a sandbox has a temporary folder of its own, and this checkout may be in the host's.
  const lastWords = readFileSync(new URL('../programs/last-words.sh', import.meta.url), 'utf8');

  it.each([
    ['pidns', undefined],
    ['group', undefined],
    ['pidns', 'offline'],
  ] as const)(
    'at %s, sandbox %s: have its ids, groups and home, and can open what they were given',
    async (level, sandbox) => {
      await using worker = await startWorkerOn(stores, redis.url, {}, { level, runAs: 'nobody', sandbox });
      const { output } = await runOn(
        worker,
        script('id -u; id -g; id -G; echo $HOME $USER; echo again > /dev/stdout; cat /etc/shadow'),
      );
      expect(output.toString()).toMatch(/^65534\n65534\n65534\n\/nonexistent nobody\nagain\n.*Permission denied/);
      const killed = await begin(worker, script(`set -- 1; ${lastWords}`), 'ready');
      await killed.kill({ graceMs: 5_000 });
      expect(await killed.outcome()).toMatchObject({ reason: 'cancelled', code: 7 });
    },
  );

  it('are not started in a folder that it may not enter', async () => {
    const cwd = await mkdtemp(join(folder, 'closed-'));
    const { outcome } = await runOnce(stores, redis.url, { argv: ['/bin/true'], cwd }, {}, { runAs: '65534:65534' });
    expect(outcome).toMatchObject({ reason: 'spawn_failed', error: `the working folder "${cwd}" may not be entered` });
  });
});

describe('a worker with a work root', () => {
  it('runs commands in it, and none outside, also by a link', async () => {
    const root = await mkdtemp(join(folder, 'root-'));
    await symlink('/etc', join(root, 'out'));
    const at = (cwd?: string) =>
      runOnce(stores, redis.url, { argv: ['pwd'], ...(cwd === undefined ? {} : { cwd }) }, {}, { workRoot: root });
    expect((await at()).output.toString()).toBe(`${root}\n`);
    for (const cwd of ['/', '..', join(root, 'out'), `${root}-beside`]) {
      expect((await at(cwd)).outcome).toMatchObject({
        reason: 'refused',
        error: expect.stringMatching(/^cwd: .*outside of/),
      });
    }
  });
});

describe('the ledger of a host', () => {
  const open = (of: string, nowMs = Date.now) => openLedger({ folder: of, keepMs: 3_600_000, nowMs });
  const id = (n: number) => `cmd_${n}` as never;

  it('[CO2] lets one start of a command stand, between workers and after a restart', async () => {
    const of = await mkdtemp(join(folder, 'ledger-'));
    const [one, two] = [await open(of), await open(of)];
    const answers = await Promise.all(
      Array.from({ length: 40 }, async (_, n) => [
        await Promise.all([one.enter(id(n), 'a' as never), two.enter(id(n), 'b' as never)]),
      ]),
    );
    for (const [pair] of answers) expect(pair!.filter(Boolean)).toHaveLength(1);
    await one.close();
    await two.close();
    const three = await open(of);
    expect(await three.enter(id(7), 'c' as never)).toBe(false);
    expect(await three.enter(id(1000), 'c' as never)).toBe(true);
    await three.close();
  });

  it('[CO2] remembers over the turn of an hour, and forgets what is too old', async () => {
    const of = await mkdtemp(join(folder, 'ledger-'));
    let nowMs = 1_000 * 3_600_000;
    const ledger = await open(of, () => nowMs);
    expect(await ledger.enter(id(1), 'a' as never)).toBe(true);
    nowMs += 3_600_000;
    const other = await open(of, () => nowMs);
    expect(await other.enter(id(1), 'b' as never)).toBe(false);
    nowMs += 2 * 3_600_000;
    await other.enter(id(2), 'b' as never);
    expect(readdirSync(of)).not.toContain('starts-1000.log');
    await ledger.close();
    await other.close();
  });

  it('[CO2] a command that Redis gives out again is ended and not started', async () => {
    await using worker = await startWorkerOn(stores, redis.url);
    const path = join(folder, 'starts');
    const commandId = await submitFromTab(stores, script(`echo x >> ${path}; echo done`));
    // What a Redis that lost its last writes looks like: the command is queued again.
    const before = await stores.redis.dumpBuffer(stores.keys.command(commandId));
    await within('the end', worker.run(commandId));
    await stores.redis.del(stores.keys.first(commandId), stores.keys.last(commandId));
    await stores.redis.restore(stores.keys.command(commandId), 0, before!, 'REPLACE');
    await within('the second end', worker.run(commandId));
    const { said, outcome } = await readWholeLog(stores, commandId);
    expect(said.map(({ method }) => method)).toEqual(['command.ended']);
    expect(outcome).toMatchObject({ reason: 'lost', error: expect.stringMatching(/^this host had started it before/) });
    expect(readFileSync(path, 'utf8')).toBe('x\n');
  });
});

describe('a worker that starts', () => {
  it('[CO4] ends what dead workers left on the host, and nothing else', async () => {
    const seconds = uniqueSeconds();
    const namespace = execFileSync('readlink', ['/proc/self/ns/pid'], { encoding: 'utf8' }).trim();
    const own = readFileSync('/proc/self/stat', 'latin1');
    const start = own.slice(own.lastIndexOf(')') + 2).split(' ')[19];
    const leave = (mark: string) =>
      execFileSync('/bin/sh', ['-c', `setsid sleep ${seconds} >/dev/null 2>&1 &`], {
        env: { PATH: process.env.PATH, HOMING_WORKER_MARK: mark, [MARKER]: `${process.pid}:sweep` },
      });
    leave(`dead,${process.pid},1,${namespace}`);
    leave(`elsewhere,${process.pid},1,pid:[1]`);
    leave(`alive,${process.pid},${start},${namespace}`);
    await until('three leftovers', () => running(`sleep ${seconds}`).length === 3);
    expect(await sweepLeftovers()).toBe(1);
    await until('one to be gone', () => running(`sleep ${seconds}`).length === 2);
    for (const pid of marked(`${process.pid}:sweep`)) process.kill(pid, 'SIGKILL');
  });
});
