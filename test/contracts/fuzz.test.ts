/**
 * A real node and a real Redis under hostile input: every request is answered once, with a code of the contract and never by a
 * fault of our own; and a record that is damaged or newer is told by its key and harms nothing beside it.
 */
import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect } from '../../src/client/node.js';
import { ERROR_CODES } from '../../src/errors.js';
import { httpRoutes } from '../../src/protocol/http.js';
import { type CommandId, makeWorkerId, type SessionId } from '../../src/protocol/ids.js';
import { type MethodName, methods } from '../../src/protocol/methods.js';
import { createReconciler } from '../../src/reconciler/reconciler.js';
import { auditCommands } from '../../src/worker/audit.js';
import { hostile, hostileText, nearly, RUNS, SEED } from '../support/fuzz.js';
import { claimToWrite } from '../support/log-writer.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import {
  chance,
  createStores,
  newClaimId,
  newWorkerId,
  openTab as openStored,
  type Stores,
  silentLog,
  submit,
} from '../support/stores.js';
import { dial, type Json, openTab, type Tab } from '../support/tab.js';
import { makeToken } from '../support/tokens.js';
import { until, within } from '../support/wait.js';

const secret = 'a secret of at least 32 characters';
const ann = makeToken(secret, { sub: 'ann' });

let redis: TestRedis;
let stores: Stores;
let node: TestNode;
/** What the stores said that they could not read. */
const told: string[] = [];

beforeAll(async () => {
  redis = await startRedis();
  const log = { ...silentLog, error: (fields: object) => void told.push(JSON.stringify(fields)) };
  stores = await createStores(redis.url, { log });
  node = await startTestNode({ redis, stores, secret });
});
afterAll(async () => {
  await node.close();
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

/** The same values in each run; more of them on request. */
const samples = <T>(arbitrary: fc.Arbitrary<T>, count: number): T[] =>
  fc.sample(arbitrary, { numRuns: Math.ceil((count * RUNS) / 100), seed: SEED });

const RPC_CODES = [-32700, -32600, -32601, -32602, -32000];

describe('requests', () => {
  it('[DE5] of every method with hostile params are answered once each, by no fault of ours', async () => {
    await using tab = await openTab(node.url, { token: ann, conversation: 'fuzz' });
    const own = await tab.run({ argv: ['cat'], stdin: 'pipe', pty: { cols: 80, rows: 24 } });
    const missing = own.slice(0, -26) + [...own.slice(-26)].reverse().join('');
    const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
    const names = (Object.keys(methods) as MethodName[]).filter((name) => !/open|resume|close/.test(name));
    const answers = new Map<string, number>();
    for (const method of names) {
      for (const [i, params] of samples(nearly(methods[method]), 15).entries()) {
        // Those that name a command name one that is there, one that is not, or nonsense.
        const commandId = [own, missing][i % 3];
        const aimed = commandId !== undefined && isObject(params) ? { ...(params as object), commandId } : params;
        const answer = await tab.rpc(method, aimed as object).then(
          () => 'ok',
          (failure: { rpcCode: number; data?: { code: string }; message: string }) => {
            expect(RPC_CODES, `${method} ${failure.message}`).toContain(failure.rpcCode);
            if (failure.data !== undefined) expect(Object.keys(ERROR_CODES)).toContain(failure.data.code);
            return failure.data?.code ?? String(failure.rpcCode);
          },
        );
        answers.set(answer, (answers.get(answer) ?? 0) + 1);
      }
    }
    // A place in a list that no page named.
    for (const cursor of ['nan', '+inf', '(5', '1e400', '-']) {
      await expect(tab.rpc('command.list', { cursor })).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
    }
    // It went deeper than the shapes: into the rules, and through.
    expect([...answers.keys()]).toEqual(expect.arrayContaining(['ok', 'INVALID_PARAMS', 'UNKNOWN_COMMAND']));
    expect(node.count('homing_internal_errors_total')).toBe(0);
  });

  it('before a session, and as whole frames: the socket says what is wrong or is closed, and the node lives', async () => {
    const opens = samples(nearly(methods['session.open']), 5).map((params) => ['session.open', params] as const);
    const resumes = samples(nearly(methods['session.resume']), 5).map((params) => ['session.resume', params] as const);
    const frames = [...opens, ...resumes].map(([method, params]) =>
      JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    );
    for (const frame of [
      ...frames,
      ...samples(hostileText, 25),
      ...samples(hostile, 10).map((value) => JSON.stringify(value)),
    ]) {
      const { ws, closed } = await dial(node.url, { token: ann });
      const heard = new Promise<string>((resolve) => ws.once('message', (data) => resolve(data.toString())));
      ws.send(frame);
      // A notification or a response is answered by nothing; then another request is.
      ws.send('{"jsonrpc":"2.0","id":"after","method":"command.list"}');
      const text = await within(`an answer to ${frame.slice(0, 80)}`, heard);
      expect(text).toMatch(/"(result|error)":/);
      expect(text).not.toContain('internal error');
      ws.terminate();
      await closed;
    }
    expect(node.count('homing_internal_errors_total')).toBe(0);
  });

  it('over HTTP with hostile paths, queries, headers and bodies end below 500', async () => {
    const routes = Object.values(httpRoutes).filter(({ path }) => !path.endsWith('/events'));
    const texts = samples(hostileText, 6 * routes.length);
    const bodies = samples(nearly(httpRoutes.submitCommand.body), 6 * routes.length);
    for (const [i, text] of texts.entries()) {
      const route = routes[i % routes.length] as (typeof routes)[number];
      const word =
        encodeURIComponent(
          Buffer.from(text)
            .toString()
            .slice(0, 300)
            .replace(/[\ud800-\udfff]/g, '?'),
        ) || 'x';
      const path = route.path.replace(/\{\w+\}/g, i % 3 === 0 ? 'fuzz' : word);
      const url = `${node.url}${path}?waitMs=0&cursor=${word}&limit=${word}&fromSeq=${word}`;
      const body = route.method === 'post' ? (i % 4 === 0 ? text : JSON.stringify(bodies[i])) : undefined;
      const response = await fetch(url, {
        method: route.method.toUpperCase(),
        headers: {
          authorization: `Bearer ${ann}`,
          'content-type': 'application/json',
          'idempotency-key': randomBytes(300)
            .toString('hex')
            .slice(0, i * 3),
        },
        ...(body === undefined ? {} : { body }),
      });
      const said = await response.text();
      expect(response.status, `${url} ${body} → ${said}`).toBeLessThan(500);
      expect(said).not.toMatch(/\bat .*\.(js|ts):\d+/);
    }
  });

  it('half-open and reset sockets leave nothing behind', async () => {
    const before = node.count('homing_connections');
    const sockets = await Promise.all(Array.from({ length: 100 }, () => dial(node.url, { token: ann })));
    for (const [i, { ws }] of sockets.entries()) {
      const raw = (ws as unknown as { _socket: import('node:net').Socket })._socket;
      if (i % 2 === 0) raw.resetAndDestroy();
      // A frame that says it is long and never comes, then no more bytes from this side.
      else raw.end(Buffer.from([0x81, 0xfe, 0xff, 0xff, 1, 2]));
    }
    await Promise.all(sockets.map(({ closed }) => closed));
    await until('all of them to be gone', () => node.count('homing_connections') <= before);
  });
});

describe('records', () => {
  const replaceBy = async (key: string) => {
    await stores.redis.del(key);
    await stores.redis.set(key, 'a string');
  };
  /** What somebody, or something, may leave in a record. */
  const DAMAGE: readonly (readonly [what: string, damage: (key: string) => Promise<unknown>])[] = [
    ['a newer version', (key) => stores.redis.hset(key, 'v', 2)],
    ['a version that is no number', (key) => stores.redis.hset(key, 'v', 'x')],
    ['no version', (key) => stores.redis.hdel(key, 'v')],
    ['a spec that is cut short', (key) => stores.redis.hset(key, 'spec', '{"argv":["tr')],
    ['no spec', (key) => stores.redis.hdel(key, 'spec')],
    ['a kill that is no JSON', (key) => stores.redis.hset(key, 'kill', '}{')],
    ['an outcome that is no JSON', (key) => stores.redis.hset(key, 'outcome', 'nonsense', 'state', 'ended')],
    ['another type', (key) => replaceBy(key)],
    ['nothing at all', (key) => stores.redis.del(key)],
  ];

  async function scene(conversation: string) {
    const tab = await openTab(node.url, { token: ann, conversation });
    const [bad, good] = [await tab.run({ argv: ['bad'] }), await tab.run({ argv: ['good'] })] as [CommandId, CommandId];
    return { tab, bad, good, key: stores.keys.command(bad) };
  }
  const listed = async (tab: Tab): Promise<string[]> =>
    (await tab.rpc('command.list')).commands.map((one: Json) => one.commandId);

  it.each(DAMAGE)(
    '[V1] of a command with %s is refused by itself: its tab opens, lists, runs and hears all others',
    async (what, damage) => {
      const { tab, bad, good, key } = await scene(`damaged ${what}`.replaceAll(' ', '-'));
      await using _tab = tab;
      await damage(key);
      expect(await listed(tab)).toContain(good);
      const answer = await tab.rpc('command.get', { commandId: bad }).then(
        () => 'ok',
        (failure) => failure.code,
      );
      // A number that is missing makes it unknown, a wish that can not be read a fault that is told; never a crash.
      expect(['ok', 'UNKNOWN_COMMAND', '-32603']).toContain(answer);
      const writer = await claimToWrite(stores, good);
      await writer.print('still here');
      await tab.shows(good, 'still here');
      await tab.drop();
      await tab.resume(node.url);
      expect(tab.opened.commands.map((one: Json) => one.commandId)).toContain(good);
      await writer.end();
      await tab.ended(good);
    },
  );

  /** The log is read by owners, viewers, pages and streams; what is broken in it is theirs alone to miss. */
  const LOG_DAMAGE: readonly (readonly [what: string, damage: (key: string) => Promise<unknown>])[] = [
    ['is of another type', replaceBy],
    ['is gone', (key) => stores.redis.del(key)],
    [
      'has an entry that was cut short',
      (key) => stores.redis.xadd(key, '2-0', 'k', 'o', 'f', '2', 'b', '9', 'n', '4', 'j', '{"params":'),
    ],
    ['has an entry without fields', (key) => stores.redis.xadd(key, '2-0', 'x', 'y')],
  ];
  it.each(LOG_DAMAGE)(
    '[V1] of a command whose log %s cost that log: the tab comes back, and hears all others',
    async (what, damage) => {
      const { tab, bad, good } = await scene(`damaged log ${what}`.replaceAll(' ', '-'));
      await using _tab = tab;
      const broken = await claimToWrite(stores, bad);
      await broken.print('first');
      await tab.shows(bad, 'first');
      await damage(stores.keys.first(bad));
      await stores.redis.hset(stores.keys.command(bad), 'head', 2);
      for (const method of ['command.log', 'command.attach'])
        await tab.rpc(method, { commandId: bad }).catch(() => undefined);
      for (const path of ['log?format=text', 'log?format=jsonl']) {
        const answer = await fetch(`${node.url}/v1/commands/${bad}/${path}`, {
          headers: { authorization: `Bearer ${ann}` },
        });
        await answer.text().catch(() => undefined);
      }
      await tab.drop();
      await tab.resume(node.url);
      const writer = await claimToWrite(stores, good);
      await writer.print('still here');
      await tab.shows(good, 'still here');
      await writer.end();
      await tab.ended(good);
      if (what.includes('cut short')) {
        // Told as what it is.
        const gap = await tab.waitFor(
          'the gap',
          ({ method, params }) => method === 'command.gap' && params.view !== true,
        );
        expect(gap.params).toMatchObject({ commandId: bad, fromSeq: 2, toSeq: 2, reason: 'redis_lost' });
      }
      expect(tab.socket.ws.readyState).toBe(1);
      expect((await fetch(`${node.opsUrl}/livez`)).status).toBe(200);
    },
  );

  /** Writes an entry of a log anew in its place: fields as given, the others as they were. */
  async function rewrite(key: string, id: string, change: Record<string, string | undefined>): Promise<void> {
    const held = await stores.redis.xrange(key, '-', '+');
    await stores.redis.del(key);
    for (const [at, fields] of held) {
      const old = Object.fromEntries(fields.flatMap((name, i) => (i % 2 === 0 ? [[name, fields[i + 1]]] : [])));
      const now = Object.entries(at === id ? { ...old, ...change } : old).filter(([, value]) => value !== undefined);
      await stores.redis.xadd(key, at, ...(now.flat().length === 0 ? ['x', 'y'] : (now.flat() as string[])));
    }
  }
  const entry = (seq: number, commandId: string, data = 'two') =>
    JSON.stringify({
      jsonrpc: '2.0',
      method: 'command.output',
      params: { commandId, seq, ts: 1, at: 4, stream: 'out', data },
    });

  /** Four entries and `ended`; the third is damaged while nobody looks, and the tab that comes back has the first two. */
  async function brokenInTheMiddle(conversation: string, damage: (key: string, id: CommandId) => Promise<void>) {
    const { tab, bad, good } = await scene(conversation);
    const writer = await claimToWrite(stores, bad);
    await writer.print('one ');
    await tab.shows(bad, 'one ');
    await tab.drop();
    for (const word of ['two ', 'three ', 'four ']) await writer.print(word);
    await writer.end();
    await damage(stores.keys.first(bad), bad);
    return { tab, bad, good };
  }
  /** All others of the tab are heard, and of the damaged log what is before and after. */
  async function losesOnly({ tab, bad, good }: { tab: Tab; bad: CommandId; good: CommandId }, shown: string) {
    const writer = await claimToWrite(stores, good);
    await writer.print('still here');
    await writer.end();
    await tab.ended(good);
    await tab.ended(bad);
    expect(tab.output(good)).toBe('still here');
    expect(tab.output(bad)).toBe(shown);
    expect((await fetch(`${node.opsUrl}/livez`)).status).toBe(200);
  }
  const gapsOf = (tab: Tab, id: CommandId) =>
    tab.recording
      .filter(({ method, params }) => method === 'command.gap' && params.commandId === id)
      .map(({ params: { fromSeq, toSeq, reason } }) => ({ fromSeq, toSeq, reason }));
  const THIRD_IS_LOST = [{ fromSeq: 3, toSeq: 3, reason: 'redis_lost' }];

  /** What shows without looking into a text. */
  const SEEN_AT_ONCE: readonly (readonly [
    what: string,
    change: (id: CommandId) => Record<string, string | undefined>,
  ])[] = [
    ['is no entry', () => ({ j: '{}' })],
    [
      'is another’s',
      (id) => ({
        j: entry(
          3,
          id.replace(/.$/, (last) => (last === '0' ? '1' : '0')),
        ),
      }),
    ],
    ['has another seq', (id) => ({ j: entry(4, id) })],
    ['has its beginning overwritten', () => ({ j: `${'\0'.repeat(80)}"}}` })],
    ['has no text', () => ({ j: undefined })],
    ['has no end offset', () => ({ b: 'x' })],
    ['reaches beyond itself', () => ({ f: '9' })],
    ['is of no kind', () => ({ k: 'z' })],
    ['has no fields at all', () => ({ k: undefined, f: undefined, b: undefined, n: undefined, j: undefined })],
  ];
  it.each(SEEN_AT_ONCE)(
    '[V1] [DE3] an entry in the middle of a log that %s is told as a gap at its place, and what follows arrives',
    async (what, change) => {
      const world = await brokenInTheMiddle(`middle ${what}`.replaceAll(/[^a-z]/g, '-'), (key, id) =>
        rewrite(key, '3-0', change(id)),
      );
      await using tab = world.tab;
      await tab.resume(node.url);
      await losesOnly(world, 'one two four ');
      expect(gapsOf(tab, world.bad)).toEqual(THIRD_IS_LOST);
      expect(told.join('\n')).toContain(stores.keys.command(world.bad));
    },
  );

  it('[V1] [DE3] an entry whose text is damaged in its middle costs a client one connection, then it is a gap, by every door', async () => {
    const { tab, bad, good } = await scene('middle-of-a-text');
    const [broken, writer] = [await claimToWrite(stores, bad), await claimToWrite(stores, good)];
    await tab.close();
    for (const word of ['one ', 'two ', 'three ', 'four ']) await broken.print(word);
    await broken.end();
    const key = stores.keys.first(bad);
    await rewrite(key, '3-0', { j: entry(3, bad).replace('two', 'tw"o\n') });
    // The next session of the conversation gets both, several entries in a frame.
    const session = await connect({ url: node.url, token: ann, conversation: 'middle-of-a-text' });
    const faults = node.count('homing_internal_errors_total');
    let losses = 0;
    session.on('status', ({ state }) => {
      if (state === 'away') losses += 1;
    });
    await writer.print('still here');
    await writer.end();
    const textOf = async (id: string) => {
      const handle = await until('the command', () => session.commands.get(id));
      let text = '';
      for await (const item of handle.output) text += item.type === 'gap' ? `[${item.reason}]` : item.text;
      return { text, reason: (await handle.ended).reason };
    };
    expect(await within('the damaged log', textOf(bad))).toEqual({
      text: 'one two [redis_lost]four ',
      reason: 'exited',
    });
    expect(await within('the other', textOf(good))).toEqual({ text: 'still here', reason: 'exited' });
    expect(losses).toBe(1);
    session.leave();
    // Those who parse entries anyway.
    for (const path of ['log?format=text', 'log?format=jsonl', 'log']) {
      const answer = await fetch(`${node.url}/v1/commands/${bad}/${path}`, {
        headers: { authorization: `Bearer ${ann}` },
      });
      const text = await answer.text();
      expect(text, path).toContain('four ');
      expect(text, path).toContain('redis_lost');
    }
    expect(node.count('homing_internal_errors_total')).toBe(faults);
  });

  it('[V1] [DE2] an `ended` that is damaged arrives all the same, once, as the record says, or with the word that it is not known', async () => {
    const world = await brokenInTheMiddle('damaged-end', (key, id) =>
      rewrite(key, '5-0', { j: `{"jsonrpc":"2.0","method":"command.ended","params":{"commandId":"${id}","seq":5,}}` }),
    );
    await using tab = world.tab;
    await tab.resume(node.url);
    await losesOnly(world, 'one two three four ');
    const ends = tab.recording.filter((one) => one.method === 'command.ended' && one.params.commandId === world.bad);
    expect(ends.map(({ params }) => params)).toMatchObject([{ seq: 5, outcome: { reason: 'exited', code: 0 } }]);
    await stores.redis.hset(stores.keys.command(world.bad), 'outcome', '}{');
    const page = await stores.commands.readLog(world.bad, { type: 'viewer' }, 4, 1_000);
    expect(page.type === 'page' && page.entries.map(({ text }) => JSON.parse(text).params.outcome)).toMatchObject([
      { reason: 'lost', error: 'how it ended is damaged in Redis' },
    ]);
  });

  it('[V1] that can not be read hold up neither the reconciler, nor an audit, nor a look at other claims', async () => {
    const stored = await openStored(stores);
    const log = { ...silentLog, error: (fields: object) => void told.push(JSON.stringify(fields)), child: () => log };
    const ids = await Promise.all([1, 2, 3].map(async () => (await submit(stores, { tab: stored })).commandId));
    const [bad, good, running] = ids as [CommandId, CommandId, CommandId];
    const [claimId, workerId] = [newClaimId(), newWorkerId()];
    await stores.commands.claim(running, claimId, workerId, 'group');
    await stores.redis.hset(
      stores.keys.command(bad),
      'spec',
      '{',
      'state',
      'running',
      'worker',
      workerId,
      'claim',
      claimId,
      'kill',
      '{',
    );

    const checks = await stores.commands.checkClaims([bad, running].map((commandId) => ({ commandId, claimId })));
    expect(checks.map(({ held }) => held)).toEqual([true, true]);

    for (const id of [bad, running]) await stores.presence.noteWorkerCommand(workerId, id);
    const audited = {
      store: stores.commands,
      presence: stores.presence,
      log,
      meter: { count() {}, gauge() {}, observe() {} },
    };
    await auditCommands(audited, workerId, () => false);
    expect((await stores.commands.get(running))?.snapshot.state).toBe('ended');

    // The damaged one is due first.
    await stores.presence.noteDue(`hook:${bad}`, -2);
    await stores.presence.noteDue(`expire:${bad}`, -2);
    await stores.presence.noteDue(`queued:${good}`, -1);
    const added: string[] = [];
    const reconciler = createReconciler(
      {
        ...{
          sessions: stores.sessions,
          commands: stores.commands,
          presence: stores.presence,
          log,
          chance,
          meter: audited.meter,
        },
        queue: {
          state: async () => 'missing',
          add: async (_pool: string, job: { commandId: string }) => void added.push(job.commandId),
          remove: async () => {},
          position: async () => undefined,
          close: async () => {},
        },
        webhooks: { add: async () => {}, close: async () => {} },
        nowMs: () => performance.now(),
      } as unknown as Parameters<typeof createReconciler>[0],
      { id: makeWorkerId(randomBytes(16)), leaseMs: 400, graceMs: 100, queueMs: 60_000, killGraceMs: 100 },
    );
    reconciler.start();
    await until('the other one’s job to be added', () => added.includes(good), 10_000);
    // Set aside, not met again at each step: whatever is due after it gets its turn.
    await until('the damaged one to be set aside', () => told.some((line) => line.includes(`"member":"hook:${bad}"`)));
    await reconciler.close();
    // Told by the name of the record.
    expect(told.join('\n')).toContain(stores.keys.command(bad));
  });

  it('[V1] of a session that are damaged cost that session, and open the door to nobody', async () => {
    for (const [i, damage] of [
      (key: string) => stores.redis.hdel(key, 'hash'),
      (key: string) => stores.redis.hset(key, 'state', 'nonsense'),
      (key: string) => replaceBy(key),
    ].entries()) {
      const conversation = `damaged-session-${i}`;
      const [tab, other] = [
        await openTab(node.url, { token: ann, conversation }),
        await openTab(node.url, { token: ann, conversation }),
      ];
      await using _tab = tab;
      await using _other = other;
      await damage(stores.keys.session(tab.sessionId as SessionId));
      const guess = await dial(node.url, { token: ann });
      guess.ws.send(
        JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method: 'session.resume',
          params: { sessionId: tab.sessionId, resumeToken: 'guess' },
        }),
      );
      const said = await new Promise<string>((resolve) => guess.ws.once('message', (data) => resolve(data.toString())));
      expect(JSON.parse(said).result).toBeUndefined();
      guess.ws.terminate();
      await guess.closed;
      const id = await other.run({ argv: ['true'] });
      const writer = await claimToWrite(stores, id);
      await writer.end();
      await other.ended(id);
    }
  });
});
