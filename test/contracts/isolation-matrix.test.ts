/**
 * Every method and every route, asked by everybody who should not: the exact answer, that nothing of ann's is in it, and that a thing
 * one may not see answers like a thing that does not exist. The rows are checked against the protocol's own tables: a new method
 * without a row does not compile, and fails here.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type HttpRouteName, httpRoutes } from '../../src/protocol/http.js';
import {
  type CommandId,
  makeAttachmentId,
  makeClaimId,
  makeNodeId,
  makeWorkerId,
  type SessionId,
} from '../../src/protocol/ids.js';
import { type MethodName, methods } from '../../src/protocol/methods.js';
import { CALLERS, type Caller, METHOD_ROWS, matrixText, ROUTE_ROWS } from '../support/matrix.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, keysLike, outputEntry, type Stores } from '../support/stores.js';
import { createTab, dial, type Json, RpcFailure, type Tab } from '../support/tab.js';
import { makeToken, unsignedToken } from '../support/tokens.js';
import { within } from '../support/wait.js';

const secret = 'a secret of at least 32 characters';
const DOCUMENT = new URL('../../docs/security.md', import.meta.url);
const BLOCK = /(<!-- matrix -->\n)[\s\S]*?(\n<!-- \/matrix -->)/;

const all = { sub: 'ann', scope: 'read run kill' };
const TOKENS = {
  'no token': undefined,
  expired: makeToken(secret, { ...all, ttlSeconds: -60 }),
  forged: makeToken('another secret of 32 characters!', all),
  unsigned: unsignedToken(all),
  tenant: makeToken(secret, { ...all, tenant: 'acme' }),
  principal: makeToken(secret, { ...all, sub: 'bob' }),
  conversation: makeToken(secret, { ...all, conversations: ['other'] }),
  reader: makeToken(secret, { ...all, scope: 'read' }),
  delegate: makeToken(secret, { ...all, sub: 'backend', scope: 'read run kill delegate', conversations: ['other'] }),
  closed: makeToken(secret, all),
  stale: makeToken(secret, all),
  ann: makeToken(secret, all),
} as const;
const CALLER_NAMES = Object.keys(CALLERS) as Caller[];
/** Where their own sessions are; the others may be in ann's conversation. */
const homeOf = (caller: Caller) => (caller === 'conversation' || caller === 'delegate' ? 'other' : 'matrix');

let redis: TestRedis;
let stores: Stores;
let node: TestNode;
let ann: Tab;
/** What ann has: a running command with stdin and terminal, which started another one. */
let target: string;
let insideTokens: { readonly stranger: string; readonly child: string };
/** Sessions of those who have one of their own. */
const tabs = new Map<Caller, Tab>();
let compared = 0;

const tokenOf = (caller: Caller): string | undefined =>
  caller === 'stranger' || caller === 'child' ? insideTokens[caller] : TOKENS[caller];
const flip = (id: string) => id.slice(0, -26) + [...id.slice(-26)].reverse().join('');

/** Runs a command by hand as a worker would, with a token of its own. */
async function start(commandId: string): Promise<string> {
  const token = `${commandId}.${randomBytes(16).toString('base64url')}`;
  const hash = createHash('sha256').update(token).digest('hex');
  const [claimId, workerId] = [makeClaimId(randomBytes(16)), makeWorkerId(randomBytes(16))];
  const claimed = await stores.commands.claim(commandId as CommandId, claimId, workerId, 'group', hash);
  if (claimed.type !== 'claimed') throw new Error(`not claimed: ${claimed.state}`);
  const id = commandId as CommandId;
  const { ownerSessionId } = claimed;
  await stores.commands.append({ commandId: id, claimId, ownerSessionId, entries: [outputEntry(id, 1, 'hers', 0)] });
  return token;
}

const spec = { argv: ['hers'], stdin: 'pipe', pty: { cols: 80, rows: 24 } };

async function newTab(caller: Caller, conversation = homeOf(caller)): Promise<Tab> {
  const tab = createTab({ token: tokenOf(caller) ?? '', conversation, name: caller });
  await tab.open(node.url);
  return tab;
}

beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
  node = await startTestNode({ redis, stores, secret });
  ann = await newTab('ann');
  target = await ann.run(spec);
  const parentToken = await start(target);
  const started = await fetch(`${node.url}/v1/commands`, {
    method: 'POST',
    headers: { authorization: `Bearer ${parentToken}`, 'content-type': 'application/json' },
    body: JSON.stringify({ argv: ['child'] }),
  });
  const child = await start(((await started.json()) as Json).commandId);
  const stranger = await start(await ann.run({ argv: ['stranger'] }));
  insideTokens = { child, stranger };
  for (const caller of CALLER_NAMES) {
    const hasNone = ['no token', 'expired', 'forged', 'unsigned', 'stranger', 'child', 'closed', 'stale', 'ann'];
    if (!hasNone.includes(caller)) tabs.set(caller, await newTab(caller));
  }
});
afterAll(async () => {
  for (const tab of [ann, ...tabs.values()]) await tab?.[Symbol.asyncDispose]();
  await node?.close();
  await stores?.[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
});

/** An answer as the matrix tells it, and as it was, without ids and times. */
interface Told {
  readonly answer: string;
  readonly raw: string;
}

const isHers = (text: string, id: string) =>
  text.includes(id) || text.includes('"hers"') || text.includes(ann.sessionId);

async function toldBy(asked: Promise<Json>, id: string): Promise<Told> {
  try {
    const text = JSON.stringify(await asked);
    return { answer: isHers(text, id) ? 'sees' : 'ok', raw: text };
  } catch (error) {
    if (error instanceof RpcFailure) {
      return { answer: error.code, raw: JSON.stringify([error.message, error.data]).replaceAll(id, '<id>') };
    }
    return { answer: `broken: ${error}`, raw: '' };
  }
}

// ---------------------------------------------------------------------------------------------------- over a connection

/** A socket of a browser: no header, so that whatever it brings comes in its requests. */
async function bareSocket() {
  const socket = await dial(node.url, { origin: 'https://app.example' });
  let id = 0;
  return {
    rpc: (method: string, params: object) =>
      within(
        `the answer to ${method}`,
        new Promise<Json>((resolve, reject) => {
          id += 1;
          socket.ws.once('message', (data) => {
            const { result, error } = JSON.parse(data.toString()) as Json;
            if (error === undefined) resolve(result);
            else reject(new RpcFailure(method, error));
          });
          socket.ws.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
        }),
      ),
    async [Symbol.asyncDispose]() {
      socket.ws.terminate();
      await socket.closed;
    },
  };
}

function paramsFor(
  method: MethodName,
  of: { commandId: string; sessionId: string; resumeToken: string; token: string | undefined },
) {
  const { commandId, sessionId, resumeToken, token } = of;
  const params: Readonly<Record<MethodName, object>> = {
    'session.open': { conversation: 'matrix', token },
    'session.resume': { sessionId, resumeToken, token },
    'session.close': {},
    'session.touch': {},
    'session.refresh': { token },
    'command.run': { argv: ['true'] },
    'command.list': {},
    'command.get': { commandId },
    'command.log': { commandId },
    'command.kill': { commandId },
    'command.write': { commandId, offset: 0, data: 'x' },
    'command.resize': { commandId, cols: 9, rows: 9 },
    'command.adopt': { commandId },
    'command.attach': { commandId },
    'command.detach': { commandId },
  };
  return params[method];
}

/** For those whose acts are allowed: a session and a running command that may be spoiled. */
async function spare(caller: Caller): Promise<{ tab: Tab; commandId: string }> {
  const tab = await newTab(caller);
  const commandId = await tab.run(spec);
  await start(commandId);
  return { tab, commandId };
}

async function askMethod(method: MethodName, caller: Caller): Promise<Told> {
  const token = tokenOf(caller);
  const ask = (
    asker: { rpc(method: string, params: object): Promise<Json> },
    commandId: string,
    session: { sessionId: string; resumeToken: string },
  ) => toldBy(asker.rpc(method, paramsFor(method, { commandId, ...session, token })), commandId);
  const hers = { sessionId: ann.sessionId, resumeToken: ann.resumeToken };

  if (caller === 'ann' || caller === 'stale' || caller === 'closed') {
    const { tab, commandId } = await spare(caller);
    await using _tab = tab;
    const session = { sessionId: tab.sessionId, resumeToken: tab.resumeToken };
    const entersAnew = method === 'session.open' || method === 'session.resume';
    if (caller === 'closed') {
      const { ws, closed } = tab.socket;
      const answers = () => tab.recording.filter((arrival) => arrival.type === 'answer').length;
      await tab.close();
      const before = answers();
      if (entersAnew) {
        await using socket = await bareSocket();
        return await ask(socket, commandId, session);
      }
      ws.send(
        JSON.stringify({ jsonrpc: '2.0', id: 99, method, params: paramsFor(method, { commandId, ...session, token }) }),
      );
      const { code } = await closed;
      return { answer: answers() > before ? 'answered' : String(code), raw: '' };
    }
    if (caller === 'stale') {
      const place = await stores.sessions.place(tab.sessionId as SessionId);
      const resumeTokenHash = createHash('sha256').update(tab.resumeToken).digest('hex');
      // Its node hears nothing of it, as when the bus is late.
      node.faults.deaf = true;
      const attached = await stores.sessions.attach({
        ...{ sessionId: tab.sessionId as SessionId, principal: place?.principal ?? '', resumeTokenHash, pageNonce: '' },
        ...{
          attachmentId: makeAttachmentId(randomBytes(16)),
          nodeId: makeNodeId(randomBytes(16)),
          probedAttachmentId: '',
        },
      });
      expect(attached.type).toBe('attached');
      const told = await ask(tab, commandId, session).finally(() => {
        node.faults.deaf = false;
      });
      return told.answer === 'sees' || told.answer === 'ok'
        ? { ...told, answer: told.raw.includes(commandId) ? 'sees' : 'ok' }
        : told;
    }
    if (entersAnew) {
      await using socket = await bareSocket();
      return await ask(socket, commandId, session);
    }
    return await ask(tab, commandId, session);
  }

  if (method === 'session.open' || method === 'session.resume') {
    await using socket = await bareSocket();
    if (method === 'session.open' || caller !== 'reader') {
      const told = await ask(socket, target, hers);
      if (method === 'session.resume' && told.answer !== 'sees')
        await sameAsMissing(told, hers.sessionId, (sessionId) => ask(socket, target, { ...hers, sessionId }));
      return told;
    }
    // It is hers as well, and would take the session from her.
    const { tab, commandId } = await spare('ann');
    await using _tab = tab;
    return await ask(socket, commandId, { sessionId: tab.sessionId, resumeToken: tab.resumeToken });
  }
  if (method === 'session.refresh') {
    // Whether ann's connection may be given this token. Where it may, it is given back at once.
    const told = await ask(ann, target, hers);
    await ann.rpc('session.refresh', { token: TOKENS.ann });
    return told;
  }

  const tab = tabs.get(caller);
  if (tab === undefined) {
    await using socket = await bareSocket();
    const told = await ask(socket, target, hers);
    if (method.startsWith('command.')) await sameAsMissing(told, target, (id) => ask(socket, id, hers));
    return told;
  }
  if (method === 'session.close') {
    await using own = await newTab(caller);
    return await ask(own, target, hers);
  }
  const told = await ask(tab, target, hers);
  const namesIt = 'commandId' in paramsFor(method, { commandId: target, ...hers, token });
  if (namesIt && told.answer !== 'sees' && told.answer !== 'ok')
    await sameAsMissing(told, target, (id) => ask(tab, id, hers));
  return told;
}

async function sameAsMissing(told: Told, id: string, ask: (id: string) => Promise<Told>): Promise<void> {
  const missing = flip(id);
  const other = await ask(missing);
  const plain = ({ answer, raw }: Told, own: string) => ({ answer, raw: raw.replaceAll(own, '<id>') });
  expect(plain(told, id)).toEqual(plain(other, missing));
  compared += 1;
}

// ------------------------------------------------------------------------------------------------------------ over HTTP

function requestFor(
  name: HttpRouteName,
  of: { commandId: string; sessionId: string },
): [path: string, body: object | undefined] {
  const { commandId, sessionId } = of;
  const bodies: Readonly<Record<HttpRouteName, object | undefined>> = {
    submitCommand: { conversation: 'matrix', argv: ['true'], originSessionId: sessionId },
    getCommand: undefined,
    killCommand: {},
    writeStdin: { offset: 0, data: 'x' },
    resizeTerminal: { cols: 9, rows: 9 },
    adoptCommand: { sessionId },
    readLog: undefined,
    followCommand: undefined,
    listCommands: undefined,
    listSessions: undefined,
    followConversation: undefined,
    describe: undefined,
  };
  const path = httpRoutes[name].path.replace('{id}', commandId).replace('{conversation}', 'matrix');
  return [name === 'readLog' ? `${path}?format=jsonl` : path, bodies[name]];
}

const isStream = (name: HttpRouteName) => name === 'followCommand' || name === 'followConversation';

async function askRoute(name: HttpRouteName, caller: Caller): Promise<Told> {
  if (ROUTE_ROWS[name][caller] === '-') return { answer: '-', raw: '' };
  const send = async (of: { commandId: string; sessionId: string }): Promise<Told> => {
    const [path, body] = requestFor(name, of);
    const token = tokenOf(caller);
    const stop = new AbortController();
    const response = await fetch(node.url + path, {
      method: httpRoutes[name].method.toUpperCase(),
      headers: {
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: stop.signal,
    });
    let text = '';
    if (response.ok && isStream(name)) {
      // What there is comes at once; a stranger's stream stays empty.
      const timer = setTimeout(() => stop.abort(), 150);
      try {
        for await (const chunk of response.body ?? []) {
          text += Buffer.from(chunk).toString();
          if (isHers(text, of.commandId)) break;
        }
      } catch {
        // It was ended here.
      }
      clearTimeout(timer);
      stop.abort();
    } else text = await response.text();
    if (response.ok)
      return { answer: isHers(text, of.commandId) && name !== 'submitCommand' ? 'sees' : 'ok', raw: text };
    return {
      answer: (JSON.parse(text) as Json).code,
      raw: `${response.status} ${text}`.replaceAll(of.commandId, '<id>'),
    };
  };

  if (caller === 'ann' || caller === 'closed') {
    const { tab, commandId } = await spare(caller);
    await using _tab = tab;
    const { sessionId } = tab;
    if (caller === 'closed') await tab.close();
    return await send({ commandId, sessionId });
  }
  const hers = { commandId: target, sessionId: ann.sessionId };
  const told = await send(hers);
  const refused = told.answer !== 'sees' && told.answer !== 'ok';
  if (refused && httpRoutes[name].path.includes('{id}')) {
    await sameAsMissing(told, target, (commandId) => send({ ...hers, commandId }));
  }
  if (refused && name === 'submitCommand') {
    await sameAsMissing(told, ann.sessionId, (sessionId) => send({ ...hers, sessionId }));
  }
  return told;
}

describe('the isolation matrix', () => {
  it('[IS1] has a row for every method and every route, and no other', () => {
    expect(Object.keys(METHOD_ROWS).sort()).toEqual(Object.keys(methods).sort());
    expect(Object.keys(ROUTE_ROWS).sort()).toEqual(Object.keys(httpRoutes).sort());
  });

  it.each(Object.keys(METHOD_ROWS) as MethodName[])('[IS1] %s', async (method) => {
    const told: Record<string, string> = {};
    for (const caller of CALLER_NAMES) told[caller] = (await askMethod(method, caller)).answer;
    expect(told).toEqual(METHOD_ROWS[method]);
  });

  it.each(Object.keys(ROUTE_ROWS) as HttpRouteName[])('[IS1] %s', async (name) => {
    const told: Record<string, string> = {};
    for (const caller of CALLER_NAMES) told[caller] = (await askRoute(name, caller)).answer;
    expect(told).toEqual(ROUTE_ROWS[name]);
  });

  it('[IS2] after all of it ann has her session and her command, and nobody got an entry', async () => {
    expect(await ann.rpc('session.touch')).toEqual({});
    expect(await ann.rpc('command.get', { commandId: target })).toMatchObject({
      state: 'running',
      ownerSessionId: ann.sessionId,
    });
    expect((await ann.rpc('command.get', { commandId: target })).pty).toEqual({ cols: 80, rows: 24 });
    expect(node.count('homing_misdelivered_total')).toBe(0);
    for (const [caller, tab] of tabs) {
      // Who reads as ann may look at it, and did.
      if (caller !== 'reader') expect(JSON.stringify(tab.recording), caller).not.toContain(target);
    }
  });

  it('[SE2] tokens have at least 128 random bits and are nowhere in Redis but as digests', async () => {
    const made = [ann.resumeToken, ...Object.values(insideTokens)];
    expect(Buffer.from(ann.resumeToken, 'base64url').length).toBeGreaterThanOrEqual(16);
    const dump: string[] = [];
    for (const key of await keysLike(stores, '*')) {
      const type = await stores.redis.type(key);
      if (type === 'hash') dump.push(JSON.stringify(await stores.redis.hgetall(key)));
      if (type === 'string') dump.push((await stores.redis.get(key)) ?? '');
      if (type === 'stream') dump.push(JSON.stringify(await stores.redis.xrange(key, '-', '+')));
      if (type === 'set') dump.push(JSON.stringify(await stores.redis.smembers(key)));
    }
    const everything = dump.join('\n');
    expect(everything).toContain(createHash('sha256').update(ann.resumeToken).digest('hex'));
    for (const token of made) expect(everything).not.toContain(token);
  });

  it('is what docs/security.md says', async () => {
    const document = await readFile(DOCUMENT, 'utf8');
    expect(document).toMatch(BLOCK);
    // Run alone, it has nothing of its own to count.
    const count = compared === 0 ? Number(/(\d+) of them name/.exec(document)?.[1]) : compared;
    const fresh = document.replace(BLOCK, (_all, begin: string, end: string) => begin + matrixText(count) + end);
    if (process.env.HOMING_WRITE_MATRIX === '1') await writeFile(DOCUMENT, fresh);
    else expect(document, 'write it anew with HOMING_WRITE_MATRIX=1').toBe(fresh);
  });
});
