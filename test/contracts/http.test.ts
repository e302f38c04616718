/** The HTTP door of a real node on a real Redis: events, logs, delegates, messages, and what it says of itself. */
import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { Validator } from '@seriousme/openapi-schema-validator';
import fastify from 'fastify';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseCursor } from '../../src/domain/conversation-cursor.js';
import { KEEP_ALIVE_MS } from '../../src/gateway/event-streams.js';
import type { Node } from '../../src/gateway/handlers/context.js';
import { addHttpRoutes } from '../../src/gateway/http-routes.js';
import { type HttpRoute, httpRoutes } from '../../src/protocol/http.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { LIMITS } from '../../src/protocol/limits.js';
import { commandPageShape, entryShape, sessionPageShape, snapshotShape } from '../../src/protocol/shapes.js';
import { openEvents } from '../support/events.js';
import { claimToWrite } from '../support/log-writer.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { type Json, openTab } from '../support/tab.js';
import { makeToken } from '../support/tokens.js';
import { until } from '../support/wait.js';

const secret = 'a secret of at least 32 characters';
const ann = makeToken(secret, { sub: 'ann' });
const bob = makeToken(secret, { sub: 'bob' });
const backend = makeToken(secret, { sub: 'backend', scope: 'read run kill delegate', conversations: ['http-*'] });

let redis: TestRedis;
let stores: Stores;
let first: TestNode;
let second: TestNode;

const claim = (commandId: string) => claimToWrite(stores, commandId);
const get = (path: string, token = ann, headers: Record<string, string> = {}) =>
  fetch(first.url + path, { headers: { authorization: `Bearer ${token}`, ...headers } });
const post = (path: string, body: object, token = ann) =>
  fetch(first.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
const submit = async (conversation: string, body: object = {}, token = ann): Promise<string> => {
  const answer = await post('/v1/commands', { conversation, argv: ['true'], ...body }, token);
  expect(answer.status).toBe(202);
  return ((await answer.json()) as Json).commandId;
};
const events = (path: string, lastEventId?: string, options: { token?: string; node?: TestNode } = {}) =>
  openEvents((options.node ?? first).url + path, {
    token: options.token ?? ann,
    ...(lastEventId === undefined ? {} : { lastEventId }),
  });
const streamsOpen = (node: TestNode) => node.count('homing_event_streams');

beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
  [first, second] = (await Promise.all(
    [1, 2].map(() => startTestNode({ redis, stores, secret }, { keepAliveMs: 700 })),
  )) as [TestNode, TestNode];
});

afterAll(async () => {
  await Promise.all([first.close(), second.close()]);
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

describe('events of a command', () => {
  test('[DE1] come as they are written, with their seqs as ids, and end after the end', async () => {
    const id = await submit('http-one');
    await using stream = await events(`/v1/commands/${id}/events`);
    expect(stream.status).toBe(200);
    expect(stream.headers.get('content-type')).toContain('text/event-stream');
    const writer = await claim(id);
    await writer.print('one ', 'two "quoted"\nand broken');
    const second = await stream.waitFor('the second entry', ({ id: seq }) => seq === '2');
    expect(second).toEqual({
      event: 'command.output',
      id: '2',
      data: { commandId: id, seq: 2, ts: 1, at: 4, stream: 'out', data: 'two "quoted"\nand broken' },
    });
    await writer.end();
    await until('the end of the stream', () => stream.isOver());
    expect(stream.events.map(({ event, id: seq }) => `${seq} ${event}`)).toEqual([
      '1 command.output',
      '2 command.output',
      '3 command.ended',
    ]);
    expect(stream.retryMs()).toBeGreaterThan(0);
  });

  test('[DE2] go on after Last-Event-ID on any node, and answer 204 when the end was seen', async () => {
    const id = await submit('http-one');
    const writer = await claim(id);
    await writer.print('a', 'b', 'c');
    const before = await events(`/v1/commands/${id}/events`);
    const seen = await before.waitFor('the second', ({ id: seq }) => seq === '2');
    before.stop();
    await writer.end();
    await using after = await events(`/v1/commands/${id}/events`, seen.id, { node: second });
    await until('the end of the stream', () => after.isOver());
    expect(after.events.map(({ id: seq }) => seq)).toEqual(['3', '4']);
    await using done = await events(`/v1/commands/${id}/events`, '4');
    expect(done.status).toBe(204);
    await using fresh = await events(`/v1/commands/${id}/events?fromSeq=4`);
    await until('the end of the stream', () => fresh.isOver());
    expect(fresh.events.map(({ event }) => event)).toEqual(['command.ended']);
  });

  test('[DE3] say what is missing', async () => {
    const id = await submit('http-one');
    const writer = await claim(id);
    await writer.print('head');
    await writer.lose(5, 1_000);
    await writer.end();
    await using stream = await events(`/v1/commands/${id}/events`);
    const gap = await stream.waitFor('the gap', ({ event }) => event === 'command.gap');
    expect(gap.data).toMatchObject({ fromSeq: 2, toSeq: 6, bytes: 1_000, reason: 'flood' });
  });

  test('a wrong Last-Event-ID is named, a command that is not there is not found', async () => {
    const id = await submit('http-one');
    const wrong = await get(`/v1/commands/${id}/events`, ann, { 'last-event-id': 'x1' });
    expect([wrong.status, await wrong.json()]).toMatchObject([400, { field: 'last-event-id' }]);
    expect((await get(`/v1/commands/${id}/events`, bob)).status).toBe(404);
  });

  test('[DE5] a reader that stops costs a bounded amount and holds up nobody', async () => {
    const id = await submit('http-slow');
    const writer = await claim(id);
    const { port } = new URL(first.url);
    await until('the streams of the tests before to be gone', () => streamsOpen(first) === 0);
    const stuck = request({
      host: '127.0.0.1',
      port,
      path: `/v1/commands/${id}/events`,
      headers: { authorization: `Bearer ${ann}` },
    });
    stuck.on('error', () => undefined);
    stuck.on('response', (response) => response.pause());
    stuck.end();
    await until('the stream', () => streamsOpen(first) === 1);
    const chunk = 'y'.repeat(64 * 1024);
    for (let i = 0; i < 100; i += 1) await writer.print(chunk);
    await writer.end();
    await using other = await events(`/v1/commands/${id}/events?fromSeq=100`);
    await until('the end for the other', () => other.isOver());
    // Far less than the 6.5 MB that were written: what the kernel holds, one page, and no more.
    expect(stuck.socket?.bytesRead ?? 0).toBeLessThan(4 * 1024 * 1024);
    expect(streamsOpen(first)).toBe(1);
    stuck.destroy();
    await until('the stream to be gone', () => streamsOpen(first) === 0);
  });

  test('[IS1] end with their token', async () => {
    const id = await submit('http-one');
    const short = makeToken(secret, { sub: 'ann', ttlSeconds: 1 });
    await using stream = await events(`/v1/commands/${id}/events`, undefined, { token: short });
    expect(stream.status).toBe(200);
    await until('the end of the stream', () => stream.isOver(), 5_000);
    expect(stream.events).toEqual([]);
  });

  test('a comment comes when nothing else did for a while, every 15 s unless a node is told otherwise', async () => {
    expect(KEEP_ALIVE_MS).toBe(15_000);
    const id = await submit('http-one');
    await using stream = await events(`/v1/commands/${id}/events`);
    await until('comments', () => stream.comments.length > 1);
    expect(stream.isOver()).toBe(false);
  });
});

describe('events of a conversation', () => {
  test('[DE1] carry every command of it, those to come too, each in order and once', async () => {
    const one = await submit('http-all');
    await using stream = await events('/v1/conversations/http-all/events');
    const writers = [await claim(one)];
    await writers[0]?.print('1a');
    await stream.waitFor('the first', ({ data }) => data.data === '1a');
    const two = await submit('http-all');
    writers.push(await claim(two));
    for (const [index, writer] of writers.entries()) {
      await writer.print(`${index}x`, `${index}y`);
      await writer.end();
    }
    for (const id of [one, two]) {
      await stream.waitFor('the end', ({ event, data }) => event === 'command.ended' && data.commandId === id);
      const seqs = stream.events.filter(({ data }) => data.commandId === id).map(({ data }) => data.seq);
      expect(seqs).toEqual(seqs.map((_, index) => index + 1));
    }
    expect(stream.isOver()).toBe(false);
  });

  test('[DE4] go on after any of their ids, on any node, without a hole and without a repeat', async () => {
    const ids = [await submit('http-resume'), await submit('http-resume'), await submit('http-resume')];
    const writers = await Promise.all(ids.map(claim));
    await using whole = await events('/v1/conversations/http-resume/events');
    const seen: string[] = [];
    let cursor: string | undefined;
    const total = () => writers.length * 6;
    const write = (async () => {
      for (let round = 0; round < 5; round += 1) {
        for (const [index, writer] of writers.entries()) await writer.print(`${index}.${round}`);
        if (round === 2) {
          const late = await submit('http-resume');
          ids.push(late);
          writers.push(await claim(late));
          await writers.at(-1)?.print('l.0', 'l.1', 'l.2');
        }
      }
      for (const writer of writers) await writer.end();
    })();
    // A client that comes back after every few events, here and there.
    for (let visit = 0; seen.length < 3 * 6 + 6 && visit < 60; visit += 1) {
      const stream = await events('/v1/conversations/http-resume/events', cursor, { node: visit % 2 ? second : first });
      const from = seen.length;
      await until('some events', () => stream.events.length > 0, 5_000);
      for (const { id, data } of stream.events.slice(0, 3)) {
        cursor = id;
        seen.push(`${data.commandId} ${data.seq}`);
      }
      expect(seen.length).toBeGreaterThan(from);
      stream.stop();
    }
    await write;
    await until('everything', () => whole.events.length >= total());
    const all = whole.events.map(({ data }) => `${data.commandId} ${data.seq}`);
    expect(new Set(seen).size).toBe(seen.length);
    expect([...seen].sort()).toEqual([...all].sort());
  }, 60_000);

  test('history is not repeated to a fresh reader, and nothing that ended later is left out', async () => {
    const old = await submit('http-history');
    await (await claim(old)).end();
    await stores.redis.hset(stores.keys.command(old as CommandId), 'ended', Date.now() - 61_000);
    const recent = await submit('http-history');
    await (await claim(recent)).end();
    const waiting = await submit('http-history');
    await using stream = await events('/v1/conversations/http-history/events');
    const later = await submit('http-history');
    await (await claim(later)).end();
    await (await claim(waiting)).end();
    for (const id of [later, waiting, recent]) await stream.waitFor('its end', ({ data }) => data.commandId === id);
    expect(stream.events.some(({ data }) => data.commandId === old)).toBe(false);
  });

  test('more commands than are followed at once wait for their turn, and lose nothing', async () => {
    const ids: string[] = [];
    for (let i = 0; i < LIMITS.maxFollowedCommands + 6; i += 1) ids.push(await submit('http-many'));
    await using stream = await events('/v1/conversations/http-many/events');
    await (await claim(ids[0] as string)).end();
    await stream.waitFor('the first one', ({ data }) => data.commandId === ids[0]);
    // Ended while it waits: it is not history.
    await (await claim(ids.at(-1) as string)).end();
    for (const id of ids.slice(1, 10)) await (await claim(id)).end();
    await stream.waitFor('the last one', ({ data }) => data.commandId === ids.at(-1));
    const cursor = stream.events.at(-1)?.id ?? '';
    expect(cursor.length).toBeLessThan(LIMITS.maxCursorChars / 2);
    const [, tag] = (ids[0] as string).split('_');
    expect(parseCursor(tag as never, cursor)?.told.size).toBe(ids.length - 11);
  }, 60_000);

  test('[DE3] a command that expired before it was told is said to be missing', async () => {
    const id = (await submit('http-expired')) as CommandId;
    const writer = await claim(id);
    await writer.print('seen');
    const stream = await events('/v1/conversations/http-expired/events');
    const { id: cursor } = await stream.waitFor('the first', ({ data }) => data.seq === 1);
    stream.stop();
    await stores.redis.del(stores.keys.command(id), stores.keys.first(id), stores.keys.last(id));
    await using back = await events('/v1/conversations/http-expired/events', cursor);
    const gap = await back.waitFor('the gap', ({ event }) => event === 'command.gap');
    expect(gap.data).toMatchObject({ commandId: id, fromSeq: 2, reason: 'expired' });
  });

  test('[IS1] a cursor of another conversation, a broken one, and one too long are refused', async () => {
    const answer = async (cursor: string) => (await get(`/v1/conversations/http-all/events?cursor=${cursor}`)).status;
    expect(await answer('nonsense')).toBe(400);
    expect(await answer('1.1.1.zzz-1')).toBe(400);
    expect(await answer('a'.repeat(LIMITS.maxCursorChars + 1))).toBe(400);
  });

  test('[SE6] a draining node ends its streams, and they go on at another', async () => {
    const node = await startTestNode({ redis, stores, secret });
    try {
      const id = await submit('http-drain');
      await using stream = await events(`/v1/commands/${id}/events`, undefined, { node });
      const drained = node.gateway.drain(500);
      await until('the end of the stream', () => stream.isOver(), 3_000);
      await drained;
    } finally {
      await node.close();
    }
  });
});

describe('a delegate', () => {
  test('[IS1] reads, follows and ends what others have in the conversations of its token, and nothing beyond', async () => {
    const mine = await submit('http-team');
    await using followed = await events('/v1/conversations/http-team/events', undefined, { token: backend });
    await using own = await events('/v1/conversations/http-team/events', undefined, { token: bob });
    const writer = await claim(mine);
    await writer.print('of ann');
    await followed.waitFor('the output of ann', ({ data }) => data.commandId === mine);
    expect((await get(`/v1/commands/${mine}`, backend)).status).toBe(200);
    expect(await (await get(`/v1/commands/${mine}/log`, backend)).text()).toBe('of ann');
    expect((await post(`/v1/commands/${mine}/kill`, {}, backend)).status).toBe(200);
    const list = await get('/v1/conversations/http-team/commands?principal=ann', backend);
    expect(((await list.json()) as Json).commands).toMatchObject([{ commandId: mine }]);

    const outside = await submit('private');
    for (const path of ['', '/log', '/events']) {
      expect((await get(`/v1/commands/${outside}${path}`, backend)).status).toBe(404);
    }
    expect((await get('/v1/conversations/private/events', backend)).status).toBe(403);
    const stranger = makeToken(secret, { sub: 'backend', tenant: 'other', scope: 'read delegate' });
    expect((await get(`/v1/commands/${mine}`, stranger)).status).toBe(404);
    expect(own.events).toEqual([]);
  });

  test('[IS1] twin: without the scope nothing of another is named, read, ended or followed', async () => {
    const mine = await submit('http-team');
    const plain = makeToken(secret, { sub: 'backend', scope: 'read run kill' });
    for (const path of ['', '/log', '/events']) {
      expect((await get(`/v1/commands/${mine}${path}`, plain)).status).toBe(404);
    }
    expect((await post(`/v1/commands/${mine}/kill`, {}, plain)).status).toBe(404);
    for (const path of ['commands', 'sessions', 'events']) {
      expect((await get(`/v1/conversations/http-team/${path}?principal=ann`, plain)).status).toBe(403);
    }
    // A scope beside it is still needed.
    const blind = makeToken(secret, { sub: 'backend', scope: 'delegate' });
    expect((await get(`/v1/commands/${mine}`, blind)).status).toBe(403);
  });

  test('[OW1] never becomes the owner of what it reads', async () => {
    const mine = await submit('http-owner');
    await using tab = await openTab(first.url, { token: backend, conversation: 'http-owner' });
    await expect(tab.rpc('command.adopt', { commandId: mine })).rejects.toMatchObject({ code: 'UNKNOWN_COMMAND' });
    expect(await tab.rpc('command.get', { commandId: mine })).toMatchObject({ commandId: mine, ownerSessionId: null });
    const adopt = await post(`/v1/commands/${mine}/adopt`, { sessionId: tab.sessionId }, backend);
    expect(((await adopt.json()) as Json).code).toBe('ORIGIN_UNKNOWN');
    await using hers = await openTab(second.url, { token: ann, conversation: 'http-owner' });
    expect(await tab.rpc('command.get', { commandId: mine })).toMatchObject({ ownerSessionId: hers.sessionId });
  });
});

describe('a log as text', () => {
  test('[DE3] is what the command wrote; what is missing stands in a line of its own, or is left out on request', async () => {
    const id = await submit('http-log');
    const writer = await claim(id);
    await writer.print('head ä');
    await writer.lose(3, 77);
    await writer.print('tail\n');
    await writer.end();
    const log = async (query = '') => (await get(`/v1/commands/${id}/log${query}`)).text();
    expect(await log()).toBe('head ä\n[homing: 77 bytes of output are missing here (flood)]\ntail\n');
    expect(await log('?gaps=omit')).toBe('head ätail\n');
    expect(await log('?fromSeq=5')).toBe('tail\n');
    expect(await log('?tailBytes=3')).toBe('il\n');
    // From inside of a character: the next one is the first.
    expect(await log('?tailBytes=83&gaps=omit')).toBe('tail\n');
    const saved = await get(`/v1/commands/${id}/log?download=true`);
    expect(saved.headers.get('content-disposition')).toBe(`attachment; filename="${id}.log"`);
  });
});

describe('faults', () => {
  test('name the field, the limit with its unit and the value that was got', async () => {
    const id = await submit('http-faults');
    const said = async (answer: Promise<Response>) => {
      const { code, message, field } = (await (await answer).json()) as Json;
      return [code, field, message];
    };
    expect(await said(get(`/v1/commands/${id}?waitMs=60001`))).toEqual([
      'INVALID_PARAMS',
      'waitMs',
      'waitMs: must be at most 60000 ms, got 60001 ms',
    ]);
    expect(await said(get('/v1/conversations/http-faults/commands?limit=0'))).toContain(
      'limit: must be at least 1, got 0',
    );
    expect(await said(get(`/v1/commands/${id}/log?format=html`))).toContain(
      'format: must be "text" or "jsonl", got "html"',
    );
    expect(await said(post('/v1/commands', { argv: ['x'] }))).toContain('conversation: is missing');
    const secretive = { conversation: 'http-faults', argv: ['x'], env: { A: `tell nobody\0` } };
    const [, field, message] = await said(post('/v1/commands', secretive));
    expect([field, message]).toEqual(['env.A', 'env.A: must not contain a NUL character, got 12 characters']);
  });
});

describe('the description', () => {
  const description = async () => (await fetch(`${first.url}/openapi.json`)).json() as Promise<Json>;

  test('is valid OpenAPI 3.1', async () => {
    const document = await description();
    expect(document.openapi).toBe('3.1.0');
    const result = await new Validator().validate(document);
    expect(result.errors ?? []).toEqual([]);
    expect(result.valid).toBe(true);
    // The twin: the validator notices a fault.
    const broken = { ...document, paths: { '/x': { get: { responses: { 200: {} } } } } };
    expect((await new Validator().validate(broken)).valid).toBe(false);
  });

  test('names every route of the node, and no other', async () => {
    const app = fastify();
    const found: string[] = [];
    app.addHook('onRoute', ({ method, url }) => {
      for (const one of [method].flat()) if (one !== 'HEAD') found.push(`${one} ${url.replace(/:(\w+)/g, '{$1}')}`);
    });
    addHttpRoutes(app, { ports: {}, options: { version: 'test' } } as unknown as Node);
    const { paths } = await description();
    const described = Object.entries(paths).flatMap(([path, operations]) =>
      Object.keys(operations as object).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(found.sort()).toEqual(described.sort());
    expect(described).toHaveLength(Object.keys(httpRoutes).length);
  });

  test('is kept by the answers of the node', async () => {
    const id = await submit('http-shapes', { labels: { step: 'build' } });
    await using tab = await openTab(first.url, { token: ann, conversation: 'http-shapes' });
    const writer = await claim(id);
    await writer.print('x');
    await writer.lose(2, 5);
    await writer.end();
    await tab.ended(id);
    const json = async (path: string) => (await get(path)).json();
    snapshotShape.strict().parse(await json(`/v1/commands/${id}`));
    commandPageShape.parse(await json('/v1/conversations/http-shapes/commands'));
    expect(sessionPageShape.parse(await json('/v1/conversations/http-shapes/sessions')).sessions).toHaveLength(1);
    const lines = (await (await get(`/v1/commands/${id}/log?format=jsonl`)).text()).trim().split('\n');
    for (const line of lines) entryShape.parse(JSON.parse(line));
    expect(lines).toHaveLength(3);
  });

  test('errors that a route answers are among those it is said to answer', async () => {
    const documented = (route: HttpRoute) => route.errors;
    const cases: [HttpRoute, Promise<Response>][] = [
      [httpRoutes.getCommand, get(`/v1/commands/cmd_x_${randomBytes(4).toString('hex')}`)],
      [httpRoutes.submitCommand, post('/v1/commands', { conversation: 'c', argv: ['x'], pool: 'gpu' })],
      [httpRoutes.listCommands, get('/v1/conversations/c/commands?principal=bob')],
    ];
    for (const [route, answer] of cases) {
      const { code } = (await (await answer).json()) as Json;
      expect(documented(route)).toContain(code);
    }
  });
});
