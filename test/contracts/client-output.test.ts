/** The rest of the SDK against real nodes: text, bytes, signals, terminals, and HTTP without a session. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Backend,
  connect,
  createBackend,
  currentOrigin,
  type Entry,
  type Session,
  type SessionState,
  withOrigin,
} from '../../src/client/node.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { createStage, lines, type Stage } from '../support/programs.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until, within } from '../support/wait.js';

let cluster: Cluster;
let stage: Stage;
const sessions: Session[] = [];

beforeAll(async () => {
  cluster = await startCluster({ nodes: 2, workers: 1 });
  stage = await createStage();
});
afterAll(async () => {
  for (const session of sessions) session.leave();
  await cluster?.[Symbol.asyncDispose]();
  await stage?.[Symbol.asyncDispose]();
});

const proxyTo = (url: string) => startTcpProxy({ host: '127.0.0.1', port: Number(new URL(url).port), scheme: 'http' });

async function open(options: Partial<Parameters<typeof connect>[0]> = {}): Promise<Session> {
  const conversation = `out-${sessions.length}`;
  const session = await connect({ url: cluster.node(0).url, token: cluster.token(), conversation, ...options });
  sessions.push(session);
  return session;
}

async function joined(pieces: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const piece of pieces) text += piece;
  return text;
}

const backend = (over: Partial<Parameters<typeof createBackend>[0]> = {}): Backend =>
  createBackend({ url: cluster.node(0).url, token: cluster.token(), ...over });

describe('output', () => {
  it('[DE1] comes as text and as bytes, exactly, whatever the pieces are', async () => {
    const session = await open();
    // A character in two writes, and bytes that are no character at all.
    const script = `printf '\\303'; sleep 0.2; printf '\\244\\n'; printf '\\377\\376end'`;
    const text = await session.run({ script });
    expect(await joined(text.text())).toBe('ä\n\ufffd\ufffdend');
    const bytes = await session.run({ script });
    const parts: Uint8Array[] = [];
    const onGap = () => expect.fail('there is no gap');
    for await (const part of bytes.bytes({ onGap })) parts.push(part);
    expect(Buffer.concat(parts)).toEqual(Buffer.from([0xc3, 0xa4, 10, 0xff, 0xfe, ...Buffer.from('end')]));
  });

  it('a loop that is aborted loses nothing: the next one goes on with what was not given out', async () => {
    const session = await open();
    const handle = await session.run(stage.gated('abort', 'first', 'rest'));
    const stop = new AbortController();
    const pieces: string[] = [];
    const reading = (async () => {
      for await (const piece of handle.text({ signal: stop.signal })) pieces.push(piece);
    })();
    await until('the first piece', () => pieces.length === 1);
    stop.abort(new Error('enough'));
    await expect(reading).rejects.toThrow('enough');
    stage.open('abort');
    await handle.ended;
    expect(await joined(handle.text())).toBe('rest\n');
    await expect(joined(handle.text({ signal: stop.signal }))).rejects.toThrow('enough');
  });
});

describe('a terminal', () => {
  it('takes what is written, in order, and its size', async () => {
    const session = await open();
    const handle = await session.run({
      script: 'stty -echo; read line; stty size; echo "got $line"',
      pty: { cols: 80, rows: 24 },
    });
    await handle.resize(100, 30);
    await handle.write('a li');
    await handle.write('ne\r');
    const text = await within('the output', joined(handle.text()));
    expect(text).toContain('30 100\r\n');
    expect(text).toContain('got a line\r\n');
  });

  it('[DE1] a page that comes back writes on where its former self was', async () => {
    const items = new Map<string, string>();
    const storage = {
      getItem: (key: string) => items.get(key) ?? null,
      setItem: (key: string, value: string) => void items.set(key, value),
      removeItem: (key: string) => void items.delete(key),
    };
    const conversation = 'writes-on';
    const before = await open({ storage, conversation });
    const handle = await before.run({ argv: ['cat'], stdin: 'pipe' });
    await handle.write('one ');
    before.leave();
    const after = await open({ storage, conversation });
    const resumed = after.commands.get(handle.commandId);
    await resumed?.write('two', { eof: true });
    expect(await (await resumed?.ended)?.tail).toBe('one two');
  });
});

describe('catching up', () => {
  it('[DE4] is said after a lost connection, and is over when what was written meanwhile has arrived', async () => {
    await using proxy = await proxyTo(cluster.node(0).url);
    const states: SessionState[] = [];
    const session = await open({ url: proxy.url, listen: { status: (state) => states.push(state) } });
    const handle = await session.run(stage.gated('behind', 'before', 'x'.repeat(60_000)));
    const reading = joined(handle.text());
    await until('the first line', () => handle.snapshot !== undefined && session.state.state === 'live');
    await proxy.refuse(true);
    proxy.cut();
    stage.open('behind');
    await until('its end', async () => (await backend().get(handle.commandId)).state === 'ended');
    await proxy.refuse(false);
    session.retry();
    expect((await within('the output', reading)).length).toBe('before\n'.length + 60_001);
    await until('live again', () => session.state.state === 'live');
    expect(states.map(({ state }) => state)).toContain('away');
    expect(states.find(({ state }) => state === 'catching-up')).toMatchObject({ commands: 1 });
    session.leave();
  });
});

describe('requests', () => {
  it('while away are aborted by their signal, and what was asked for may still be repeated', async () => {
    await using proxy = await proxyTo(cluster.node(0).url);
    const session = await open({ url: proxy.url, conversation: 'aborts' });
    await proxy.refuse(true);
    proxy.cut();
    const spec = { argv: ['echo', 'again'], idempotencyKey: 'the same' };
    await expect(session.run(spec, { signal: AbortSignal.timeout(200) })).rejects.toThrow();
    await proxy.refuse(false);
    session.retry();
    expect(await joined((await session.run(spec)).text())).toBe('again\n');
    session.leave();
  });
});

describe('a backend', () => {
  it('[CO1] submits once although the answer is lost, and follows to the end over cut connections', async () => {
    await using proxy = await proxyTo(cluster.node(0).url);
    const homing = backend({ url: proxy.url });
    const swallowed = proxy.swallowNextReply((bytes) => bytes.includes('POST /v1/commands'));
    const program = lines('tick', 40, 25);
    const [{ commandId }] = await Promise.all([homing.run({ conversation: 'http', argv: program.argv }), swallowed]);
    const entries: Entry[] = [];
    for await (const entry of homing.follow(commandId)) {
      entries.push(entry);
      if (entries.length === 5 || entries.length === 12) proxy.cut();
    }
    expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, index) => index + 1));
    expect(entries.at(-1)?.type).toBe('ended');
    expect(await homing.log(commandId)).toBe(program.output);
    expect(await homing.log(commandId, { tailBytes: 8 })).toBe('tick 40\n');
    const listed: string[] = [];
    for await (const command of homing.commands('http')) listed.push(command.commandId);
    expect(listed).toEqual([commandId]);
    // Everything was seen: a further reader is told to stay away, and stops.
    const more: Entry[] = [];
    for await (const entry of homing.follow(commandId, { afterSeq: entries.length })) more.push(entry);
    expect(more).toEqual([]);
  }, 40_000);

  it('[SE3] follows a conversation through the death of its node', async () => {
    await using own = await startCluster({ nodes: 2, workers: 1 });
    const target = { host: '127.0.0.1', port: Number(new URL(own.node(0).url).port), scheme: 'http' };
    await using proxy = await startTcpProxy(target);
    const homing = createBackend({ url: proxy.url, token: own.token() });
    const stop = new AbortController();
    const seen: string[] = [];
    const following = (async () => {
      for await (const { entry } of homing.followConversation('http', { signal: stop.signal })) {
        seen.push(`${entry.commandId} ${entry.seq}`);
      }
    })();
    const program = lines('tick', 60, 25);
    const { commandId } = await homing.run({ conversation: 'http', argv: program.argv });
    await until('some entries', () => seen.length > 5);
    target.port = Number(new URL(own.node(1).url).port);
    await own.node(0).kill();
    const { headSeq } = await until('the end', async () => {
      const snapshot = await homing.get(commandId);
      return snapshot.state === 'ended' ? snapshot : undefined;
    });
    await until('every entry', () => seen.length >= headSeq);
    expect(seen).toEqual(Array.from({ length: headSeq }, (_, index) => `${commandId} ${index + 1}`));
    stop.abort();
    await within('the end of the stream', following);
  }, 60_000);

  it('says what the node refuses it with, waits for an end, and ends a command', async () => {
    const homing = backend();
    await expect(homing.get('cmd_nothing')).rejects.toMatchObject({ code: 'UNKNOWN_COMMAND' });
    await expect(homing.run({ conversation: 'no spaces', argv: ['x'] })).rejects.toMatchObject({
      field: 'conversation',
    });
    const { commandId } = await homing.run({ conversation: 'http', argv: ['sleep', '60'] });
    await expect(homing.ended(commandId, { timeoutMs: 300 })).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    await until('its start', async () => (await homing.get(commandId)).state === 'running');
    expect(await homing.kill(commandId, { signal: 'SIGKILL' })).toEqual({ state: 'requested' });
    expect(await homing.ended(commandId)).toMatchObject({ reason: 'cancelled' });
    const nobody = createBackend({ url: 'http://127.0.0.1:1', token: 't', timeoutMs: 500 });
    await expect(nobody.get(commandId)).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    const stop = AbortSignal.abort(new Error('no more'));
    await expect(homing.get(commandId, { signal: stop })).rejects.toThrow('no more');
  });

  it('takes a new token when the old one has expired', async () => {
    const tokens = [cluster.token({ ttlSeconds: -60 }), cluster.token()];
    const homing = backend({ token: () => tokens.shift() ?? '' });
    await expect(homing.get('cmd_nothing')).rejects.toMatchObject({ code: 'UNKNOWN_COMMAND' });
    expect(tokens).toEqual([]);
    const fixed = backend({ token: cluster.token({ ttlSeconds: -60 }) });
    await expect(fixed.get('cmd_nothing')).rejects.toMatchObject({ code: 'TOKEN_EXPIRED' });
  });

  it('[OW1] carries an origin through asynchronous calls, and keeps those of two apart', async () => {
    const homing = backend();
    const [one, two] = [await open({ conversation: 'carried' }), await open({ conversation: 'carried' })];
    async function deep(name: string): Promise<string> {
      await new Promise((resolve) => setTimeout(resolve, 5));
      return (await homing.run({ argv: ['echo', name] })).commandId;
    }
    const at = (session: Session) => ({ conversation: 'carried', originSessionId: session.sessionId });
    const [first, second] = await Promise.all([
      withOrigin(at(one), () => deep('one')),
      withOrigin(at(two), () => withOrigin({}, () => deep('two'))),
    ]);
    expect((await homing.get(first)).originSessionId).toBe(one.sessionId);
    expect((await homing.get(second)).originSessionId).toBe(two.sessionId);
    const handle = await until('its arrival', () => one.commands.get(first));
    expect(await joined(handle.text())).toBe('one\n');
    expect(two.commands.has(first)).toBe(false);
    expect(currentOrigin()).toBeUndefined();
  });
});
