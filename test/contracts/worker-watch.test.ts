/** Notices for whoever waits for a command without reading its output: real programs, real Redis. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPatterns } from '../../src/ops/patterns.js';
import { createNoticeCounts } from '../../src/redis/notice-counts.js';
import { createBreakers } from '../../src/worker/breakers.js';
import { createNotices } from '../../src/worker/watch-notices.js';
import type { WorkerOptions } from '../../src/worker/worker.js';
import { startTestNode } from '../support/node.js';
import { flood } from '../support/programs.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, openTab, placeOf, type Stores, submit } from '../support/stores.js';
import { readWholeLog, type Spec, script, startWorkerOn } from '../support/test-worker.js';
import { makeToken } from '../support/tokens.js';
import { until, within } from '../support/wait.js';

const MIB = 1024 * 1024;
const patterns = createPatterns();

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url, { logFirstBytes: MIB, logLastBytes: MIB });
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

const watchFor = (pattern: string, kind: 'literal' | 'regex' = 'literal'): Spec => ({
  notify: { watch: [{ pattern, kind }] },
});
const startWatching = (options: Partial<WorkerOptions> = {}) =>
  startWorkerOn(stores, redis.url, options, {}, { patterns, noticeCounts: createNoticeCounts(stores) });
// biome-ignore lint/suspicious/noExplicitAny: entries of every kind, each test looks at what it needs
type Said = readonly { method: string; params: any }[];
const noticesIn = (said: Said) => said.filter(({ method }) => method === 'command.watch').map(({ params }) => params);

async function runToEnd(spec: Spec, options: Partial<WorkerOptions> = {}) {
  await using test = await startWatching(options);
  const { commandId } = await submit(stores, { tab: await openTab(stores) }, spec);
  await within('the end', test.run(commandId), 30_000);
  return readWholeLog(stores, commandId);
}

describe('[OW9] a watch entry', () => {
  it('follows the output it is about, is told over borders of chunks and without colours, and before the end', async () => {
    const { said } = await runToEnd({
      ...script('printf "a\\033[31mFAI"; sleep 0.2; printf "LED\\033[0m: x\\n"; echo more; sleep 0.1'),
      ...watchFor('^aFAILED: \\w$', 'regex'),
    });
    expect(noticesIn(said)).toMatchObject([{ pattern: '^aFAILED: \\w$', text: 'aFAILED: x', suppressed: 0 }]);
    const methods = said.map(({ method }) => method);
    expect(methods.indexOf('command.watch')).toBeGreaterThan(methods.indexOf('command.output'));
    expect(methods.at(-1)).toBe('command.ended');
  });

  it('is told of a prompt that waits for an answer', async () => {
    await using test = await startWatching();
    const spec = { ...script('printf "Password: "; read answer'), stdin: 'pipe', ...watchFor('Password:') } as const;
    const { commandId } = await submit(stores, { tab: await openTab(stores) }, spec);
    const over = test.run(commandId);
    await until('the notice', async () => noticesIn((await readWholeLog(stores, commandId)).said).length === 1);
    const last = { commandId, writer: { type: 'any' }, offset: 0, bytes: Buffer.from('x\n'), eof: true } as const;
    await stores.commands.write(last);
    await within('the end', over);
  });

  it('[CO7] survives the trimming of the log, and says how many matches were not told', async () => {
    const { said } = await runToEnd(
      {
        ...script(
          `echo needle 1; ${process.execPath} -e '${flood(8 * MIB).argv[2]?.replaceAll("'", "'\\''")}' ${8 * MIB}; echo needle 2; echo needle 3`,
        ),
        ...watchFor('needle'),
      },
      { outputBytesPerSec: 64 * MIB },
    );
    expect(noticesIn(said)).toMatchObject([
      { text: 'needle 1', suppressed: 0 },
      { text: 'needle 3', suppressed: 2 },
    ]);
    expect(said.at(-1)?.method).toBe('command.ended');
  }, 40_000);

  it('of 18 commands that match at once, on two workers: 15 are told and one says that it is too many, for that origin alone', async () => {
    await using one = await startWatching();
    await using two = await startWatching();
    const [tab, other] = [await openTab(stores), await openTab(stores)];
    const spec = { ...script('echo needle'), ...watchFor('needle') };
    const ids = await Promise.all(
      Array.from({ length: 18 }, async () => (await submit(stores, { tab }, spec)).commandId),
    );
    await within('their end', Promise.all(ids.map((id, i) => (i % 2 ? one : two).run(id))), 40_000);
    const { commandId } = await submit(stores, { tab: other }, spec);
    await within('its end', one.run(commandId));
    const logs = await Promise.all(ids.map(async (id) => (await readWholeLog(stores, id)).said));
    const told = logs.flatMap(noticesIn);
    expect(told.filter(({ text }) => text === 'needle')).toHaveLength(15);
    expect(told.filter(({ disabled }) => disabled)).toMatchObject([
      { why: 'more than 15 notices of one origin in 10 s; none for 30 s' },
    ]);
    // Asking took time, and none of them was told after the end.
    for (const said of logs) expect(said.at(-1)?.method).toBe('command.ended');
    expect(noticesIn((await readWholeLog(stores, commandId)).said)).toMatchObject([{ text: 'needle' }]);
    const key = stores.keys.notices(tab.place.tag, tab.sessionId);
    expect(await stores.redis.pttl(key)).toBeGreaterThan(0);
  }, 60_000);

  it('is told after its own count while Redis does not answer, and holds the end up for a moment at most', async () => {
    const silent = createBreakers({ ask: () => new Promise(() => {}) });
    const away = createBreakers({ ask: () => Promise.reject(new Error('away')) });
    const origin = { tag: placeOf().tag, name: 'ses' };
    const hurry = AbortSignal.abort();
    expect(await silent.of(origin, 'a')(hurry)).toBe('pass');
    const answers = [];
    for (let i = 0; i < 17; i += 1) answers.push(await away.of(origin, `cmd${i}`)(hurry));
    expect(answers).toEqual([...Array(15).fill('pass'), 'trip', 'open']);
  });

  it('is counted once, however often its question is sent, and closes the breaker again when its time is over', async () => {
    const counts = createNoticeCounts(stores);
    const origin = { tag: placeOf().tag, name: `ses_${Math.random()}` };
    const key = stores.keys.notices(origin.tag, origin.name);
    const ask = (id: string) => counts.ask(origin, id);
    for (let i = 0; i < 15; i += 1)
      for (const _ of [1, 2]) expect(await ask(`n${i}`)).toEqual({ type: 'pass', openForMs: 0 });
    for (const _ of [1, 2]) expect(await ask('one more')).toMatchObject({ type: 'trip' });
    expect(await ask('another')).toMatchObject({ type: 'open', openForMs: expect.any(Number) });
    expect(await stores.redis.pttl(key)).toBeGreaterThan(20_000);
    await stores.redis.pexpire(key, 1);
    await until('its end', async () => (await stores.redis.exists(key)) === 0);
    expect(await ask('another')).toEqual({ type: 'pass', openForMs: 0 });
    // Those of a window that is over do not count.
    const longAgo = Date.now() - 11_000;
    for (let i = 0; i < 15; i += 1) await stores.redis.zadd(key, longAgo, `old${i}`);
    expect(await ask('new')).toMatchObject({ type: 'pass' });
  });

  it('costs no time of the worker, whatever the pattern and the output', async () => {
    const line = `${'a'.repeat(60)}b`;
    const delay = monitorEventLoopDelay({ resolution: 10 });
    delay.enable();
    const { output } = await runToEnd({
      ...script(`i=0; while [ $i -lt 2000 ]; do echo ${line}; i=$((i+1)); done`),
      ...watchFor('^(a+)+$', 'regex'),
    });
    delay.disable();
    expect(output.length).toBe(2_000 * (line.length + 1));
    expect(delay.max / 1e6).toBeLessThan(1_000);
  });
});

describe('a heartbeat entry', () => {
  it('is told only when there is something new, and not after the end', async () => {
    const told: object[] = [];
    const publisher = { add: (body: object) => void told.push(body), outputBytes: 0 };
    const meter = { count() {}, gauge() {}, observe() {} };
    const breaker = createBreakers().of({ tag: placeOf().tag, name: 'ses' }, 'cmd');
    const notices = createNotices({ patterns, breaker, publisher, meter }, { heartbeatMs: 20 });
    publisher.outputBytes = 7;
    await until('a heartbeat', () => told.length === 1);
    expect(told).toMatchObject([{ type: 'heartbeat', bytesSinceLast: 7 }]);
    publisher.outputBytes = 9;
    await until('another', () => told.length === 2);
    expect(told[1]).toMatchObject({ bytesSinceLast: 2 });
    await notices.end();
  });
});

describe('a pattern', () => {
  it('that is none is refused at the door, by name', async () => {
    const secret = 'a secret of at least 32 characters';
    const node = await startTestNode({ redis, stores, secret });
    const answer = await fetch(`${node.url}/v1/commands`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${makeToken(secret, { sub: 'ann' })}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({
        conversation: 'chat',
        argv: ['true'],
        notify: {
          watch: [
            { pattern: 'fine', kind: 'regex' },
            { pattern: '(', kind: 'regex' },
          ],
        },
      }),
    });
    expect(answer.status).toBe(422);
    expect(await answer.json()).toMatchObject({ code: 'PATTERN_INVALID', field: 'notify.watch.1.pattern' });
    await node.close();
  });
});
