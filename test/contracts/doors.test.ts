/** The doors of a node: who is counted, who is held back, what every answer carries, and what is noted of each act. */
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateKeyPair, SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AuditLine } from '../../src/domain/audit.js';
import type { RateLimits } from '../../src/domain/rates.js';
import { countedAs } from '../../src/gateway/addresses.js';
import type { GatewayOptions } from '../../src/gateway/options.js';
import { openAudit } from '../../src/ops/audit.js';
import { createRates } from '../../src/redis/rates.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores, silentLog } from '../support/stores.js';
import { createTab, dial, type Json, openTab } from '../support/tab.js';
import { makeToken } from '../support/tokens.js';
import { until, within } from '../support/wait.js';

const secret = 'a secret of at least 32 characters';
const tokenOf = (sub: string, more: object = {}) => makeToken(secret, { sub, ...more });
const ann = tokenOf('ann');

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

async function node(limits: RateLimits = {}, over: Partial<GatewayOptions> = {}) {
  const lines: AuditLine[] = [];
  const started = await startTestNode({ redis, stores, secret }, over, {
    rates: createRates({ ...stores, limits }),
    audit: { note: (line) => void lines.push(line) },
  });
  return Object.assign(started, { lines, [Symbol.asyncDispose]: () => started.close() });
}

const ask = (at: TestNode, method: string, path: string, token: string | undefined, body?: object, headers = {}) =>
  fetch(at.url + path, {
    method,
    headers: {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
const refusal = async (answer: Response) => ({ status: answer.status, ...((await answer.json()) as Json) });
const run = (at: TestNode, token = ann) =>
  ask(at, 'POST', '/v1/commands', token, { conversation: 'doors', argv: ['true'] });

describe('rates', () => {
  test('runs of a principal and of a tenant are limited over all nodes, by either door, and told when to come back', async () => {
    const limits = { runs: 3, tenantRuns: 5 };
    await using one = await node(limits);
    await using two = await node(limits);
    await using tab = await openTab(two.url, { token: ann, conversation: 'doors' });
    // A window begins with its first command; three fit, by whatever door and node.
    for (const at of [one, two]) expect((await run(at)).status).toBe(202);
    await tab.run({ argv: ['true'] });
    const refused = await refusal(await run(one));
    expect(refused).toMatchObject({ status: 429, code: 'RATE_LIMITED', retryable: true });
    expect(refused.message).toContain('at most 3 commands submitted a second by one principal');
    expect(refused.retryAfterMs).toBeGreaterThan(0);
    expect(refused.retryAfterMs).toBeLessThanOrEqual(1_000);
    await expect(tab.rpc('command.run', { argv: ['true'] })).rejects.toMatchObject({ code: 'RATE_LIMITED' });
    // Others of the tenant are not held up by one, until the tenant's own limit.
    for (const sub of ['bob', 'bob']) expect((await run(two, tokenOf(sub))).status).toBe(202);
    expect((await refusal(await run(two, tokenOf('eve')))).message).toContain('by one tenant');
    expect((await run(two, tokenOf('eve', { tenant: 'acme' }))).status).toBe(202);
  });

  test('writes and kills too, each by itself', async () => {
    await using at = await node({ writes: 1, kills: 1 });
    const { commandId } = (await (await run(at)).json()) as Json;
    const write = () => ask(at, 'POST', `/v1/commands/${commandId}/stdin`, ann, { offset: 0, data: 'x' });
    const kill = () => ask(at, 'POST', `/v1/commands/${commandId}/kill`, ann, {});
    expect((await refusal(await write())).code).toBe('STDIN_CLOSED');
    expect(await refusal(await write())).toMatchObject({ status: 429, code: 'RATE_LIMITED' });
    expect((await kill()).status).toBe(200);
    const refused = await kill();
    expect(refused.headers.get('retry-after')).toBe('1');
    expect((await refusal(refused)).code).toBe('RATE_LIMITED');
  });

  test('[IS3] go on at each node by itself while Redis does not answer', async () => {
    await using own = await startRedis();
    const at = await createStores(own.url);
    const rates = createRates({ ...at, limits: { runs: 2 } });
    expect(await rates.take('runs', 'ann')).toBe(0);
    await own.stop();
    const waits = [await rates.take('runs', 'ann'), await rates.take('runs', 'ann'), await rates.take('runs', 'ann')];
    expect(waits.filter((ms) => ms === 0)).toHaveLength(2);
    expect(Math.max(...waits)).toBeLessThanOrEqual(1_000);
    expect(await rates.take('runs', 'bob')).toBe(0);
    // What has no limit is not counted.
    expect(await rates.take('kills', 'ann')).toBe(0);
    await at[Symbol.asyncDispose]();
  });
});

describe('attempts', () => {
  test('[IS3] failures from one address are told to wait over all nodes, and what is valid is never held up', async () => {
    const limits = { addressFailures: 4, tokenFailures: 3 };
    await using one = await node(limits);
    await using two = await node(limits);
    const get = (at: TestNode, token: string | undefined) => ask(at, 'GET', '/v1/commands/cmd_x', token);
    // The same token again and again: its own limit comes first.
    for (const at of [one, two, one]) expect((await refusal(await get(at, 'nonsense'))).code).toBe('UNAUTHENTICATED');
    expect(await refusal(await get(two, 'nonsense'))).toMatchObject({
      status: 429,
      code: 'RATE_LIMITED',
      retryable: true,
    });
    // Four failures: from now on no failure says what kind it was.
    for (const token of [undefined, tokenOf('ann', { ttlSeconds: -60 }), 'guess']) {
      expect((await refusal(await get(two, token))).code, String(token)).toBe('RATE_LIMITED');
    }
    await expect(dial(two.url, { token: 'guess' })).rejects.toMatchObject({ status: 429 });
    expect((await refusal(await get(one, ann))).code).toBe('UNKNOWN_COMMAND');
    await using tab = await openTab(one.url, { token: ann, conversation: 'doors' });
    const guess = createTab({ token: ann, session: { sessionId: tab.sessionId, resumeToken: 'guess' } });
    await expect(guess.resume(one.url)).rejects.toMatchObject({ code: 'RATE_LIMITED' });
    await guess[Symbol.asyncDispose]();
    expect(one.count('homing_attempts_failed_total')).toBe(3);
  });

  test('[IS3] behind a trusted proxy each address is counted by itself; nobody else may name one', async () => {
    await using trusting = await node({ addressFailures: 2 }, { trustedProxies: ['loopback'] });
    await using wary = await node({ addressFailures: 2 });
    const from = async (at: TestNode, address: string) =>
      (await refusal(await ask(at, 'GET', '/v1/commands/x', 'guess', undefined, { 'x-forwarded-for': address }))).code;
    expect([await from(trusting, '192.0.2.1'), await from(trusting, '192.0.2.1')]).toEqual(
      Array(2).fill('UNAUTHENTICATED'),
    );
    expect(await from(trusting, '192.0.2.1')).toBe('RATE_LIMITED');
    expect(await from(trusting, '192.0.2.2')).toBe('UNAUTHENTICATED');
    // What the client itself put before the proxy's own word is not believed.
    expect(await from(trusting, '192.0.2.9, 192.0.2.1')).toBe('RATE_LIMITED');
    await from(wary, '192.0.2.3');
    await from(wary, '192.0.2.4');
    expect(await from(wary, '192.0.2.5')).toBe('RATE_LIMITED');
  });

  test('an IPv6 network counts as one address', () => {
    expect(countedAs('2001:db8:1:2:3:4:5:6')).toBe(countedAs('2001:db8:1:2::9'));
    expect(countedAs('2001:db8:1:2::9')).not.toBe(countedAs('2001:db8:1:3::9'));
    expect(countedAs('::ffff:192.0.2.1')).toBe('192.0.2.1');
    expect(countedAs('::1')).toBe('0:0:0:0::/64');
    expect(countedAs(undefined)).toBe('unknown');
  });
});

describe('public keys', () => {
  test('[IS1] that can not be had let nobody in, and say by every door to come back', async () => {
    const issuer = createServer((_request, response) => response.destroy()).listen(0, '127.0.0.1');
    await once(issuer, 'listening');
    const { port } = issuer.address() as AddressInfo;
    await using at = await node({}, { jwtSecrets: [], jwksUrl: `http://127.0.0.1:${port}/keys` });
    const { privateKey } = await generateKeyPair('ES256');
    const token = await new SignJWT({ sub: 'ann' })
      .setProtectedHeader({ alg: 'ES256' })
      .setExpirationTime('1m')
      .sign(privateKey);
    const answer = await ask(at, 'GET', '/v1/commands/x', token);
    expect([answer.headers.get('retry-after'), await refusal(answer)]).toMatchObject([
      '2',
      { status: 503, code: 'KEYS_UNAVAILABLE', retryable: true },
    ]);
    expect(await refusal(await ask(at, 'GET', '/v1/commands/x', undefined))).toMatchObject({ code: 'UNAUTHENTICATED' });
    await expect(dial(at.url, { token })).rejects.toMatchObject({ status: 503 });
    // One that is not of its kind is refused all the same.
    expect((await refusal(await ask(at, 'GET', '/v1/commands/x', ann))).code).toBe('UNAUTHENTICATED');
    issuer.close();
  });
});

describe('connections', () => {
  test('of an address, a principal and a tenant are limited at a node, and a place is free when one goes', async () => {
    const maxConnections = { perAddress: 4, perPrincipal: 2, perTenant: 3 };
    await using at = await node({}, { maxConnections });
    const tabs = [await openTab(at.url, { token: ann }), await openTab(at.url, { token: ann })];
    const third = createTab({ token: ann });
    await expect(third.open(at.url)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED', data: { retryAfterMs: 5_000 } });
    await third[Symbol.asyncDispose]();
    tabs.push(await openTab(at.url, { token: tokenOf('bob') }));
    const eve = createTab({ token: tokenOf('eve') });
    await expect(eve.open(at.url)).rejects.toThrow('one tenant');
    await eve[Symbol.asyncDispose]();
    tabs.push(await openTab(at.url, { token: tokenOf('eve', { tenant: 'acme' }) }));
    await expect(dial(at.url, { token: ann })).rejects.toMatchObject({ status: 429 });
    await tabs[0]?.[Symbol.asyncDispose]();
    await until('a free place', async () => {
      const next = await dial(at.url, { token: ann }).catch(() => undefined);
      next?.ws.terminate();
      await next?.closed;
      return next !== undefined;
    });
    for (const tab of tabs) await tab[Symbol.asyncDispose]();
  });

  test('those without a session are bounded, and hold up nobody who has one', async () => {
    await using at = await node({}, { maxConnections: { unopened: 200 } });
    await using tab = await openTab(at.url, { token: ann, conversation: 'doors' });
    const origin = 'https://app.example';
    const idle = await Promise.all(Array.from({ length: 200 }, () => dial(at.url, { origin })));
    await expect(dial(at.url, { origin })).rejects.toMatchObject({ status: 429 });
    expect(await tab.rpc('session.touch')).toEqual({});
    for (const { ws } of idle) ws.terminate();
    await Promise.all(idle.map(({ closed }) => closed));
    const late = await dial(at.url, { origin });
    late.ws.terminate();
    await late.closed;
  });

  test('who sends its upgrade byte by byte, nothing at all, or without end, is cut off in time', async () => {
    await using at = await node({}, { headersWithinMs: 500 });
    const { hostname, port } = new URL(at.url);
    const opened = performance.now();
    const slow = (send: (socket: Socket) => void) =>
      new Promise<number>((resolve) => {
        const socket = connect(Number(port), hostname);
        socket.on('connect', () => send(socket));
        socket.on('error', () => undefined);
        socket.resume();
        socket.on('close', () => resolve(performance.now() - opened));
      });
    const upgrade = `GET /v1/ws HTTP/1.1\r\nHost: ${hostname}:${port}\r\nUpgrade: websocket\r\nX-Slow: ${'x'.repeat(500)}`;
    const drips = slow((socket) => {
      let i = 0;
      const timer = setInterval(() => socket.write(upgrade[i++] ?? 'x'), 50);
      socket.on('close', () => clearInterval(timer));
    });
    const silent = slow(() => undefined);
    const tooLong = slow((socket) => socket.write(`GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`));
    expect(await tooLong).toBeLessThan(2_000);
    await within('the cuts', Promise.all([drips, silent]), 3_000);
  });
});

describe('answers', () => {
  test('[IS1] every one, of both listeners, carries its headers, and none a cookie', async () => {
    await using at = await node({}, { adminToken: 'an-admin-token-of-enough-characters' });
    const paths = [
      [
        at.url,
        '/',
        '/openapi.json',
        '/v1/commands/x',
        '/v1/nothing',
        '/v1/conversations/doors/commands',
        '/%00',
        '/v1/ws',
      ],
      [at.opsUrl, '/livez', '/readyz', '/metrics', '/admin', '/nothing'],
    ] as const;
    let seen = 0;
    for (const [base, ...each] of paths) {
      for (const path of each) {
        const { headers } = await fetch(base + path);
        seen += 1;
        expect(headers.get('content-security-policy'), path).toContain("default-src 'none'");
        expect(headers.get('content-security-policy'), path).toContain("frame-ancestors 'none'");
        expect(headers.get('x-content-type-options'), path).toBe('nosniff');
        expect(headers.get('x-frame-options'), path).toBe('DENY');
        expect(headers.get('referrer-policy'), path).toBe(path === '/admin' ? 'same-origin' : 'no-referrer');
        expect(headers.get('cross-origin-resource-policy'), path).toBe('same-origin');
        expect(headers.get('cache-control'), path).toBe('no-store');
        expect(headers.get('set-cookie'), path).toBeNull();
        expect(headers.get('access-control-allow-origin'), path).toBeNull();
        expect(headers.get('server') ?? headers.get('x-powered-by'), path).toBeNull();
      }
    }
    expect(seen).toBe(12);
  });

  test('[IS1] a name that was made to point at loopback is refused by both listeners, for sockets too', async () => {
    await using at = await node();
    const status = (base: string, headers: Record<string, string>) =>
      new Promise<number | undefined>((resolve, reject) => {
        const asked = request(`${base}/v1/ws`, { headers });
        asked
          .on('response', (response) => resolve(response.resume().statusCode))
          .on('error', reject)
          .end();
      });
    for (const base of [at.url, at.opsUrl]) expect(await status(base, { host: 'evil.example' })).toBe(403);
    const upgrade = {
      connection: 'Upgrade',
      upgrade: 'websocket',
      'sec-websocket-version': '13',
      'sec-websocket-key': 'MDEyMzQ1Njc4OWFiY2RlZg==',
    };
    expect(await status(at.url, { ...upgrade, host: 'evil.example', authorization: `Bearer ${ann}` })).toBe(403);
  });

  test('[IS1] neither address is listened on beyond loopback without a token of its own', async () => {
    await expect(node({}, { jwtSecrets: [], host: '0.0.0.0' })).rejects.toThrow('HOMING_JWT_SECRET');
    await expect(node({}, { opsHost: '0.0.0.0' })).rejects.toThrow('HOMING_ADMIN_TOKEN');
    await using public_ = await node(
      {},
      { host: '0.0.0.0', opsHost: '0.0.0.0', metricsToken: 'a-metrics-token-of-16' },
    );
    expect(public_.url).toContain('0.0.0.0');
  });

  test('a body or a header beyond its limit is refused', async () => {
    await using at = await node();
    const large = await ask(at, 'POST', '/v1/commands', ann, {
      conversation: 'doors',
      script: 'x'.repeat(1024 * 1024),
    });
    expect(await refusal(large)).toMatchObject({ status: 413, code: 'INVALID_PARAMS' });
    expect((await ask(at, 'GET', '/v1/commands/x', ann, undefined, { 'x-long': 'x'.repeat(17_000) })).status).toBe(431);
  });
});

describe('HTTP input to a command', () => {
  test('stdin and resize say why they are refused, and SECRETS_UNAVAILABLE where nothing could seal them', async () => {
    await using at = await node();
    const submit = async (spec: object) => {
      const answer = await ask(at, 'POST', '/v1/commands', ann, { conversation: 'doors', argv: ['cat'], ...spec });
      return { status: answer.status, json: (await answer.json()) as Json };
    };
    const post = async (id: string, what: string, body: object, token = ann) => {
      const answer = await ask(at, 'POST', `/v1/commands/${id}/${what}`, token, body);
      const json = (await answer.json()) as Json;
      return answer.status === 200 ? json : [answer.status, json.code];
    };
    expect(await submit({ secrets: { KEY: 'secret value' } })).toMatchObject({
      status: 422,
      json: { code: 'SECRETS_UNAVAILABLE', field: 'secrets', retryable: false },
    });
    const { commandId: piped } = (await submit({ stdin: 'pipe' })).json;
    expect(await post(piped, 'stdin', { offset: 0, data: 'héllo' })).toEqual({ nextOffset: 6 });
    // A repeat of the same bytes is dropped, a hole is refused, and so is more than may wait.
    expect(await post(piped, 'stdin', { offset: 0, data: 'héllo' })).toEqual({ nextOffset: 6 });
    expect(await post(piped, 'stdin', { offset: 9, data: 'x' })).toEqual([400, 'INVALID_PARAMS']);
    expect(await post(piped, 'stdin', { offset: 6, data: 'x', base64: 'eA==' })).toEqual([400, 'INVALID_PARAMS']);
    for (const [i, offset] of [6, 6 + 600_000].entries()) {
      const answer = await post(piped, 'stdin', { offset, data: 'x'.repeat(600_000) });
      expect(answer).toEqual(i === 0 ? { nextOffset: 6 + 600_000 } : [429, 'STDIN_FULL']);
    }
    expect(await post(piped, 'stdin', { offset: 600_006, eof: true })).toEqual({ nextOffset: 600_006 });
    expect(await post(piped, 'stdin', { offset: 600_006, data: 'late' })).toEqual([409, 'STDIN_CLOSED']);
    expect(await post(piped, 'resize', { cols: 80, rows: 24 })).toEqual([400, 'INVALID_PARAMS']);
    const { commandId: terminal } = (await submit({ pty: { cols: 80, rows: 24 } })).json;
    expect(await post(terminal, 'resize', { cols: 120, rows: 40 })).toEqual({});
    expect(await post(terminal, 'resize', { cols: 0, rows: 40 })).toEqual([400, 'INVALID_PARAMS']);
    // While its owner is connected nobody else of the principal types, but a delegate may.
    await using tab = await openTab(at.url, { token: ann, conversation: 'doors' });
    const owned = await tab.run({ argv: ['cat'], stdin: 'pipe', pty: { cols: 80, rows: 24 } });
    const delegate = tokenOf('backend', { scope: 'run delegate', conversations: ['doors'] });
    for (const [what, body] of [
      ['stdin', { offset: 0, data: 'x' }],
      ['resize', { cols: 9, rows: 9 }],
    ] as const) {
      expect(await post(owned, what, body)).toEqual([409, 'NOT_OWNER']);
      expect(await post(owned, what, body, tokenOf('bob'))).toEqual([404, 'UNKNOWN_COMMAND']);
      expect(await post(owned, what, body, tokenOf('ann', { scope: 'read' }))).toEqual([403, 'FORBIDDEN']);
      expect(await post(owned, what, body, delegate)).toEqual(what === 'stdin' ? { nextOffset: 1 } : {});
    }
    await ask(at, 'POST', `/v1/commands/${owned}/kill`, ann, {});
    expect(await post(owned, 'stdin', { offset: 1, data: 'x' }, delegate)).toEqual([409, 'COMMAND_ENDED']);
    expect(await post(owned, 'resize', { cols: 9, rows: 9 }, delegate)).toEqual([409, 'COMMAND_ENDED']);
  });
});

describe('the audit', () => {
  test('[IS4] has one line for each act, by either door, with who, what and how it ended, and no secret', async () => {
    const adminToken = 'an-admin-token-of-enough-characters';
    await using at = await node({}, { adminToken });
    const hidden = ['hidden-env', 'hidden-stdin', 'hidden-arg', ann, adminToken];
    const tab = await openTab(at.url, { token: ann, conversation: 'audit' });
    const id = await tab.run({ argv: ['cat', 'hidden-arg'], stdin: 'pipe', env: { A: 'hidden-env' } });
    await tab.rpc('command.write', { commandId: id, offset: 0, data: 'hidden-stdin' });
    await tab.rpc('command.attach', { commandId: id });
    await tab.rpc('command.get', { commandId: id });
    const backend = tokenOf('backend', { scope: 'read run kill delegate', conversations: ['audit'] });
    await ask(at, 'GET', `/v1/commands/${id}`, backend);
    await ask(at, 'POST', `/v1/commands/${id}/kill`, tokenOf('bob'), {});
    await ask(at, 'POST', `/v1/commands/${id}/kill`, backend, {});
    await ask(at, 'POST', '/v1/commands', backend, { conversation: 'audit', principal: 'ann', argv: ['true'] });
    await ask(at, 'POST', '/v1/commands', 'nonsense', { conversation: 'audit', argv: ['true'] });
    await tab.rpc('command.adopt', { commandId: id });
    const other = await tab.run({ argv: ['cat'], pty: { cols: 80, rows: 24 } });
    await tab.rpc('command.resize', { commandId: other, cols: 9, rows: 9 });
    await tab.rpc('command.kill', { commandId: other });
    await tab.rpc('session.refresh', { token: ann });
    await tab.drop();
    await tab.resume(at.url);
    await tab.close();
    for (const token of [adminToken, 'wrong']) {
      const headers = { authorization: `Bearer ${token}` };
      await fetch(`${at.opsUrl}/admin/nodes/node_x/drain`, { method: 'POST', headers });
    }
    const said = at.lines.map(({ what, principal, for: whose, result }) =>
      [what, principal ?? '-', ...(whose === undefined ? [] : [`for ${whose}`]), result].join(' '),
    );
    expect(said).toEqual([
      'attach ann ok',
      'submit ann ok',
      'stdin ann ok',
      'view ann ok',
      'read backend for ann ok',
      'kill bob UNKNOWN_COMMAND',
      'kill backend for ann ok',
      'submit backend for ann ok',
      'submit - UNAUTHENTICATED',
      'adopt ann ok',
      'submit ann ok',
      'resize ann ok',
      'kill ann ok',
      'refresh ann ok',
      'attach ann ok',
      'close ann ok',
      'drain admin 404',
      'drain - UNAUTHENTICATED',
    ]);
    const [attach, submitted] = at.lines;
    expect(attach).toMatchObject({
      sessionId: tab.sessionId,
      conversation: 'audit',
      tenant: 'default',
      address: '127.0.0.1',
    });
    expect(submitted).toMatchObject({ commandId: id, sessionId: tab.sessionId });
    expect(at.lines.findLast(({ what, result }) => what === 'submit' && result === 'ok')?.commandId).toMatch(/^cmd_/);
    for (const text of hidden) expect(JSON.stringify(at.lines)).not.toContain(text);
  });
});

describe('the audit log', () => {
  test('[IS4] is a file for its owner alone that is added to, or stdout; one that can not be written stops nobody', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'homing-audit-'));
    const told: unknown[] = [];
    const log = { ...silentLog, error: (fields: object) => void told.push(fields) };
    const file = join(folder, 'audit.jsonl');
    for (const result of ['ok', 'FORBIDDEN']) {
      const audit = openAudit(file, { nodeId: 'node_x' }, log, () => 0);
      audit.note({ what: 'kill', principal: 'ann', commandId: undefined, result });
      audit.close();
      // After the end nothing is written any more.
      audit.note({ what: 'late', result });
    }
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect((await readFile(file, 'utf8')).split('\n')).toEqual([
      '{"time":"1970-01-01T00:00:00.000Z","nodeId":"node_x","what":"kill","principal":"ann","result":"ok"}',
      '{"time":"1970-01-01T00:00:00.000Z","nodeId":"node_x","what":"kill","principal":"ann","result":"FORBIDDEN"}',
      '',
    ]);
    expect(() => openAudit(join(folder, 'none', 'x'), {}, log, Date.now)).toThrow('ENOENT');
    const full = openAudit('/dev/full', {}, log, () => 0);
    for (let i = 0; i < 3; i += 1) full.note({ what: 'submit', result: 'ok' });
    full.close();
    expect(told).toHaveLength(1);
    await rm(folder, { recursive: true });
  });
});
