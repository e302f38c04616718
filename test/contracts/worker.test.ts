/** One worker on a real Redis, with real processes: what ends up in the log is what the command did. */
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KillRequest } from '../../src/domain/ports.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { REWIND_LEAST_MS } from '../../src/worker/publisher.js';
import type { WorkerOptions } from '../../src/worker/worker.js';
import { flood, floodBytes } from '../support/programs.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import {
  nodeProgram,
  program,
  readWholeLog,
  runOnce,
  type Spec,
  script,
  startWorkerOn,
  submitFromTab,
} from '../support/test-worker.js';
import { never, until, within } from '../support/wait.js';

const MIB = 1024 * 1024;

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

const startTestWorker = (options: Partial<WorkerOptions> = {}, at: Stores = stores, url = redis.url) =>
  startWorkerOn(at, url, options);
const readLog = (commandId: CommandId, at: Stores = stores) => readWholeLog(at, commandId);
const submitted = (spec: Spec, at: Stores = stores) => submitFromTab(at, spec);
const runToEnd = (spec: Spec, options: Partial<WorkerOptions> = {}) => runOnce(stores, redis.url, spec, options);

const kill = (request: Partial<KillRequest> = {}): KillRequest => ({
  signal: 'SIGTERM',
  graceMs: 300,
  reason: 'cancelled',
  ...request,
});

const groupIsThere = (pid: number): boolean => existsSync(`/proc/${pid}`);
const seen = (commandId: CommandId, text: string, at: Stores = stores) =>
  until(`"${text}" in the log`, async () => (await readLog(commandId, at)).output.includes(text));

describe('a command that runs to its end', () => {
  it.concurrent('[L3] [L4] and was removed after it, as by a quota, is not given back by the worker that keeps its end', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(script('echo hi'));
    await test.run(commandId);
    const key = stores.keys.command(commandId);
    expect(await stores.redis.del(key, stores.keys.first(commandId), stores.keys.last(commandId))).toBeGreaterThan(0);
    await never(
      'the record to be there again',
      async () => (await stores.redis.exists(key)) === 1,
      REWIND_LEAST_MS + 1_500,
    );
  });

  it('[DE1][DE2] is started, its output, ended: numbered from 1', async () => {
    const { said, entries, output, outcome } = await runToEnd(program('count.sh', '3'));
    expect(said[0]).toMatchObject({
      method: 'command.started',
      params: { seq: 1, containment: expect.stringMatching(/^(pidns|group)$/) },
    });
    expect(entries.map((entry) => entry.seq)).toEqual(entries.map((_, i) => i + 1));
    expect(output.toString()).toBe('line 1\nline 2\nline 3\n');
    expect(outcome).toMatchObject({
      reason: 'exited',
      code: 0,
      signal: null,
      outputBytes: 21,
      tail: 'line 1\nline 2\nline 3\n',
      leftovers: 0,
    });
  });

  it('[CO8] ends with its code, or with the signal that ended it', async () => {
    expect((await runToEnd(script('exit 42'))).outcome).toMatchObject({ reason: 'exited', code: 42 });
    expect((await runToEnd(script('kill -SEGV $$'))).outcome).toMatchObject({
      reason: 'signaled',
      code: null,
      signal: 'SIGSEGV',
    });
  });

  it('keeps the true order of stdout and stderr when they are merged', async () => {
    const { output } = await runToEnd(program('alternate.sh', '300'));
    const expected = Array.from({ length: 300 }, (_, i) => `out ${i + 1}\nerr ${i + 1}\n`).join('');
    expect(output.toString()).toBe(expected);
  });

  it('tells stdout from stderr when they are split', async () => {
    const { said, outcome } = await runToEnd({ ...program('alternate.sh', '50'), streams: 'split' });
    const textOf = (stream: string) =>
      said
        .filter(({ method, params }) => method === 'command.output' && params.stream === stream)
        .map(({ params }) => params.data)
        .join('');
    expect(textOf('out')).toBe(Array.from({ length: 50 }, (_, i) => `out ${i + 1}\n`).join(''));
    expect(textOf('err')).toBe(Array.from({ length: 50 }, (_, i) => `err ${i + 1}\n`).join(''));
    let at = 0;
    for (const { method, params } of said) {
      if (method !== 'command.output') continue;
      expect(params.at).toBe(at);
      at += Buffer.byteLength(params.data);
    }
    expect(outcome.outputBytes).toBe(at);
  });

  it('never cuts a character, and sends bytes that are not UTF-8 as base64', async () => {
    const { said, output } = await runToEnd(nodeProgram('split-char.mjs'));
    expect(output).toEqual(Buffer.concat([Buffer.from('a€b'), Buffer.from([0xff, 0xfe])]));
    const outputs = said.filter(({ method }) => method === 'command.output').map(({ params }) => params);
    // How the rest is cut depends on the moment: the character is whole, and what is no text is not sent as text.
    expect(outputs.map(({ data }) => data ?? '').join('')).toMatch(/^a€b?$/);
    expect([...Buffer.from(outputs.at(-1)?.base64 ?? '', 'base64')].slice(-2)).toEqual([0xff, 0xfe]);
  });

  it('can open its output again by name', async () => {
    const { output } = await runToEnd(program('reopen.sh'));
    expect(output.toString()).toBe('to stdout\nto stderr\n');
  });

  it('sees what is allowed of the environment, what it asked for, and who it is', async () => {
    const { output, commandId } = await runToEnd({
      ...script('env'),
      env: { ASKED: 'yes', HOMING_COMMAND_ID: 'forged' },
    });
    const lines = output.toString().split('\n');
    expect(lines).toContain('ASKED=yes');
    expect(lines).toContain(`HOMING_COMMAND_ID=${commandId}`);
    expect(lines.some((line) => line.startsWith('HOMING_SESSION_ID=ses_'))).toBe(true);
    expect(lines.some((line) => line.startsWith('PATH='))).toBe(true);
    expect(lines.some((line) => line.startsWith('HIDDEN'))).toBe(false);
  });
});

describe('a script', () => {
  it('may be longer than one argument can be', async () => {
    const { output, outcome } = await runToEnd(script(`${'# a long comment\n'.repeat(20_000)}echo "$(( 6 * 7 ))"`));
    expect(output.toString()).toBe('42\n');
    expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
  });
});

describe('a command that can not be started', () => {
  it.each([
    [
      'a program that is not there',
      { argv: ['no-such-program-here'] },
      127,
      'the program "no-such-program-here" was not found on PATH',
    ],
    ['a path that is not there', { argv: ['/no/such/program'] }, 127, 'the program "/no/such/program" was not found'],
    [
      'a file that is not executable',
      { argv: ['/etc/passwd'] },
      126,
      'the program "/etc/passwd" may not be executed: permission denied',
    ],
    [
      'a folder that is not there',
      { argv: ['true'], cwd: '/no/such/folder' },
      null,
      'the working folder "/no/such/folder" does not exist',
    ],
    [
      'a folder that is a file',
      { argv: ['true'], cwd: '/etc/passwd' },
      null,
      'the working folder "/etc/passwd" is not a folder',
    ],
    [
      'an argument that is too large',
      { argv: ['true', 'x'.repeat(140_000)] },
      126,
      expect.stringContaining('too large'),
    ],
  ])('[CO8] says so in a sentence: %s', async (_, spec, code, error) => {
    const { said, outcome } = await runToEnd(spec);
    expect(said).toHaveLength(1);
    expect(outcome).toMatchObject({ reason: 'spawn_failed', code, error });
  });

  it('is refused by name when it asks for what this worker does not offer', async () => {
    const { said, outcome } = await runToEnd({ argv: ['true'], sandbox: { profile: 'of-straw' } });
    expect(said).toHaveLength(1);
    expect(outcome).toMatchObject({ reason: 'refused', error: expect.stringMatching(/^sandbox.profile: /) });
  });

  it('[CO2] is not started when a kill was asked for while it was queued', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(program('count.sh', '3'));
    await stores.commands.requestKill(commandId, kill({ reason: 'owner_gone' }));
    await test.run(commandId);
    const { said } = await readLog(commandId);
    expect(said.map(({ method }) => method)).toEqual(['command.ended']);
    expect(said[0]?.params).toMatchObject({ seq: 1, outcome: { reason: 'owner_gone', code: null } });
  });

  it('[CO2] is not started again by a job that comes twice, or without a record', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(script('echo once'));
    await Promise.all([test.run(commandId), test.run(commandId)]);
    await test.run(commandId);
    const { output, said } = await readLog(commandId);
    expect(output.toString()).toBe('once\n');
    expect(said.filter(({ method }) => method === 'command.started')).toHaveLength(1);
    await test.run(commandId.replace(/.$/, (last) => (last === 'a' ? 'b' : 'a')) as CommandId);
  });
});

describe('a command that is ended', () => {
  it('[CO5] by a kill ends as cancelled, with its whole group', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(script('sleep 300 & echo ready; wait'));
    const over = test.run(commandId);
    await seen(commandId, 'ready');
    await stores.commands.requestKill(commandId, kill());
    await within('the end', over);
    const { outcome, said } = await readLog(commandId);
    expect(outcome).toMatchObject({ reason: 'cancelled', signal: 'SIGTERM', leftovers: 0 });
    expect(groupIsThere(said[0]?.params.pid)).toBe(false);
  });

  it('[CO5] by SIGKILL when it ignores SIGTERM for its kill grace', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(program('deaf.sh'));
    const over = test.run(commandId);
    await seen(commandId, 'ready');
    const askedMs = performance.now();
    await stores.commands.requestKill(commandId, kill({ graceMs: 400 }));
    await within('the end', over);
    expect(performance.now() - askedMs).toBeGreaterThan(390);
    expect((await readLog(commandId)).outcome).toMatchObject({ reason: 'cancelled', signal: 'SIGKILL', leftovers: 0 });
  });

  it('[CO5] at once when a stronger kill comes during the kill grace', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(program('deaf.sh'));
    const over = test.run(commandId);
    await seen(commandId, 'ready');
    await stores.commands.requestKill(commandId, kill({ graceMs: 60_000 }));
    await stores.commands.requestKill(commandId, kill({ signal: 'SIGKILL', graceMs: 0 }));
    await within('the end', over, 8_000);
    expect((await readLog(commandId)).outcome).toMatchObject({ reason: 'cancelled', signal: 'SIGKILL' });
  });

  it('[CO8] by its run limit ends as timed_out, by silence as idle_timeout', async () => {
    const timed = await runToEnd({ argv: ['sleep', '300'], timeouts: { runMs: 200 } });
    expect(timed.outcome).toMatchObject({ reason: 'timed_out', signal: 'SIGTERM' });
    const idle = await runToEnd({ ...script('echo hi; sleep 300'), timeouts: { idleMs: 300 } });
    expect(idle.outcome).toMatchObject({ reason: 'idle_timeout', tail: 'hi\n' });
  });

  it('[CO6] by its leader, although a grandchild in its group holds the pipe; that one is ended too', async () => {
    const beganMs = performance.now();
    const { outcome, output } = await runToEnd(program('holder.sh'));
    expect(performance.now() - beganMs).toBeLessThan(3_000);
    expect(output.toString()).toBe('done\n');
    expect(outcome).toMatchObject({ reason: 'exited', code: 0, leftovers: 0 });
  });

  it('[CO6] by its leader, although one outside of its group holds the pipe', async () => {
    const beganMs = performance.now();
    const { outcome } = await runToEnd(program('holder.sh', 'setsid'));
    expect(performance.now() - beganMs).toBeLessThan(3_000);
    expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
  });

  it('[CO6] by its leader, although a grandchild prints without end', async () => {
    const beganMs = performance.now();
    const { outcome, output } = await runToEnd(program('chatterer.sh'));
    expect(performance.now() - beganMs).toBeLessThan(5_000);
    expect(output.toString()).toContain('leader done\n');
    expect(outcome).toMatchObject({ reason: 'exited', outputBytes: output.length, leftovers: 0 });
  });

  it('[CO3] by a lost claim: the process is killed and nothing is written', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(program('deaf.sh'));
    const over = test.run(commandId);
    await seen(commandId, 'ready');
    const pid = (await readLog(commandId)).said[0]?.params.pid;
    const record = await stores.commands.get(commandId);
    await stores.commands.endWithoutWorker(commandId, record!.claimId as never, 'lost', 'its worker is gone');
    await within('the worker to notice', over);
    expect(groupIsThere(pid)).toBe(false);
    const { said } = await readLog(commandId);
    expect(said.filter(({ method }) => method === 'command.ended')).toHaveLength(1);
    expect(said.at(-1)?.params.outcome.reason).toBe('lost');
  });
});

describe('a worker', () => {
  it('[CO8] that is drained lets commands end, then ends them as worker_drained', async () => {
    await using test = await startTestWorker();
    const quick = await submitted(script('echo ready; sleep 0.3; echo bye'));
    const slow = await submitted(script('echo ready; sleep 300'));
    void test.run(quick);
    void test.run(slow);
    await seen(quick, 'ready');
    await seen(slow, 'ready');
    await test.worker.drain(1_000);
    expect(test.worker.running).toBe(0);
    expect((await readLog(quick)).outcome).toMatchObject({ reason: 'exited', code: 0 });
    expect((await readLog(slow)).outcome).toMatchObject({ reason: 'worker_drained' });
    const facts = (await stores.presence.workers()).find(({ id }) => id === test.worker.workerId)?.facts;
    expect(facts?.draining).toBe(true);
    await test.worker.close();
    expect((await stores.presence.workers()).some(({ id }) => id === test.worker.workerId)).toBe(false);
  });

  it('that is closed leaves no process behind and writes no ending', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(program('deaf.sh'));
    void test.run(commandId);
    await seen(commandId, 'ready');
    const { said } = await readLog(commandId);
    await test.worker.close();
    expect(groupIsThere(said[0]?.params.pid)).toBe(false);
    expect((await readLog(commandId)).said.some(({ method }) => method === 'command.ended')).toBe(false);
    expect(await stores.presence.workerCommands(test.worker.workerId)).toEqual([commandId]);
  });

  it('[CO7] keeps the first and the last bytes of a flood and states the gap, to the byte', async () => {
    const total = 100 * MIB;
    // The last drop leaves a gap before what the log keeps at its end, so that it is seen here.
    const { said, entries, outcome } = await runToEnd(flood(total), {
      spoolBytes: 4 * MIB,
      logFirstBytes: MIB,
      logLastBytes: 2 * MIB,
      outputBytesPerSec: 2 * MIB,
    });
    expect(outcome.outputBytes).toBe(total);
    const gaps = said.filter(({ method }) => method === 'command.gap');
    expect(gaps.length).toBeGreaterThan(0);
    expect(gaps.every(({ params }) => params.reason === 'flood')).toBe(true);
    let offset = 0;
    let next = 1;
    for (const [i, { method, params }] of said.entries()) {
      const entry = entries[i]!;
      // Holes are what the log itself trimmed; what is there must be what the program printed at that place.
      if (entry.fromSeq !== next)
        offset = method === 'command.output' ? params.at : entry.endOffset - (params.bytes ?? 0);
      next = entry.seq + 1;
      if (method === 'command.gap') offset += params.bytes;
      if (method !== 'command.output') continue;
      expect(params.at).toBe(offset);
      const end = offset + Buffer.byteLength(params.data);
      expect(Buffer.from(params.data).equals(floodBytes(offset, end))).toBe(true);
      offset = end;
    }
    expect(offset).toBe(total);
  });

  it('[CO9] lets a command run on while Redis is away; its output arrives afterwards, once, in order', async () => {
    await using own = await startRedis();
    await using at = await createStores(own.url);
    await using test = await startTestWorker({}, at, own.url);
    const commandId = await submitted(program('count.sh', '60', '0.05'), at);
    const over = test.run(commandId);
    await seen(commandId, 'line 5\n', at);
    const { pid } = (await readLog(commandId, at)).said[0]!.params;
    await own.stop();
    await until('the process to end while Redis is away', () => !groupIsThere(pid));
    await own.start();
    await within('the end of the command', over);
    const { output, outcome, entries } = await readLog(commandId, at);
    expect(output.toString()).toBe(Array.from({ length: 60 }, (_, i) => `line ${i + 1}\n`).join(''));
    expect(entries.map((entry) => entry.seq)).toEqual(entries.map((_, i) => i + 1));
    expect(outcome).toMatchObject({ reason: 'exited', outputBytes: output.length });
  });

  it('[CO2][DE1] neither starts twice nor writes twice when replies are lost', async () => {
    await using proxy = await startTcpProxy({ port: redis.port });
    await using at = await createStores(`redis://127.0.0.1:${proxy.port}`);
    await using test = await startTestWorker({}, at);
    const commandId = await submitted(program('count.sh', '40', '0.02'), at);

    const claimLost = proxy.swallowNextReply(
      (bytes) => bytes.includes(commandId) && /(pidns|group)/.test(bytes.toString('latin1')),
    );
    const over = test.run(commandId);
    await within('the reply of the claim to be lost', claimLost);
    await seen(commandId, 'line 5\n', at);
    for (let i = 0; i < 3; i++) {
      await within(
        'the reply of an append to be lost',
        proxy.swallowNextReply((bytes) => bytes.includes('command.output')),
      );
    }
    await within('the end of the command', over);
    const { output, entries, said } = await readLog(commandId, at);
    expect(output.toString()).toBe(Array.from({ length: 40 }, (_, i) => `line ${i + 1}\n`).join(''));
    expect(entries.map((entry) => entry.seq)).toEqual(entries.map((_, i) => i + 1));
    expect(said.filter(({ method }) => method === 'command.started')).toHaveLength(1);
  });

  it('[R2][DE1] repairs a log that went back, with the same entries', async () => {
    await using test = await startTestWorker();
    const commandId = await submitted(program('count.sh', '30', '0.05'));
    const over = test.run(commandId);
    // What a promoted replica that missed the last writes looks like: the record and the log of a moment ago.
    const names = [stores.keys.command(commandId), stores.keys.first(commandId)];
    await seen(commandId, 'line 3\n');
    const dump = stores.redis.multi();
    for (const name of names) dump.dumpBuffer(name);
    const dumps = (await dump.exec())!.map(([, bytes]) => bytes as Buffer);
    await seen(commandId, 'line 10\n');
    const before = await readLog(commandId);
    const restore = stores.redis.multi();
    for (const [i, name] of names.entries()) restore.restore(name, 0, dumps[i]!, 'REPLACE');
    // In one step with it: the repair may be there before the next question.
    restore.hget(stores.keys.command(commandId), 'head');
    const [, head] = (await restore.exec())!.at(-1) as [unknown, string];
    expect(Number(head)).toBeLessThan(before.entries.length);
    await within('the end of the command', over);
    const { output, outcome, entries } = await readLog(commandId);
    expect(entries.slice(0, before.entries.length)).toEqual(before.entries);
    expect(outcome).toMatchObject({ reason: 'exited', outputBytes: output.length });
    expect(output.toString()).toBe(Array.from({ length: 30 }, (_, i) => `line ${i + 1}\n`).join(''));
  });
});
