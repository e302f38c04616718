/** Nothing of one tenant, principal or conversation is reachable with another's token, by any door. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectNothing, expectOnly } from '../support/expect-tab.js';
import { createStage, type Stage } from '../support/programs.js';
import { createTab, dial, type Tab } from '../support/tab.js';
import { makeToken, unsignedToken } from '../support/tokens.js';

describe('isolation', () => {
  let cluster: Cluster;
  let stage: Stage;
  /** Where each node writes down who did what. */
  let auditFolder: string;
  /** Signs tokens with a key of its own, beside the secret of the cluster. */
  let issuer: Awaited<ReturnType<typeof startIssuer>>;
  /** Ann's tab and a running command of hers. */
  let ann: Tab;
  let secretCommand: string;
  /** Someone else in the same conversation, and ann herself with a token for another conversation only. */
  let bob: Tab;
  let elsewhere: Tab;

  beforeAll(async () => {
    stage = await createStage();
    auditFolder = await mkdtemp(join(tmpdir(), 'homing-audit-'));
    issuer = await startIssuer();
    cluster = await startCluster({
      nodes: 2,
      workers: 1,
      nodeEnv: (index) => ({
        HOMING_AUDIT_FILE: join(auditFolder, `node-${index}.jsonl`),
        HOMING_JWKS_URL: issuer.url,
      }),
    });
    ann = await cluster.tab(0, { name: 'ann', conversation: 'shared' });
    bob = await cluster.tab(0, { name: 'bob', conversation: 'shared', sub: 'bob' });
    elsewhere = await cluster.tab(1, {
      name: 'elsewhere',
      conversation: 'other',
      token: cluster.token({ conversations: ['other', 'team-*'] }),
    });
    secretCommand = await ann.run(stage.gated('secret', 'the secret', 'the end'));
    await ann.shows(secretCommand, 'the secret');
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
    await issuer?.close();
    await rm(auditFolder, { recursive: true, force: true });
  });

  const flip = (id: string) => id.slice(0, -26) + [...id.slice(-26)].reverse().join('');

  it('[OW5] an origin that never existed, or is of another conversation, principal or tenant, is refused', async () => {
    const otherTenant = await cluster.tab(1, {
      conversation: 'shared',
      token: cluster.token({ tenant: 'acme' }),
    });
    const foreign: [string, string, string][] = [
      ['guessed', flip(ann.sessionId), 'shared'],
      ['of another principal', bob.sessionId, 'shared'],
      ['of another conversation', elsewhere.sessionId, 'shared'],
      ['of another tenant', otherTenant.sessionId, 'shared'],
      ['no id at all', 'ses_nonsense', 'shared'],
    ];
    for (const [what, originSessionId, conversation] of foreign) {
      const body = { conversation, originSessionId, argv: ['/bin/echo', 'x'] };
      const { status, json } = await cluster.http('POST', '/v1/commands', { body });
      expect([status, json.code], what).toEqual([422, 'ORIGIN_UNKNOWN']);
    }
    expectNothing(bob);
    expectNothing(elsewhere);
    expectNothing(otherTenant);
    // The door itself is open: her own session is taken.
    const body = { conversation: 'shared', originSessionId: ann.sessionId, argv: ['/bin/echo', 'x'] };
    const { status, json, headers } = await cluster.http('POST', '/v1/commands', { body });
    expect(status).toBe(202);
    expect(headers.get('location')).toBe(`/v1/commands/${json.commandId}`);
    await ann.ended(json.commandId);
    expectComplete(ann, json.commandId);
  });

  it('[SE2] a guessed session, a wrong resume token and another principal are all denied alike, and hear nothing', async () => {
    const attempt = async (
      what: string,
      given: { sessionId?: string; resumeToken?: string; token?: string; node?: number },
    ) => {
      const socket = await dial(cluster.node(given.node ?? 1).url, { token: given.token ?? cluster.token() });
      const heard: string[] = [];
      socket.ws.on('message', (data) => heard.push(data.toString()));
      const params = {
        sessionId: given.sessionId ?? ann.sessionId,
        resumeToken: given.resumeToken ?? ann.resumeToken,
        cursors: { [secretCommand]: 0 },
      };
      socket.ws.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.resume', params }));
      await expect.poll(() => heard.length, { message: what }).toBeGreaterThan(0);
      const answer = JSON.parse(heard[0] as string);
      // Nothing follows the refusal.
      socket.ws.terminate();
      await socket.closed;
      expect(heard, what).toHaveLength(1);
      expect(answer.result, what).toBeUndefined();
      return { code: answer.error.data.code, message: answer.error.message };
    };
    const guessed = await attempt('guessed id', { sessionId: flip(ann.sessionId) });
    expect(guessed.code).toBe('RESUME_DENIED');
    const wrongToken = randomBytes(16).toString('hex');
    for (const node of [0, 1]) {
      expect(await attempt(`wrong resume token at node ${node}`, { node, resumeToken: wrongToken })).toEqual(guessed);
    }
    expect(await attempt('nonsense id', { sessionId: 'ses_x' })).toEqual(guessed);
    expect(await attempt('another principal', { token: cluster.token({ sub: 'bob' }) })).toEqual(guessed);
    expect(await attempt('another tenant', { token: cluster.token({ tenant: 'acme' }) })).toEqual(guessed);
    const narrow = await attempt('a token that does not cover it', { token: cluster.token({ conversations: ['x'] }) });
    expect(['RESUME_DENIED', 'FORBIDDEN']).toContain(narrow.code);
    // And the true one was not disturbed by any of it.
    expect(ann.socket.ws.readyState).toBe(1);
  });

  it('[IS1] over the socket another principal and another conversation get the same answer as for a command that does not exist', async () => {
    const missing = flip(secretCommand);
    const doors: [string, object][] = [
      ['command.get', {}],
      ['command.log', { fromSeq: 0 }],
      ['command.kill', {}],
      ['command.write', { offset: 0, data: 'x' }],
      ['command.resize', { cols: 80, rows: 24 }],
      ['command.adopt', {}],
      ['command.attach', { fromSeq: 0 }],
    ];
    const answer = async (tab: Tab, method: string, commandId: string, more: object) => {
      const error = await tab.rpc(method, { commandId, ...more }).then(
        () => ({ code: 'ANSWERED', message: 'it was answered' }),
        (failure) => ({ code: failure.code, message: failure.message }),
      );
      return { code: error.code, message: error.message.replaceAll(commandId, '<id>') };
    };
    for (const [method, more] of doors) {
      for (const tab of [bob, elsewhere]) {
        const forMissing = await answer(tab, method, missing, more);
        expect(forMissing.code, `${method} of a missing command`).toBe('UNKNOWN_COMMAND');
        expect(await answer(tab, method, secretCommand, more), `${method} by ${tab.name}`).toEqual(forMissing);
      }
    }
    expectNothing(bob);
    expectNothing(elsewhere);
  });

  it('[IS1] over HTTP it is the same', async () => {
    const missing = flip(secretCommand);
    const doors: [string, string, object?][] = [
      ['GET', ''],
      ['GET', '/log?format=text'],
      ['GET', '/log?format=jsonl'],
      ['POST', '/kill', {}],
    ];
    const strangers = {
      bob: cluster.token({ sub: 'bob' }),
      'another tenant': cluster.token({ tenant: 'acme' }),
      'another conversation': cluster.token({ conversations: ['other'] }),
    };
    for (const [method, path, body] of doors) {
      for (const [who, token] of Object.entries(strangers)) {
        const ask = (id: string) => cluster.http(method, `/v1/commands/${id}${path}`, { token, body });
        const [forMissing, forSecret] = [await ask(missing), await ask(secretCommand)];
        expect([forSecret.status, forSecret.json?.code], `${method} ${path} by ${who}`).toEqual([
          404,
          'UNKNOWN_COMMAND',
        ]);
        expect(forSecret.raw.toString().replaceAll(secretCommand, '<id>')).toBe(
          forMissing.raw.toString().replaceAll(missing, '<id>'),
        );
      }
    }
  });

  it('[IS1] lists show only what is the caller’s own', async () => {
    const list = (path: string, token: string) => cluster.http('GET', `/v1/conversations/shared/${path}`, { token });
    const mine = await list('commands', cluster.token());
    expect(mine.json.commands.map((s: { commandId: string }) => s.commandId)).toContain(secretCommand);
    for (const token of [cluster.token({ sub: 'bob' }), cluster.token({ tenant: 'acme' })]) {
      expect((await list('commands', token)).json.commands).toEqual([]);
    }
    expect((await bob.rpc('command.list', {})).commands).toEqual([]);
    const sessions = (await list('sessions', cluster.token({ sub: 'bob' }))).json.sessions;
    expect(sessions.map((s: { sessionId: string }) => s.sessionId)).toEqual([bob.sessionId]);
    const refused = await list('commands', cluster.token({ conversations: ['other'] }));
    expect([refused.status, refused.json.code]).toEqual([403, 'FORBIDDEN']);
  });

  it('[IS1] two tenants with the same conversation and principal names are strangers', async () => {
    const twin = await cluster.tab(1, {
      name: 'twin',
      conversation: 'shared',
      token: cluster.token({ tenant: 'acme' }),
    });
    expect(twin.opened.commands).toEqual([]);
    const commandId = await twin.run({ argv: ['/bin/echo', 'from acme'] });
    await twin.ended(commandId);
    expectOnly(twin, [commandId]);
    expect(ann.entries(commandId)).toEqual([]);
    // Its close moves nothing across the border.
    const parked = await twin.run(stage.gated('acme', 'x', 'y'));
    await twin.close();
    expect((await cluster.http('GET', `/v1/commands/${parked}`)).status).toBe(404);
    expect(ann.entries(parked)).toEqual([]);
    stage.open('acme');
  });

  it('[IS1] a token that is missing, over, unsigned, signed by another or in the URL opens nothing', async () => {
    const bad: [string, string, string][] = [
      ['over', cluster.token({ ttlSeconds: -60 }), 'TOKEN_EXPIRED'],
      ['unsigned', unsignedToken({ sub: 'ann' }), 'UNAUTHENTICATED'],
      ['of another secret', makeToken(randomBytes(32).toString('hex'), { sub: 'ann' }), 'UNAUTHENTICATED'],
      ['nonsense', 'nonsense', 'UNAUTHENTICATED'],
    ];
    for (const [what, token, code] of bad) {
      const { status, json } = await cluster.http('GET', `/v1/commands/${secretCommand}`, { token });
      expect([status, json.code], what).toEqual([401, code]);
      await expect(dial(cluster.node(0).url, { token }), what).rejects.toMatchObject({ status: 401 });
    }
    const url = `${cluster.node(0).url}/v1/commands/${secretCommand}?token=${cluster.token()}&access_token=${cluster.token()}`;
    expect((await fetch(url)).status).toBe(401);
  });

  it('[IS1] a token of an issuer whose public keys the nodes fetch opens what it says, and one of a stranger nothing', async () => {
    const token = await issuer.token({ sub: 'ann', scope: 'read run', conversations: ['shared'] });
    expect((await cluster.http('GET', `/v1/commands/${secretCommand}`, { token })).status).toBe(200);
    await using tab = createTab({ token, conversation: 'shared' });
    await tab.open(cluster.node(1).url);
    await expect(tab.rpc('command.kill', { commandId: secretCommand })).rejects.toMatchObject({ code: 'FORBIDDEN' });
    await tab.close();
    const stranger = await startIssuer();
    const forged = await stranger.token({ sub: 'ann', scope: 'read run' });
    await stranger.close();
    expect((await cluster.http('GET', `/v1/commands/${secretCommand}`, { token: forged })).json.code).toBe(
      'UNAUTHENTICATED',
    );
  });

  it('[IS1] scopes and conversations of a token are kept at every door', async () => {
    const reader = createTab({ token: cluster.token({ scope: 'read' }), conversation: 'shared' });
    await using _reader = reader;
    await reader.open(cluster.node(0).url);
    await expect(reader.run({ argv: ['/bin/true'] })).rejects.toMatchObject({ code: 'FORBIDDEN' });
    await expect(reader.rpc('command.kill', { commandId: secretCommand })).rejects.toMatchObject({ code: 'FORBIDDEN' });
    await reader.close();
    const token = cluster.token({ scope: 'read' });
    const body = { conversation: 'shared', argv: ['/bin/true'] };
    expect((await cluster.http('POST', '/v1/commands', { token, body })).json.code).toBe('FORBIDDEN');
    expect((await cluster.http('POST', `/v1/commands/${secretCommand}/kill`, { token, body: {} })).json.code).toBe(
      'FORBIDDEN',
    );
    const narrow = cluster.token({ conversations: ['other', 'team-*'] });
    await using outside = createTab({ token: narrow, conversation: 'shared' });
    await expect(outside.open(cluster.node(0).url)).rejects.toMatchObject({ code: 'FORBIDDEN' });
    await using inside = createTab({ token: narrow, conversation: 'team-blue' });
    await inside.open(cluster.node(0).url);
    await using otherPool = createTab({ token: cluster.token(), conversation: 'team-blue' });
    await otherPool.open(cluster.node(0).url);
    await expect(otherPool.run({ argv: ['/bin/true'], pool: 'gpu' })).rejects.toMatchObject({ code: 'POOL_UNKNOWN' });
  });

  it('[OW5] only a delegate may name a session of somebody else, and the command is that principal’s', async () => {
    const backend = cluster.token({ sub: 'backend', scope: 'read run delegate' });
    const plain = cluster.token({ sub: 'backend', scope: 'read run' });
    const body = { conversation: 'shared', originSessionId: ann.sessionId, argv: ['/bin/echo', 'for ann'] };
    expect((await cluster.http('POST', '/v1/commands', { token: plain, body })).json.code).toBe('ORIGIN_UNKNOWN');
    const { status, json } = await cluster.http('POST', '/v1/commands', { token: backend, body });
    expect(status).toBe(202);
    await ann.ended(json.commandId);
    expectComplete(ann, json.commandId);
    expectNothing(bob);
  });

  it('[IS1] a page of another site is refused before the upgrade, and so is one without Origin and without a token', async () => {
    const { url } = cluster.node(0);
    await expect(dial(url, { origin: 'https://evil.example', token: cluster.token() })).rejects.toMatchObject({
      status: 403,
    });
    await expect(dial(url)).rejects.toMatchObject({ status: 401 });
    const same = await dial(url, { origin: url.replace(/\/$/, '') });
    same.ws.terminate();
    await same.closed;
  });

  it('[IS2] after all these attempts ann got her command whole, and nobody else a single entry of it', async () => {
    stage.open('secret');
    await ann.ended(secretCommand);
    expectComplete(ann, secretCommand);
    expectNothing(bob);
    expectNothing(elsewhere);
    for (const node of [0, 1]) expect(await cluster.metric(node, 'homing_misdelivered_total')).toBe(0);
  });

  it('[IS4] each node wrote down who did what and how it ended, for its operators alone, and no secret', async () => {
    const files = [0, 1].map((index) => join(auditFolder, `node-${index}.jsonl`));
    for (const file of files) expect((await stat(file)).mode & 0o777).toBe(0o600);
    const text = (await Promise.all(files.map((file) => readFile(file, 'utf8')))).join('');
    const lines = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    for (const line of lines)
      expect(line).toMatchObject({
        time: expect.any(String),
        nodeId: expect.stringMatching(/^node_/),
        what: expect.any(String),
        result: expect.any(String),
      });
    const said = new Set(lines.map(({ what, principal = '-', result }) => `${what} ${principal} ${result}`));
    for (const act of [
      'attach ann ok',
      'submit ann ok',
      'kill bob UNKNOWN_COMMAND',
      'submit ann ORIGIN_UNKNOWN',
      'attach bob RESUME_DENIED',
      'submit backend ok',
    ]) {
      expect([...said]).toContain(act);
    }
    expect(
      lines.find(({ what, principal, result }) => what === 'submit' && principal === 'backend' && result === 'ok'),
    ).toMatchObject({ for: 'ann' });
    for (const hidden of [ann.resumeToken, cluster.token(), 'the secret']) expect(text).not.toContain(hidden);
  });
});

/** Publishes one key, and signs with it. */
async function startIssuer() {
  const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true });
  const key = { ...(await exportJWK(publicKey)), alg: 'ES256', use: 'sig', kid: 'one' };
  const server = createServer((_request, response) => response.end(JSON.stringify({ keys: [key] }))).listen(
    0,
    '127.0.0.1',
  );
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys`,
    token: (claims: Record<string, unknown>) =>
      new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: 'one' }).setExpirationTime('1h').sign(privateKey),
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}
