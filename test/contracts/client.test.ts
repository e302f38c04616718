/** The SDK against real nodes and workers: what an application sees through losses, reloads and slow reading. */
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type CommandHandle,
  connect,
  type Session,
  type SessionEvents,
  type SessionStorage,
} from '../../src/client/node.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { lines } from '../support/programs.js';
import { dial } from '../support/tab.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until, within } from '../support/wait.js';

/** What a browser keeps for one tab. */
function createStorage(): SessionStorage {
  const items = new Map<string, string>();
  return {
    getItem: (key) => items.get(key) ?? null,
    setItem: (key, value) => void items.set(key, value),
    removeItem: (key) => void items.delete(key),
  };
}

async function textOf(handle: CommandHandle): Promise<string> {
  let text = '';
  for await (const item of handle.output) text += item.type === 'gap' ? `[gap ${item.reason}]` : item.text;
  return text;
}

/** The next event of a kind. */
const next = <K extends keyof SessionEvents>(
  session: Session,
  event: K,
  wanted: (value: SessionEvents[K]) => boolean = () => true,
): Promise<SessionEvents[K]> =>
  within(
    `the event ${event}`,
    new Promise((resolve) => {
      const stop = session.on(event, (value) => {
        if (!wanted(value)) return;
        stop();
        resolve(value);
      });
    }),
  );

const proxyTo = (url: string) => {
  const { hostname, port } = new URL(url);
  return startTcpProxy({ host: hostname, port: Number(port), scheme: 'http' });
};

/** Resumes a stored session over another socket, without a page nonce: the same page, for all a node can know. */
async function takeOver(cluster: Cluster, node: number, stored: string | null) {
  const { sessionId, resumeToken } = JSON.parse(stored ?? '{}');
  const { ws } = await dial(cluster.node(node).url, { token: cluster.token() });
  const answer = once(ws, 'message');
  ws.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.resume', params: { sessionId, resumeToken } }));
  const [text] = await within('the answer to resume', answer);
  expect(JSON.parse(String(text))).toMatchObject({ result: { sessionId } });
  return ws;
}

describe('the SDK', () => {
  let cluster: Cluster;
  const sessions: Session[] = [];

  beforeAll(async () => {
    cluster = await startCluster({ nodes: 2, workers: 1 });
  });
  afterAll(async () => {
    for (const session of sessions) session.leave();
    await cluster?.[Symbol.asyncDispose]();
  });

  async function open(options: Partial<Parameters<typeof connect>[0]> = {}): Promise<Session> {
    const session = await connect({
      url: cluster.node(0).url,
      token: cluster.token(),
      conversation: `sdk-${sessions.length}`,
      ...options,
    });
    sessions.push(session);
    return session;
  }

  it('[DE1] runs a command and gives its output in order, its entries, and its end', async () => {
    const session = await open();
    const program = lines('line', 500);
    const handle = await session.run({ argv: program.argv });
    expect(session.commands.get(handle.commandId)).toBe(handle);
    expect(await textOf(handle)).toBe(program.output);
    expect(await handle.ended).toMatchObject({ reason: 'exited', code: 0 });
    const types: string[] = [];
    for await (const entry of handle.events) types.push(entry.type);
    expect(types[0]).toBe('started');
    expect(types.at(-1)).toBe('ended');
    await session.close();
    expect(session.state).toMatchObject({ state: 'closed' });
  });

  it('[DE2] tells the end to whoever only waits for it', async () => {
    const session = await open();
    const handle = await session.run({ script: 'exit 4' });
    expect(await within('the end', handle.ended)).toMatchObject({ code: 4 });
  });

  it('kills a command, and writes nothing it was not asked to', async () => {
    const session = await open();
    const handle = await session.run({ argv: ['sleep', '60'] });
    // Ended before its start, a command has no signal to end by.
    await handle.events[Symbol.asyncIterator]().next();
    await handle.kill({ signal: 'SIGKILL' });
    expect(await within('the end', handle.ended)).toMatchObject({ reason: 'cancelled', signal: 'SIGKILL' });
  });

  it('[DE5] an unread handle stops nobody, and gives everything when it is read after all', async () => {
    const session = await open();
    const big = lines('a line that is long enough to make three megabytes of them all together', 40_000);
    const unread = await session.run({ argv: big.argv });
    await within('the end of the unread one', unread.ended, 25_000);
    const small = await session.run({ argv: ['echo', 'me'] });
    expect(await textOf(small)).toBe('me\n');
    expect((await textOf(unread)).length).toBe(big.output.length);
  }, 60_000);

  it('[SE3] loses its socket in mid-output and misses nothing, repeats nothing', async () => {
    await using proxy = await proxyTo(cluster.node(0).url);
    const session = await open({ url: proxy.url });
    const program = lines('tick', 60, 20);
    const handle = await session.run({ argv: program.argv });
    const reading = textOf(handle);
    for (let cut = 0; cut < 3; cut += 1) {
      const back = next(session, 'status', ({ state }) => state === 'live');
      proxy.cut();
      await back;
    }
    expect(await within('the output', reading)).toBe(program.output);
    session.leave();
  });

  it('[CO1] asks again what was not answered, and it is run once', async () => {
    await using proxy = await proxyTo(cluster.node(0).url);
    const session = await open({ url: proxy.url, conversation: 'asks-again' });
    // The node runs it, and its answer is lost with the connection.
    const swallowed = proxy.swallowNextReply(() => true);
    const [handle] = await Promise.all([session.run({ argv: ['echo', 'once'] }), swallowed]);
    expect(await textOf(handle)).toBe('once\n');
    const listed = await cluster.http('GET', '/v1/conversations/asks-again/commands');
    expect(listed.json.commands).toHaveLength(1);
    session.leave();
  });

  it('[SE3] a reloaded page resumes on another node and gets what its former self had not consumed', async () => {
    const storage = createStorage();
    const conversation = 'reload';
    const before = await open({ storage, conversation });
    const program = lines('tick', 40, 20);
    const handle = await before.run({ argv: program.argv });
    let read = '';
    for await (const item of handle.output) {
      if (item.type === 'output') read += item.text;
      if (read.includes('tick 5\n')) break;
    }
    before.leave();

    const after = await connect({ url: cluster.node(1).url, token: cluster.token(), conversation, storage });
    sessions.push(after);
    expect(after.sessionId).toBe(before.sessionId);
    const resumed = after.commands.get(handle.commandId);
    expect(resumed?.source).toBe('resumed');
    expect(read + (await within('the rest', textOf(resumed as CommandHandle)))).toBe(program.output);
  });

  it('[SE4] a duplicated tab gets a session of its own and the first one keeps everything', async () => {
    const storage = createStorage();
    const conversation = 'twice';
    const first = await open({ storage, conversation });
    const copy = createStorage();
    copy.setItem(`homing:${conversation}`, storage.getItem(`homing:${conversation}`) ?? '');
    const second = await open({ storage: copy, conversation });
    expect(second.sessionId).not.toBe(first.sessionId);
    expect(await textOf(await first.run({ argv: ['echo', 'first'] }))).toBe('first\n');
    expect(second.commands.size).toBe(0);
    expect(first.state.state).toBe('live');
  });

  it('[SE1] stays closed when another page took its session over', async () => {
    const storage = createStorage();
    const session = await open({ storage, conversation: 'taken' });
    const key = 'homing:taken';
    const closed = next(session, 'status', ({ state }) => state === 'closed');
    const taker = await takeOver(cluster, 1, storage.getItem(key));
    expect(await closed).toMatchObject({ state: 'closed', code: 4500 });
    await expect(session.run({ argv: ['true'] })).rejects.toMatchObject({ code: 'SESSION_GONE' });
    taker.terminate();
  });

  it('[OW2] takes over the commands of a session that closed, and says so', async () => {
    const conversation = 'heirs';
    const heir = await open({ conversation });
    const origin = await open({ conversation, url: cluster.node(1).url });
    const program = lines('tick', 30, 20);
    const owner = next(heir, 'owner');
    const handle = await origin.run({ argv: program.argv });
    await origin.close();
    const { command, why } = await owner;
    expect({ id: command.commandId, why }).toEqual({ id: handle.commandId, why: 'owner_closed' });
    expect(await within('the output', textOf(command))).toBe(program.output);
    await expect(handle.ended).rejects.toMatchObject({ code: 'SESSION_GONE' });
  });

  it('[DE6] what was consumed is acknowledged, so that an heir does not get it again', async () => {
    const conversation = 'consumed';
    const heir = await open({ conversation });
    const inherited: string[] = [];
    heir.on('owner', ({ command }) => inherited.push(command.commandId));
    const origin = await open({ conversation });
    expect(await textOf(await origin.run({ argv: ['echo', 'read'] }))).toBe('read\n');
    const unread = await origin.run({ argv: ['echo', 'unread'] });
    await unread.ended;
    await origin.close();
    // Both would have moved in one step.
    await until('the unread one to be inherited', () => inherited.includes(unread.commandId));
    expect(inherited).toEqual([unread.commandId]);
  });

  it('[DE2] follows a command to its end from the side when another session inherited it', async () => {
    const storage = createStorage();
    const conversation = 'from-the-side';
    await using proxy = await proxyTo(cluster.node(0).url);
    const session = await open({ storage, conversation, url: proxy.url });
    const heir = await open({ conversation });
    const program = lines('tick', 50, 20);
    const handle = await session.run({ argv: program.argv });
    const reading = textOf(handle);
    const [inherited, replaced] = [next(heir, 'owner'), next(session, 'replaced')];
    await proxy.refuse(true);
    proxy.cut();
    const taker = await takeOver(cluster, 1, storage.getItem(`homing:${conversation}`));
    taker.send('{"jsonrpc":"2.0","id":2,"method":"session.close"}');
    await inherited;
    await proxy.refuse(false);
    await replaced;
    expect(await within('the output', reading)).toBe(program.output);
    expect(await handle.ended).toMatchObject({ code: 0 });
    expect(await textOf((await inherited).command)).toContain('tick 50\n');
    session.leave();
  });

  it('[OW6] opens a new session when its own is gone, says so, and follows its commands to their end', async () => {
    const storage = createStorage();
    const conversation = 'gone';
    await using proxy = await proxyTo(cluster.node(0).url);
    const session = await open({ storage, conversation, url: proxy.url });
    const former = session.sessionId;
    const program = lines('tick', 50, 20);
    const handle = await session.run({ argv: program.argv });
    const reading = textOf(handle);
    const replaced = next(session, 'replaced');
    await proxy.refuse(true);
    proxy.cut();
    const taker = await takeOver(cluster, 1, storage.getItem(`homing:${conversation}`));
    taker.send('{"jsonrpc":"2.0","id":2,"method":"session.close"}');
    await within('the close', once(taker, 'close'));
    await proxy.refuse(false);
    expect(await replaced).toMatchObject({ formerSessionId: former, why: 'SESSION_GONE' });
    expect(session.sessionId).not.toBe(former);
    expect(await within('the output', reading)).toBe(program.output);
    expect(await handle.ended).toMatchObject({ code: 0 });
    session.leave();
  });

  it.each([
    ['a token that is none', { token: 'nonsense' }, 'UNAUTHENTICATED'],
    ['a conversation it does not cover', { conversation: 'no spaces allowed' }, 'INVALID_PARAMS'],
  ])('connect fails with the code of %s', async (_what, options, code) => {
    await expect(open(options)).rejects.toMatchObject({ code });
  });

  it('connect gives up on a node that is not there, with a sentence', async () => {
    const attempt = open({ url: 'http://127.0.0.1:1', connectTimeoutMs: 500 });
    await expect(attempt).rejects.toThrow(/no session within 500 ms: .*ECONNREFUSED/);
  });

  it('asks for a fresh token at each attempt', async () => {
    await using proxy = await proxyTo(cluster.node(0).url);
    let asked = 0;
    const token = async () => {
      asked += 1;
      return cluster.token();
    };
    const session = await open({ token, url: proxy.url });
    const back = next(session, 'status', ({ state }) => state === 'live');
    proxy.cut();
    await back;
    await until('a second token', () => asked === 2);
    session.leave();
  });
});
