/** What comes to a running command from outside: its stdin by offset, and a terminal. Real Redis, real programs. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Writer } from '../../src/domain/ports.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, openTab, type Stores, submit } from '../support/stores.js';
import { nodeProgram, readWholeLog, type Spec, script, startWorkerOn } from '../support/test-worker.js';
import { until, within } from '../support/wait.js';

const MIB = 1024 * 1024;
const ANYONE: Writer = { type: 'any' };

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

async function start(spec: Spec, level: 'pidns' | 'group' = 'pidns') {
  const test = await startWorkerOn(stores, redis.url, {}, { level });
  const tab = await openTab(stores);
  const { commandId } = await submit(stores, { tab }, spec);
  const over = test.run(commandId);
  return {
    tab,
    commandId,
    owner: { type: 'owner', sessionId: tab.sessionId, attachmentId: tab.attachmentId } as const,
    /** Waits for the end and reads the log. */
    async ended() {
      await within('the end of the command', over, 20_000);
      return readWholeLog(stores, commandId);
    },
    seen: (text: string) =>
      until(`${JSON.stringify(text)} in the log`, async () =>
        (await readWholeLog(stores, commandId)).output.includes(text),
      ),
    [Symbol.asyncDispose]: () => test[Symbol.asyncDispose](),
  };
}

const write = (
  commandId: CommandId,
  offset: number,
  data: string | Uint8Array,
  { eof = false, writer = ANYONE }: { eof?: boolean; writer?: Writer } = {},
) => stores.commands.write({ commandId, writer, offset, bytes: Buffer.from(data), eof });

describe('stdin', () => {
  it('arrives in order of its offsets, once, whatever is sent twice', async () => {
    await using run = await start({ argv: ['cat'], stdin: 'pipe' });
    const { commandId, owner } = run;
    expect(await write(commandId, 0, 'hello ', { writer: owner })).toEqual({ type: 'written', nextOffset: 6 });
    expect(await write(commandId, 0, 'hello ', { writer: owner })).toEqual({ type: 'written', nextOffset: 6 });
    await run.seen('hello ');
    expect(await write(commandId, 20, 'too far')).toEqual({ type: 'beyond', nextOffset: 6 });
    expect(await write(commandId, 3, 'lo world')).toEqual({ type: 'written', nextOffset: 11 });
    expect(await write(commandId, 11, '!\n', { eof: true })).toEqual({ type: 'written', nextOffset: 13 });
    expect(await write(commandId, 11, '!\n', { eof: true })).toEqual({ type: 'written', nextOffset: 13 });
    expect((await write(commandId, 13, 'more')).type).toMatch(/closed|ended/);
    const { output, outcome } = await run.ended();
    expect(output.toString()).toBe('hello world!\n');
    expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
    expect(await stores.redis.exists(stores.keys.input(commandId))).toBe(0);
  });

  it('keeps every byte', async () => {
    await using run = await start({ argv: ['cat'], stdin: 'pipe' });
    const all = Buffer.from(Array.from({ length: 1024 }, (_, i) => i % 256));
    await write(run.commandId, 0, all.subarray(0, 511));
    await write(run.commandId, 511, all.subarray(511), { eof: true });
    expect((await run.ended()).output).toEqual(all);
  });

  it('written before the command starts waits for it', async () => {
    const tab = await openTab(stores);
    const { commandId } = await submit(stores, { tab }, { argv: ['cat'], stdin: 'pipe' });
    await write(commandId, 0, 'early', { eof: true });
    await using test = await startWorkerOn(stores, redis.url);
    await within('the end', test.run(commandId));
    expect((await readWholeLog(stores, commandId)).output.toString()).toBe('early');
  });

  it('of a program that does not read is refused beyond its bound, and taken again when it reads', async () => {
    await using run = await start({ ...nodeProgram('slow-reader.mjs'), stdin: 'pipe' });
    await run.seen('ready');
    const block = Buffer.alloc(256 * 1024, 'x');
    let offset = 0;
    let answer = await write(run.commandId, offset, block);
    while (answer.type === 'written' && offset < 4 * MIB) {
      offset = answer.nextOffset;
      answer = await write(run.commandId, offset, block);
    }
    expect(answer).toEqual({ type: 'full', nextOffset: offset });
    expect(offset).toBeLessThan(2 * MIB);
    await stores.commands.requestKill(run.commandId, { signal: 'SIGUSR2', graceMs: 20_000, reason: 'cancelled' });
    await until('room for more', async () => (await write(run.commandId, offset, block)).type === 'written');
    await write(run.commandId, offset + block.length, '', { eof: true });
    const { output } = await run.ended();
    expect(output.toString()).toBe(`ready\n${offset + block.length}\n`);
  });

  it('of a program that closed it harms nothing, and later writes are told', async () => {
    await using run = await start({ ...script('exec 0<&-; echo closed; sleep 300'), stdin: 'pipe' });
    await run.seen('closed');
    await write(run.commandId, 0, 'x');
    await until('the refusal', async () => (await write(run.commandId, 1, 'y')).type === 'closed');
    await stores.commands.requestKill(run.commandId, { signal: 'SIGTERM', graceMs: 300, reason: 'cancelled' });
    expect((await run.ended()).outcome).toMatchObject({ reason: 'cancelled' });
  });

  it('is refused where there is none, after the end, and for an unknown command', async () => {
    await using run = await start(script('echo hi'));
    expect((await write(run.commandId, 0, 'x')).type).toMatch(/closed|ended/);
    await run.ended();
    expect(await write(run.commandId, 0, 'x')).toEqual({ type: 'ended' });
    const unknown = run.commandId.replace(/.$/, (last) => (last === 'a' ? 'b' : 'a')) as CommandId;
    expect(await write(unknown, 0, 'x')).toEqual({ type: 'unknown' });
  });

  it('[IS2] is only for the owner, or for others while no connection of the owner is there', async () => {
    await using run = await start({ argv: ['cat'], stdin: 'pipe' });
    const other = await openTab(stores);
    const stranger = { type: 'owner', sessionId: other.sessionId, attachmentId: other.attachmentId } as const;
    const { commandId, owner, tab } = run;
    expect(await write(commandId, 0, 'x', { writer: stranger })).toEqual({ type: 'not_owner' });
    expect(await write(commandId, 0, 'x', { writer: { type: 'ownerless' } })).toEqual({ type: 'not_owner' });
    await stores.sessions.detach(tab.sessionId, tab.attachmentId);
    expect(await write(commandId, 0, 'x', { writer: owner })).toEqual({ type: 'not_owner' });
    expect(await write(commandId, 0, 'x', { writer: { type: 'ownerless' } })).toEqual({
      type: 'written',
      nextOffset: 1,
    });
    await write(commandId, 1, '', { eof: true });
    expect((await run.ended()).output.toString()).toBe('x');
  });

  it('[CO2] is read by the holder of the claim alone', async () => {
    await using run = await start({ argv: ['cat'], stdin: 'pipe' });
    await write(run.commandId, 0, 'x');
    await run.seen('x');
    const request = { commandId: run.commandId, takenOffset: 0, limitBytes: 100, closed: false };
    expect(await stores.commands.readStdin({ ...request, claimId: 'another' as never })).toEqual({
      type: 'claim_lost',
    });
    await write(run.commandId, 1, '', { eof: true });
    await run.ended();
  });
});

describe.each(['pidns', 'group'] as const)('a terminal, contained by %s', (level) => {
  const pty = { cols: 100, rows: 30 };

  it('is one: a size, a controlling terminal, colours, one stream', async () => {
    await using run = await start(
      {
        ...script(
          'stty size; tty >/dev/tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; printf "\\033[31mred\\033[0m\\n" >&2',
        ),
        pty,
      },
      level,
    );
    const { said, output, outcome } = await run.ended();
    expect(output.toString()).toMatch(/^30 100\r\n\/dev\/.*\r\nall\r\n\x1b\[31mred\x1b\[0m\r\n$/);
    const streams = said.filter(({ method }) => method === 'command.output').map(({ params }) => params.stream);
    expect(new Set(streams)).toEqual(new Set(['pty']));
    expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
  });

  it('loses nothing of the end: 48 times 20 KB', async () => {
    await using test = await startWorkerOn(stores, redis.url, {}, { level });
    const tab = await openTab(stores);
    const sizes: number[] = [];
    const one = async () => {
      // As fast as can be, and gone at once: what is left is in the kernel.
      const { commandId } = await submit(stores, { tab }, { ...script('head -c 20480 /dev/zero | tr "\\0" x'), pty });
      await test.run(commandId);
      sizes.push((await readWholeLog(stores, commandId)).output.length);
    };
    for (let i = 0; i < 6; i += 1) await Promise.all(Array.from({ length: 8 }, one));
    expect(sizes.filter((size) => size !== 20_480)).toEqual([]);
    expect(sizes).toHaveLength(48);
  });

  it('tells its programs a new size', async () => {
    await using run = await start(
      {
        ...script('trap "stty size; exit 0" WINCH; echo ready; while :; do sleep 0.05; done'),
        pty,
      },
      level,
    );
    await run.seen('ready');
    expect(await stores.commands.resize(run.commandId, run.owner, { cols: 132, rows: 43 })).toEqual({
      type: 'resized',
    });
    expect((await run.ended()).output.toString()).toContain('43 132');
  });

  it('passes what is typed: text, Ctrl-C to the program in front, Ctrl-D as the end', async () => {
    await using run = await start(
      {
        ...script(
          'trap "echo got-int" INT; echo ready; until read line; do :; done; echo "line=$line"; cat; echo over',
        ),
        pty,
      },
      level,
    );
    await run.seen('ready');
    await write(run.commandId, 0, '\x03');
    await run.seen('got-int');
    await write(run.commandId, 1, 'hello\n');
    await run.seen('line=hello');
    await write(run.commandId, 7, '', { eof: true });
    expect((await run.ended()).output.toString()).toMatch(/over\r\n$/);
  });

  it('has job control', async () => {
    await using run = await start(
      { argv: ['/bin/bash', '--norc', '-i'], env: { PS1: '$ ', TERM: 'xterm' }, pty },
      level,
    );
    // Before the shell reads for itself, a key that sends a signal throws away what was typed.
    await run.seen('$ ');
    await write(run.commandId, 0, 'sleep 300\n');
    await run.seen('sleep 300\r\n');
    let offset = 10;
    // Typed until it shows: the shell may not have put the program in front yet.
    await until('the job to stop', async () => {
      await write(run.commandId, offset, '\x1a');
      offset += 1;
      return (await readWholeLog(stores, run.commandId)).output.includes('Stopped');
    });
    // The first one only warns of the stopped job.
    await write(run.commandId, offset, 'exit 3\nexit 3\n');
    const { outcome, output } = await run.ended();
    expect(output.toString()).not.toContain('no job control');
    expect(outcome).toMatchObject({ reason: 'exited', code: 3 });
  });

  it('[CO5] is left by nobody after a kill', async () => {
    await using run = await start({ argv: ['/bin/bash', '--norc', '-i'], env: { TERM: 'xterm' }, pty }, level);
    await write(run.commandId, 0, 'sleep 301 & echo started-$((1+1))\n');
    await run.seen('started-2');
    await stores.commands.requestKill(run.commandId, { signal: 'SIGTERM', graceMs: 200, reason: 'cancelled' });
    expect((await run.ended()).outcome).toMatchObject({ reason: 'cancelled', signal: 'SIGKILL', leftovers: 0 });
  });

  it.each([
    [{ argv: ['no-such-program-here'] }, 127],
    [{ argv: ['/etc/passwd'] }, 126],
  ])('[CO8] is not given to a program that can not be started: %j', async (spec, code) => {
    await using run = await start({ ...spec, pty }, level);
    expect((await run.ended()).outcome).toMatchObject({ reason: 'spawn_failed', code });
  });
});
