/** A real node in this process on a real Redis; a hand-driven writer stands in for a worker. */
import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GatewayOptions } from '../../src/gateway/options.js';
import { type CommandId, makeAttachmentId, makeSessionId, type SessionId } from '../../src/protocol/ids.js';
import { claimToWrite } from '../support/log-writer.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { dial, type Json, openTab, type Tab } from '../support/tab.js';
import { makeToken } from '../support/tokens.js';
import { until } from '../support/wait.js';

const secret = 'a secret of at least 32 characters';
const ann = makeToken(secret, { sub: 'ann' });
const bob = makeToken(secret, { sub: 'bob' });

let redis: TestRedis;
let stores: Stores;
let first: TestNode;
let second: TestNode;

const startNode = (over: Partial<GatewayOptions> = {}) => startTestNode({ redis, stores, secret }, over);
const claim = (commandId: string) => claimToWrite(stores, commandId);

const seqs = (tab: Tab, id: string) => tab.entries(id).map((arrival) => arrival.params.seq as number);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i + 1);
const get = (path: string, token = ann) => fetch(first.url + path, { headers: { authorization: `Bearer ${token}` } });
const post = (path: string, body: object, headers: Record<string, string> = {}, token = ann) =>
  fetch(first.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
const fails = (promise: Promise<unknown>) =>
  promise.then(
    () => 'no error',
    (error) => error.code as string,
  );

beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
  [first, second] = await Promise.all([startNode(), startNode()]);
});

afterAll(async () => {
  const misdelivered = first.count('homing_misdelivered_total') + second.count('homing_misdelivered_total');
  await Promise.all([first.close(), second.close()]);
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
  expect(misdelivered).toBe(0);
});

describe('output comes home', () => {
  test('[OW9] live entries reach the tab that ran the command, in order, and nobody else', async () => {
    await using a = await openTab(first.url, { token: ann });
    await using b = await openTab(second.url, { token: ann });
    const id = await a.run({ argv: ['true'] });
    expect(first.added.at(-1)?.[1]).toMatchObject({ commandId: id, originSessionId: a.sessionId, principal: 'ann' });
    const writer = await claim(id);
    for (let i = 0; i < 20; i++) await writer.print(`line ${i}\n`);
    await writer.end();
    await a.ended(id);
    expect(seqs(a, id)).toEqual(upTo(21));
    expect(a.output(id)).toBe(Array.from({ length: 20 }, (_, i) => `line ${i}\n`).join(''));
    expect(seqs(b, id)).toEqual([]);
  });

  test('a response precedes every entry that it causes', async () => {
    await using a = await openTab(first.url, { token: ann });
    let answerNow = () => {};
    first.faults.slowAdd = new Promise((resolve) => {
      answerNow = resolve;
    });
    const running = a.rpc('command.run', { argv: ['true'] });
    const job = await until('the job', () => first.added.find((one) => one[1].originSessionId === a.sessionId));
    const writer = await claim(job[1].commandId);
    const before = first.heard();
    await writer.print('early');
    await until('the message', () => first.heard() > before);
    first.faults.slowAdd = undefined;
    answerNow();
    const { commandId } = await running;
    await writer.end();
    await a.ended(commandId);
    const answer = a.recording.find((arrival) => arrival.method === 'command.run');
    expect(a.entries(commandId)[0]?.at).toBeGreaterThan(answer?.at ?? Number.POSITIVE_INFINITY);
    expect(seqs(a, commandId)).toEqual([1, 2]);
  });

  test('[OW6] what a tab had consumed before it closed is nobody’s, by every door', async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'settled' });
    await using b = await openTab(second.url, { token: ann, conversation: 'settled' });
    const commandId = await a.run({ argv: ['true'] });
    const writer = await claim(commandId);
    await writer.print('all of it');
    await writer.end();
    a.ack({ [commandId]: (await a.ended(commandId)).params.seq as number });
    const ownerAt = async () => (await b.rpc('command.get', { commandId })) as { ownerSessionId: unknown };
    await until('the acknowledgement', async () => (await b.rpc('command.get', { commandId })).ackedSeq === 2);
    expect(await ownerAt()).toMatchObject({ ownerSessionId: a.sessionId });
    await a.rpc('session.close', {});
    const nobodys = { ownerSessionId: null, originSessionId: a.sessionId, state: 'ended' };
    expect(await ownerAt()).toMatchObject(nobodys);
    expect(await b.rpc('command.list', {})).toMatchObject({ commands: [nobodys] });
    expect(await (await get(`/v1/commands/${commandId}`)).json()).toMatchObject(nobodys);
    expect(await (await get('/v1/conversations/settled/commands')).json()).toMatchObject({ commands: [nobodys] });
    expect(b.entries(commandId)).toEqual([]);
  });

  test('a queued command says where it stands, by every door, and no door waits for that', async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'line' });
    first.faults.position = 7;
    try {
      const ran = await a.rpc('command.run', { argv: ['true'] });
      expect(ran).toMatchObject({ state: 'queued', position: 7 });
      const { commandId } = ran as { commandId: string };
      expect(await a.rpc('command.get', { commandId })).toMatchObject({ commandId, position: 7 });
      const listed = { commands: [{ commandId, position: 7 }] };
      expect(await a.rpc('command.list', {})).toMatchObject(listed);
      expect(await (await get('/v1/conversations/line/commands')).json()).toMatchObject(listed);
      expect(await (await get(`/v1/commands/${commandId}`)).json()).toMatchObject({ position: 7 });
      await a.drop();
      expect(await a.resume(first.url)).toMatchObject(listed);
      // The queue does not answer: a hint is not waited for.
      first.faults.position = new Promise(() => {});
      const beganMs = performance.now();
      expect(await a.rpc('command.get', { commandId })).not.toHaveProperty('position');
      expect(performance.now() - beganMs).toBeLessThan(2_000);
      await (await claim(commandId)).end();
      first.faults.position = 7;
      expect(await a.rpc('command.get', { commandId })).not.toHaveProperty('position');
    } finally {
      first.faults.position = undefined;
    }
  });

  test('[SE3] a dropped tab resumes on another node with its cursors: nothing missing, nothing twice', async () => {
    await using a = await openTab(first.url, { token: ann });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('one ', 'two ');
    await a.shows(id, 'two');
    await a.drop();
    await writer.print('three ');
    const resumed = await a.resume(second.url);
    expect(resumed.commands).toMatchObject([{ commandId: id, recovered: true, fromSeq: 3 }]);
    await writer.print('four ');
    await writer.end();
    await a.ended(id);
    expect(seqs(a, id)).toEqual(upTo(5));
    expect(a.output(id)).toBe('one two three four ');
  });

  test('[DE6] without cursors a reload starts after the acknowledged entry, or from the beginning with 0', async () => {
    await using a = await openTab(first.url, { token: ann });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('one ', 'two ', 'three ');
    await a.shows(id, 'three');
    a.ack({ [id]: 2, cmd_unknown: 4 });
    await until('the ack', async () => (await stores.commands.get(id as CommandId))?.snapshot.ackedSeq === 2);
    a.forget();
    await a.resume(first.url, { cursors: {} });
    await a.shows(id, 'three');
    expect(seqs(a, id)).toEqual([3]);
    a.forget();
    await a.resume(first.url, { cursors: { [id]: 0 } });
    await a.shows(id, 'three');
    expect(seqs(a, id)).toEqual([1, 2, 3]);
  });

  test('[OW2] when the owner closes, the heir is told and gets what was not acknowledged', async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'heirs' });
    await using b = await openTab(second.url, { token: ann, conversation: 'heirs' });
    await using other = await openTab(second.url, { token: bob, conversation: 'heirs' });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('one ', 'two ');
    await a.shows(id, 'two');
    const { socket } = a;
    await a.close();
    expect((await socket.closed).code).toBe(4504);
    const owner = await b.waitFor('the command', (arrival) => arrival.method === 'command.owner');
    expect(owner.params).toMatchObject({ commandId: id, fromSeq: 1, why: 'owner_closed' });
    await writer.print('three ');
    await writer.end();
    await b.ended(id);
    expect(seqs(b, id)).toEqual(upTo(4));
    expect(other.recording.filter((arrival) => arrival.method?.startsWith('command.'))).toEqual([]);
    expect(await fails(a.resume(second.url))).toBe('SESSION_GONE');
  });

  test('[OW4] what is parked is in the answer of the next open, and its entries follow', async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'parked' });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('one ');
    await a.close();
    await writer.print('two ');
    await using b = await openTab(second.url, { token: ann, conversation: 'parked' });
    expect(b.opened.commands).toMatchObject([{ commandId: id }]);
    await writer.end();
    await b.ended(id);
    expect(seqs(b, id)).toEqual(upTo(3));
  });

  test('[DE7] a publish that nobody heard is found by the sweep', async () => {
    await using a = await openTab(first.url, { token: ann });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('one ');
    await a.shows(id, 'one');
    first.faults.deaf = true;
    await writer.end();
    await a.ended(id, 4_000);
    first.faults.deaf = false;
    expect(seqs(a, id)).toEqual([1, 2]);
  });

  test('[DE7] the first one too, where more commands wait than are looked at each time', async () => {
    await using a = await openTab(first.url, { token: ann });
    const ids: string[] = [];
    for (let n = 0; n < 15; n += 1) {
      ids.push(...(await Promise.all(Array.from({ length: 100 }, () => a.run({ argv: ['true'] })))));
    }
    // The first look is at all of them; of the others the turn comes after seconds.
    for (const at of [-1, -200, -400]) {
      const id = ids.at(at) as string;
      first.faults.deaf = true;
      const writer = await claim(id);
      await writer.print('one ');
      await a.shows(id, 'one', 4_000);
      first.faults.deaf = false;
      await writer.end();
      await a.ended(id);
      expect(seqs(a, id)).toEqual([1, 2]);
    }
  });
});

describe('when the bus is silent', () => {
  test('[SE1] nothing is sent, and everything follows when it is heard again', async () => {
    await using a = await openTab(first.url, { token: ann });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('one ');
    await a.shows(id, 'one');
    first.faults.silent = true;
    await writer.print('two ');
    await a.waitFor('a heartbeat', (x) => x.method === 'session.heartbeat' && x.params.bus === 'down');
    expect(seqs(a, id)).toEqual([1]);
    first.faults.silent = false;
    await writer.end();
    await a.ended(id);
    expect(seqs(a, id)).toEqual([1, 2, 3]);
  });

  test('[S4] a move that nobody heard of is found by the sweep', async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'unheard' });
    await using b = await openTab(second.url, { token: ann, conversation: 'unheard' });
    const writer = await claim(await a.run({ argv: ['true'] }));
    await writer.print('one ');
    await b.run({ argv: ['true'] });
    second.faults.deaf = true;
    await a.close();
    await b.waitFor('the command', (arrival) => arrival.method === 'command.owner', 4_000);
    second.faults.deaf = false;
  });
});

describe('attachments', () => {
  test('[SE1] a second attach: the first connection gets 4500 and nothing more', async () => {
    await using a = await openTab(first.url, { token: ann });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('one ');
    await a.shows(id, 'one');
    const before = a.socket;
    await a.resume(second.url);
    expect((await before.closed).code).toBe(4500);
    await writer.print('two ');
    await a.shows(id, 'two');
    const late = a.entries(id).filter((arrival) => arrival.connection === before.number && arrival.params.seq > 1);
    expect(late).toEqual([]);
  });

  test('[SE1] also on the same node', async () => {
    await using a = await openTab(first.url, { token: ann });
    const before = a.socket;
    await a.resume(first.url);
    expect((await before.closed).code).toBe(4500);
    expect(await a.rpc('session.touch')).toEqual({});
  });

  test('[SE4] another page of a living tab is refused, on any node; of a dead one it takes over', async () => {
    await using a = await openTab(first.url, { token: ann });
    const copied = { sessionId: a.sessionId, resumeToken: a.resumeToken, pageNonce: 'copied' };
    for (const url of [first.url, second.url]) {
      await using copy = await openRaw(url, { token: ann });
      expect(await fails(copy.rpc('session.resume', copied))).toBe('SESSION_IN_USE');
    }
    expect(await a.rpc('session.touch')).toEqual({});
    a.pauseReading();
    await using heir = await openRaw(second.url, { token: ann });
    expect(await heir.rpc('session.resume', copied)).toMatchObject({ sessionId: a.sessionId, generation: 2 });
  });

  test("[SE2] a wrong resume token, a guessed id and another's token are told apart by nobody", async () => {
    await using a = await openTab(first.url, { token: ann });
    const right = { sessionId: a.sessionId, resumeToken: a.resumeToken };
    const attempt = async (token: string, params: object) => {
      await using raw = await openRaw(first.url, { token });
      return await fails(raw.rpc('session.resume', params));
    };
    expect(await attempt(ann, { ...right, resumeToken: 'wrong' })).toBe('RESUME_DENIED');
    expect(
      await attempt(ann, { ...right, sessionId: right.sessionId.replace(/.$/, (last) => (last === 'a' ? 'e' : 'a')) }),
    ).toBe('RESUME_DENIED');
    expect(await attempt(bob, right)).toBe('RESUME_DENIED');
    const elsewhere = makeToken(secret, { sub: 'ann', conversations: ['other'] });
    expect(await attempt(elsewhere, right)).toBe('RESUME_DENIED');
    const tenant = makeToken(secret, { sub: 'ann', tenant: 'other' });
    expect(await attempt(tenant, right)).toBe('RESUME_DENIED');
    expect(await a.rpc('session.touch')).toEqual({});
  });
});

/** A socket without a session, for what no good client sends. */
async function openRaw(url: string, options: Parameters<typeof dial>[1]) {
  const socket = await dial(url, options);
  const frames: Json[] = [];
  socket.ws.on('message', (data) => frames.push(JSON.parse(data.toString())));
  socket.ws.on('error', () => undefined);
  let lastId = 0;
  return {
    ...socket,
    frames,
    send: (frame: unknown) => socket.ws.send(typeof frame === 'string' ? frame : JSON.stringify(frame)),
    /** The frame after those that came before. */
    next: (index = frames.length) => until('a frame', () => frames[index]),
    async rpc(method: string, params: object = {}): Promise<Json> {
      lastId += 1;
      const id = `raw-${lastId}`;
      socket.ws.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
      const { result, error } = await until(`the answer to ${method}`, () => frames.find((frame) => frame.id === id));
      if (error === undefined) return result;
      throw Object.assign(new Error(error.message), { code: error.data?.code ?? error.code, data: error.data });
    },
    async [Symbol.asyncDispose]() {
      socket.ws.terminate();
      await socket.closed;
    },
  };
}

describe('the wire', () => {
  test('malformed frames get their error, and the connection survives', async () => {
    await using raw = await openRaw(first.url, { token: ann });
    const errorTo = async (frame: unknown) => {
      const at = raw.frames.length;
      raw.send(frame);
      return (await raw.next(at)).error;
    };
    expect((await errorTo('{')).code).toBe(-32700);
    expect((await errorTo({ id: 1, method: 'x' })).code).toBe(-32600);
    const call = (method: string, params: object = {}) => ({ jsonrpc: '2.0', id: 1, method, params });
    expect((await errorTo(call('session.fly'))).code).toBe(-32601);
    expect((await errorTo(call('toString'))).code).toBe(-32601);
    expect((await errorTo(call('command.run', { argv: ['true'] }))).data.code).toBe('UNAUTHENTICATED');
    const wrong = await errorTo(call('session.open', { conversation: 'no spaces' }));
    expect(wrong).toMatchObject({ code: -32602, data: { code: 'INVALID_PARAMS', field: 'conversation' } });
    raw.send({ jsonrpc: '2.0', method: 'unknown.notification' });
    expect(await raw.rpc('session.open', { conversation: 'demo' })).toMatchObject({ commands: [], more: false });
    expect((await errorTo(call('session.open', { conversation: 'demo' }))).code).toBe(-32600);
    expect(await errorTo(call('command.run', { argv: [5] }))).toMatchObject({ code: -32602 });
    expect((await errorTo(call('command.run', { argv: ['a'], pool: 'gpu' }))).data.code).toBe('POOL_UNKNOWN');
    expect(await raw.rpc('session.touch')).toEqual({});
  });

  test('requests sent before the answer to open wait for it', async () => {
    await using raw = await openRaw(first.url, { token: ann });
    const opened = raw.rpc('session.open', { conversation: 'demo' });
    expect(await raw.rpc('session.touch')).toEqual({});
    await opened;
  });

  test('a batch with a bad member: each is answered by itself, in one frame only where batches were asked for', async () => {
    for (const batch of [false, true]) {
      await using raw = await openRaw(first.url, { token: ann });
      await raw.rpc('session.open', { conversation: 'demo', batch });
      const at = raw.frames.length;
      raw.send([{ jsonrpc: '2.0', id: 7, method: 'session.touch' }, 3]);
      const frames = await until('the answers', () => {
        const all = raw.frames
          .slice(at)
          .flat()
          .filter((frame) => 'id' in frame);
        return all.length >= 2 && all;
      });
      expect(frames.find((frame) => frame.id === 7)?.result).toEqual({});
      expect(frames.find((frame) => frame.id === null)?.error.code).toBe(-32600);
      expect(raw.frames.slice(at).some(Array.isArray)).toBe(batch);
    }
  });

  test('binary frames end the connection with 4502, oversized ones with 1009', async () => {
    await using binary = await openRaw(first.url, { token: ann });
    binary.ws.send(Buffer.from('{}'), { binary: true });
    expect((await binary.closed).code).toBe(4502);
    await using large = await openRaw(first.url, { token: ann });
    large.ws.send('x'.repeat(64 * 1024 + 1));
    expect((await large.closed).code).toBe(1009);
  });

  test('who may not come in is told so before the upgrade', async () => {
    const status = (options: Parameters<typeof dial>[1]) =>
      dial(first.url, options).then(
        ({ ws }) => ws.terminate(),
        (error) => error.status,
      );
    expect(await status({})).toBe(401);
    expect(await status({ token: 'nonsense' })).toBe(401);
    expect(await status({ token: makeToken(secret, { sub: 'ann', ttlSeconds: -60 }) })).toBe(401);
    expect(await status({ token: makeToken('another secret of 32 characters!', { sub: 'ann' }) })).toBe(401);
    expect(await status({ origin: 'https://evil.example' })).toBe(403);
    expect(await status({ token: ann, origin: 'https://evil.example' })).toBe(403);
  });

  test('a browser brings its token in open; a wrong one does not open', async () => {
    await using raw = await openRaw(first.url, { origin: 'https://app.example' });
    expect(await fails(raw.rpc('session.open', { conversation: 'demo' }))).toBe('UNAUTHENTICATED');
    const narrow = makeToken(secret, { sub: 'ann', conversations: ['other'] });
    expect(await fails(raw.rpc('session.open', { conversation: 'demo', token: narrow }))).toBe('FORBIDDEN');
    const blind = makeToken(secret, { sub: 'ann', scope: 'run' });
    expect(await fails(raw.rpc('session.open', { conversation: 'demo', token: blind }))).toBe('FORBIDDEN');
    expect(await raw.rpc('session.open', { conversation: 'demo', token: ann })).toHaveProperty('sessionId');
  });

  test('a socket that opens no session is closed with 4501', async () => {
    await using raw = await openRaw(first.url, { token: ann });
    expect((await raw.closed).code).toBe(4501);
  });

  test('a token that ends is announced, and the connection ends with 4005 unless it is refreshed', async () => {
    const short = () => makeToken(secret, { sub: 'ann', ttlSeconds: 2 });
    await using ends = await openTab(first.url, { token: short() });
    await using stays = await openTab(first.url, { token: short() });
    await stays.waitFor('the announcement', (arrival) => arrival.method === 'session.expiring');
    expect(await fails(stays.rpc('session.refresh', { token: bob }))).toBe('FORBIDDEN');
    expect(await stays.rpc('session.refresh', { token: ann })).toEqual({});
    expect((await ends.socket.closed).code).toBe(4005);
    expect(await stays.rpc('session.touch')).toEqual({});
  });

  test('[DE5] a client that stops reading is not disconnected, and gets everything in order when it reads again', async () => {
    await using a = await openTab(first.url, { token: ann, batch: true });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('first ');
    await a.shows(id, 'first');
    a.pauseReading();
    const chunk = 'x'.repeat(32 * 1024);
    for (let i = 0; i < 200; i++) await writer.print(chunk);
    await writer.end();
    a.resumeReading();
    await a.ended(id);
    expect(seqs(a, id)).toEqual(upTo(202));
    expect(a.outputBytes(id).length).toBe(6 + 200 * chunk.length);
  });
});

describe('commands over a connection', () => {
  test('[CO1] the same submit with one idempotency key is one command; with another body a conflict', async () => {
    await using a = await openTab(first.url, { token: ann });
    const key = randomBytes(8).toString('hex');
    const id = await a.run({ argv: ['true'], idempotencyKey: key });
    expect(await a.run({ argv: ['true'], idempotencyKey: key })).toBe(id);
    await using b = await openTab(second.url, { token: ann });
    expect(await b.run({ argv: ['true'], idempotencyKey: key })).toBe(id);
    expect(await fails(a.rpc('command.run', { argv: ['false'], idempotencyKey: key }))).toBe('IDEMPOTENCY_CONFLICT');
    const writer = await claim(id);
    await writer.print('once');
    await writer.end();
    await a.ended(id);
    expect(seqs(a, id)).toEqual([1, 2]);
    expect(seqs(b, id)).toEqual([]);
  });

  test('a queued command that is killed ends as cancelled, and its job goes', async () => {
    await using a = await openTab(first.url, { token: ann });
    const id = await a.run({ argv: ['true'] });
    expect(await a.rpc('command.kill', { commandId: id })).toEqual({ state: 'ended' });
    expect((await a.ended(id)).params.outcome).toMatchObject({ reason: 'cancelled' });
    expect(first.removed).toContain(id);
    expect(await a.rpc('command.kill', { commandId: id })).toEqual({ state: 'ended' });
  });

  test('[IS2] a viewer gets the whole log marked as a view, and owns nothing', async () => {
    await using a = await openTab(first.url, { token: ann });
    await using b = await openTab(second.url, { token: ann });
    const id = await a.run({ argv: ['true'] });
    const writer = await claim(id);
    await writer.print('one ');
    expect(await b.rpc('command.attach', { commandId: id })).toMatchObject({ ownerSessionId: a.sessionId });
    await writer.print('two ');
    await writer.end();
    const ended = await b.waitFor('the end', (x) => x.method === 'command.ended' && x.params.commandId === id);
    expect(ended.params.view).toBe(true);
    expect(b.recording.filter((x) => x.params.commandId === id && x.params.view === true)).toHaveLength(3);
    b.ack({ [id]: 3 });
    expect(await fails(b.rpc('command.write', { commandId: id, offset: 0, data: 'x' }))).toBe('NOT_OWNER');
    expect(await b.rpc('command.detach', { commandId: id })).toEqual({});
    expect((await stores.commands.get(id as CommandId))?.snapshot.ackedSeq).toBe(0);
  });

  test('get, list and log show what is there', async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'shown' });
    const id = await a.run({ argv: ['echo', 'hi'], labels: { step: 'build' } });
    const writer = await claim(id);
    await writer.print('hi');
    await writer.end();
    expect(await a.rpc('command.get', { commandId: id })).toMatchObject({ state: 'ended', argv: ['echo', 'hi'] });
    expect((await a.rpc('command.list', { label: 'step=build' })).commands).toMatchObject([{ commandId: id }]);
    const log = await a.rpc('command.log', { commandId: id });
    expect(log).toMatchObject({ headSeq: 2, nextSeq: 3, entries: [{ type: 'output', data: 'hi' }, { type: 'ended' }] });
    const rest = await a.rpc('command.log', { commandId: id, fromSeq: 2 });
    expect(rest.entries).toMatchObject([{ type: 'ended', seq: 2 }]);
  });

  test("[IS1] another's command does not exist: by principal, tenant and conversation", async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'private' });
    const id = await a.run({ argv: ['true'] });
    const others = [
      bob,
      makeToken(secret, { sub: 'ann', tenant: 'other' }),
      makeToken(secret, { sub: 'ann', conversations: ['demo'] }),
    ];
    for (const token of others) {
      await using tab = await openTab(second.url, { token });
      for (const method of ['get', 'log', 'kill', 'attach', 'adopt', 'detach']) {
        expect(await fails(tab.rpc(`command.${method}`, { commandId: id }))).toBe('UNKNOWN_COMMAND');
      }
      for (const path of [`/v1/commands/${id}`, `/v1/commands/${id}/log`]) {
        expect((await get(path, token)).status).toBe(404);
      }
      expect((await post(`/v1/commands/${id}/kill`, {}, {}, token)).status).toBe(404);
    }
    expect((await get(`/v1/commands/${id}`)).status).toBe(200);
  });

  test('a scope that is missing is named', async () => {
    await using a = await openTab(first.url, { token: makeToken(secret, { sub: 'ann', scope: 'read' }) });
    expect(await fails(a.rpc('command.run', { argv: ['true'] }))).toBe('FORBIDDEN');
  });
});

describe('HTTP', () => {
  test('[OW1] a backend submits for a tab; output goes to that tab and nowhere else', async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'http' });
    await using b = await openTab(second.url, { token: ann, conversation: 'http' });
    const body = { conversation: 'http', argv: ['true'], originSessionId: a.sessionId };
    const backend = makeToken(secret, { sub: 'backend', scope: 'run delegate' });
    const answer = await post('/v1/commands', body, {}, backend);
    expect(answer.status).toBe(202);
    const { commandId } = (await answer.json()) as Json;
    expect(answer.headers.get('location')).toBe(`/v1/commands/${commandId}`);
    await a.waitFor('the command', (x) => x.method === 'command.owner' && x.params.commandId === commandId);
    const writer = await claim(commandId);
    await writer.print('hi');
    await writer.end();
    await a.ended(commandId);
    expect(seqs(a, commandId)).toEqual([1, 2]);
    expect(seqs(b, commandId)).toEqual([]);
  });

  test('[OW5] an origin of another conversation or principal, and one that never was, is refused', async () => {
    await using a = await openTab(first.url, { token: ann, conversation: 'http' });
    const refused = async (body: object, token = ann) => {
      const answer = await post('/v1/commands', { argv: ['true'], originSessionId: a.sessionId, ...body }, {}, token);
      return ((await answer.json()) as Json).code;
    };
    expect(await refused({ conversation: 'other' })).toBe('ORIGIN_UNKNOWN');
    expect(await refused({ conversation: 'http' }, bob)).toBe('ORIGIN_UNKNOWN');
    const never = a.sessionId.replace(/.{4}$/, 'aaaa');
    expect(await refused({ conversation: 'http', originSessionId: never })).toBe('ORIGIN_UNKNOWN');
    expect(await refused({ conversation: 'http', principal: 'ann' }, bob)).toBe('FORBIDDEN');
    const elsewhere = makeToken(secret, { sub: 'backend', tenant: 'other', scope: 'run delegate' });
    expect(await refused({ conversation: 'http' }, elsewhere)).toBe('ORIGIN_UNKNOWN');
  });

  test('[CO1] the header Idempotency-Key makes a retry the same command', async () => {
    const headers = { 'idempotency-key': randomBytes(8).toString('hex') };
    const body = { conversation: 'http', argv: ['true'] };
    const [one, two] = await Promise.all([1, 2].map(async () => (await post('/v1/commands', body, headers)).json()));
    expect(one.commandId).toBe(two.commandId);
    expect((await post('/v1/commands', { ...body, argv: ['false'] }, headers)).status).toBe(409);
  });

  test('get waits for the end, log comes as text or as entries, lists are paged', async () => {
    const answer = await post('/v1/commands', { conversation: 'lists', argv: ['true'] });
    const { commandId } = (await answer.json()) as Json;
    const writer = await claim(commandId);
    await writer.print('one ', 'two ');
    expect(await (await get(`/v1/commands/${commandId}?waitMs=10`)).json()).toMatchObject({ state: 'running' });
    const waiting = get(`/v1/commands/${commandId}?waitMs=10000`);
    await writer.end();
    expect(await (await waiting).json()).toMatchObject({ state: 'ended', outcome: { code: 0 } });
    expect(await (await get(`/v1/commands/${commandId}/log`)).text()).toBe('one two ');
    expect(await (await get(`/v1/commands/${commandId}/log?tailBytes=4`)).text()).toBe('two ');
    const lines = (await (await get(`/v1/commands/${commandId}/log?format=jsonl&fromSeq=2`)).text()).trim().split('\n');
    expect(lines.map((line) => JSON.parse(line).type)).toEqual(['output', 'ended']);

    await post('/v1/commands', { conversation: 'lists', argv: ['true'] });
    const page = (await (await get('/v1/conversations/lists/commands?limit=1')).json()) as Json;
    expect(page.commands).toHaveLength(1);
    const next = (await (await get(`/v1/conversations/lists/commands?limit=1&cursor=${page.next}`)).json()) as Json;
    expect(next.commands).toMatchObject([{ commandId }]);
    await using a = await openTab(first.url, { token: ann, conversation: 'lists' });
    const { sessions } = (await (await get('/v1/conversations/lists/sessions')).json()) as Json;
    expect(sessions).toMatchObject([{ sessionId: a.sessionId, state: 'live' }]);
    expect(((await (await get('/v1/conversations/lists/sessions', bob)).json()) as Json).sessions).toEqual([]);
  });

  test('a long log is sent whole', async () => {
    const { commandId } = (await (await post('/v1/commands', { conversation: 'long', argv: ['true'] })).json()) as Json;
    const writer = await claim(commandId);
    const chunk = 'y'.repeat(32 * 1024);
    for (let i = 0; i < 40; i++) await writer.print(chunk);
    await writer.end();
    expect((await (await get(`/v1/commands/${commandId}/log`)).text()).length).toBe(40 * chunk.length);
  });

  test('faults are JSON with a code', async () => {
    const code = async (answer: Promise<Response>) => {
      const got = await answer;
      return [got.status, ((await got.json()) as Json).code];
    };
    expect(await code(fetch(`${first.url}/v1/commands/x`))).toEqual([401, 'UNAUTHENTICATED']);
    expect(await code(get('/nowhere'))).toEqual([404, 'NOT_FOUND']);
    expect(await code(get('/v1/commands/x'))).toEqual([404, 'UNKNOWN_COMMAND']);
    expect(await code(post('/v1/commands', { conversation: 'http' }))).toEqual([400, 'INVALID_PARAMS']);
    const broken = fetch(`${first.url}/v1/commands`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ann}`, 'content-type': 'application/json' },
      body: '{',
    });
    expect(await code(broken)).toEqual([400, 'INVALID_PARAMS']);
    const evil = fetch(`${first.url}/v1/commands/x`, { headers: { origin: 'https://evil.example' } });
    expect(await code(evil)).toEqual([403, 'FORBIDDEN']);
  });
});

describe('a node', () => {
  test('tells whether it is alive and ready, and why not', async () => {
    const ready = async () => (await fetch(`${first.opsUrl}/readyz`)).json() as Promise<Json>;
    expect((await fetch(`${first.opsUrl}/livez`)).status).toBe(200);
    expect(await ready()).toMatchObject({ status: 'ok' });
    first.faults.silent = true;
    expect(await ready()).toMatchObject({ checks: { redis: 'ok', bus: 'no probe came back for 60000 ms' } });
    first.faults.silent = false;
    expect(await (await fetch(`${first.opsUrl}/metrics`)).text()).toContain('homing_connections');
  });

  test('[S1] a session recorded as its own that it does not hold is detached', async () => {
    await using a = await openTab(first.url, { token: ann });
    // As after an open whose reply was lost: the record says live, nobody holds it.
    const place = await stores.sessions.place(a.sessionId as SessionId);
    if (place === undefined) throw new Error('no place');
    const sessionId = makeSessionId(place.tag, randomBytes(16));
    const attachmentId = makeAttachmentId(randomBytes(16));
    const { nodeId } = first.gateway;
    await stores.presence.noteNodeSession(nodeId, sessionId);
    await stores.sessions.open({ ...place, sessionId, attachmentId, nodeId, resumeTokenHash: 'h', pageNonce: '' });
    await until('the audit', async () => (await stores.sessions.check(sessionId, [])).state === 'away', 8_000);
    expect((await stores.sessions.check(a.sessionId as SessionId, [])).state).toBe('live');
  });

  test('[OW7] a socket that drops leaves the session away, and nothing behind in the node', async () => {
    await using a = await openTab(first.url, { token: ann });
    const sessionId = a.sessionId as SessionId;
    await a.drop();
    await until('away', async () => (await stores.sessions.check(sessionId, [])).state === 'away');
    await until(
      'the note',
      async () => !(await stores.presence.nodeSessions(first.gateway.nodeId)).includes(sessionId),
    );
    await until('the channel', async () => {
      const [, count] = (await stores.redis.pubsub('SHARDNUMSUB', stores.keys.sessionChannel(sessionId))) as [
        string,
        number,
      ];
      return count === 0;
    });
  });

  test('[SE6] a drain tells when to come back, closes with 4001, and the session resumes elsewhere', async () => {
    const third = await startNode();
    try {
      await using a = await openTab(third.url, { token: ann });
      const id = await a.run({ argv: ['true'] });
      const { socket } = a;
      await third.gateway.drain(500);
      expect((await socket.closed).code).toBe(4001);
      expect(a.recording.find((x) => x.method === 'session.draining')?.params).toEqual({ reconnectWithinMs: 500 });
      expect((await stores.sessions.check(a.sessionId as SessionId, [])).state).toBe('away');
      await a.resume(second.url);
      const writer = await claim(id);
      await writer.end();
      await a.ended(id);
    } finally {
      await third.close();
    }
  });

  test('without a secret it serves everyone on loopback as one principal, and refuses any other address', async () => {
    await expect(startNode({ jwtSecrets: [], host: '0.0.0.0' })).rejects.toThrow('HOMING_JWT_SECRET');
    const open = await startNode({ jwtSecrets: [] });
    try {
      await using raw = await openRaw(open.url, {});
      expect(await raw.rpc('session.open', { conversation: 'demo' })).toHaveProperty('sessionId');
      const rebound = await rawGet(open.url, { host: 'evil.example' });
      expect(rebound).toBe(403);
    } finally {
      await open.close();
    }
  });
});

/** The status for a request whose Host header is not the address it goes to; fetch would not send one. */
function rawGet(url: string, headers: Record<string, string>): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    request(`${url}/v1/commands/x`, { headers }, (response) => {
      response.resume();
      resolve(response.statusCode);
    })
      .on('error', reject)
      .end();
  });
}
