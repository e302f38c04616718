/** What is asked for again, or answered too late, changes nothing that a page sees: nothing twice, nothing missing. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { connect, type Session } from '../../src/client/node.js';
import { AppError } from '../../src/errors.js';
import { type CommandId, tagOf } from '../../src/protocol/ids.js';
import type { CommandSnapshot } from '../../src/protocol/methods.js';
import { claimToWrite } from '../support/log-writer.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { openTab, type Tab } from '../support/tab.js';
import { makeToken } from '../support/tokens.js';
import { until, within } from '../support/wait.js';

const secret = 'a secret of at least 32 characters';
const ann = makeToken(secret, { sub: 'ann' });

describe('a submit that is repeated', () => {
  let redis: TestRedis;
  let stores: Stores;
  let node: TestNode;
  /** Submits are stored, and their answers lost. */
  let losing = false;

  beforeAll(async () => {
    redis = await startRedis();
    stores = await createStores(redis.url);
    const submit: Stores['commands']['submit'] = async (request) => {
      const answer = await stores.commands.submit(request);
      if (losing) throw new AppError('REDIS_UNAVAILABLE', 'the answer was lost');
      return answer;
    };
    const losable = { ...stores, commands: { ...stores.commands, submit } };
    node = await startTestNode({ redis, stores: losable, secret });
  });
  afterAll(async () => {
    await node?.close();
    await stores?.[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
  });

  const seqs = (tab: Tab, id: string) => tab.entries(id).map((arrival) => arrival.params.seq as number);
  const keyed = () => ({ argv: ['true'], idempotencyKey: randomBytes(8).toString('hex') });

  /** Runs, ends and acknowledges a command, so that the node has nothing more to do with it. */
  async function consumed(tab: Tab, spec: object): Promise<string> {
    const id = await tab.run(spec);
    const writer = await claimToWrite(stores, id);
    await writer.print('once\n');
    await writer.end();
    const last = (await tab.ended(id)).params.seq as number;
    tab.ack({ [id]: last });
    await until('the acknowledgement stored', async () => {
      return (await tab.rpc('command.get', { commandId: id })).ackedSeq === last;
    });
    return id;
  }

  /** Everything that was to be sent before has come. */
  const quiet = async (tab: Tab) => {
    const id = await tab.run({ argv: ['true'] });
    const writer = await claimToWrite(stores, id);
    await writer.end();
    await tab.ended(id);
  };

  it('[DE1] after its command was consumed brings none of it again', async () => {
    await using tab = await openTab(node.url, { token: ann });
    const spec = keyed();
    const id = await consumed(tab, spec);
    const before = seqs(tab, id);
    expect(await tab.run(spec)).toBe(id);
    await quiet(tab);
    expect(seqs(tab, id)).toEqual(before);
  });

  it('[DE1] over a new connection brings nothing that its cursors say is there', async () => {
    await using tab = await openTab(node.url, { token: ann });
    const spec = keyed();
    const id = await consumed(tab, spec);
    const before = seqs(tab, id);
    await tab.drop();
    await tab.resume(node.url);
    expect(await tab.run(spec)).toBe(id);
    await quiet(tab);
    expect(seqs(tab, id)).toEqual(before);
  });

  /** Its retention is over. */
  async function expire(id: string): Promise<void> {
    const { keys, scripts } = stores;
    const commandId = id as CommandId;
    const { command, first, last, trace, input } = keys;
    const [record, ...logs] = [command, first, last, trace].map((key) => key(commandId));
    const all = [record as string, ...logs, keys.commands(tagOf(commandId)), input(commandId)];
    expect(await scripts.run('expire', all, [keys.tagPrefix(tagOf(commandId)), commandId, 0])).toBe(0);
  }

  it('[CO1][DE1] after its command has expired is a new command with the same id, of which everything comes', async () => {
    await using tab = await openTab(node.url, { token: ann, conversation: 'expired' });
    const spec = keyed();
    const id = await consumed(tab, spec);
    await expire(id);
    const before = tab.entries(id).length;
    expect(await tab.rpc('command.run', spec)).toMatchObject({ commandId: id, state: 'queued', repeated: false });
    const writer = await claimToWrite(stores, id);
    await writer.print('one ', 'two ');
    await writer.end();
    await until('its end', () => tab.entries(id).slice(before).at(-1)?.method === 'command.ended');
    expect(seqs(tab, id).slice(before)).toEqual([1, 2, 3]);
    expect(await tab.rpc('command.run', spec)).toMatchObject({ commandId: id, repeated: true });
  });

  it('[CO1] after its command has expired has an end of its own for the page, which knew the first one', async () => {
    const session = await connect({ url: node.url, token: ann, conversation: 'expired-sdk' });
    try {
      const spec = keyed();
      for (const text of ['first', 'second']) {
        const handle = await session.run(spec);
        const writer = await claimToWrite(stores, handle.commandId);
        await writer.print(text);
        await writer.end();
        let output = '';
        for await (const part of handle.text()) output += part;
        expect(output).toBe(text);
        expect(await within('its end', handle.ended)).toMatchObject({ reason: 'exited' });
        await until('it to be consumed', () => !session.commands.has(handle.commandId));
        await expect(session.run(spec)).rejects.toMatchObject({ code: 'COMMAND_ENDED' });
        await expire(handle.commandId);
      }
    } finally {
      await session.close();
    }
  });

  async function submitOverHttp(body: object, idempotencyKey: string): Promise<string> {
    const answer = await fetch(`${node.url}/v1/commands`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${ann}`,
        'content-type': 'application/json',
        'idempotency-key': idempotencyKey,
      },
      body: JSON.stringify(body),
    });
    expect(answer.status).toBe(202);
    return ((await answer.json()) as { commandId: string }).commandId;
  }

  it('[CO1, DE1] after its command has expired, over HTTP, comes whole over a connection whose cursors are of the first', async () => {
    const conversation = 'expired-cursors';
    await using tab = await openTab(node.url, { token: ann, conversation });
    const { idempotencyKey, ...spec } = keyed();
    const id = await consumed(tab, { ...spec, idempotencyKey });
    await tab.drop();
    await tab.resume(node.url);
    await expire(id);
    const before = tab.entries(id).length;
    expect(await submitOverHttp({ ...spec, conversation, originSessionId: tab.sessionId }, idempotencyKey)).toBe(id);
    const writer = await claimToWrite(stores, id);
    await writer.print('one ', 'two ');
    await writer.end();
    await until('its end', () => tab.entries(id).slice(before).at(-1)?.method === 'command.ended');
    expect(seqs(tab, id).slice(before)).toEqual([1, 2, 3]);
  });

  it.each([
    ['HTTP', false],
    ['the page itself', true],
  ])(
    '[CO1, DE1] after its command has expired, over HTTP, comes whole to the page that consumed the first, by %s',
    async (_, own) => {
      const conversation = `expired-http-${own}`;
      const session = await connect({ url: node.url, token: ann, conversation });
      const idempotencyKey = randomBytes(8).toString('hex');
      const spec = { argv: ['true'], labels: {} };
      const submit = () =>
        submitOverHttp({ ...spec, conversation, originSessionId: session.sessionId }, idempotencyKey);
      try {
        for (const text of ['the first', 'second']) {
          const id =
            own && text === 'the first' ? (await session.run({ ...spec, idempotencyKey })).commandId : await submit();
          const handle = await until('its handle', () => session.commands.get(id));
          const writer = await claimToWrite(stores, id);
          for (const word of text.split(' ')) await writer.print(word);
          await writer.end();
          let output = '';
          for await (const part of handle.text()) output += part;
          expect(output).toBe(text.replace(' ', ''));
          expect(await within('its end', handle.ended)).toMatchObject({ reason: 'exited' });
          await until('it to be consumed', () => !session.commands.has(id));
          await until('the acknowledgement', async () => {
            const { ackedSeq, headSeq } = (await session.request('command.get', { commandId: id })) as CommandSnapshot;
            return ackedSeq === headSeq;
          });
          await expire(id);
        }
      } finally {
        await session.close();
      }
    },
  );

  it('[DE7] and one whose answer was lost and that nobody repeats comes as a change of owner', async () => {
    await using tab = await openTab(node.url, { token: ann, conversation: 'unrepeated' });
    losing = true;
    const lost = await tab.run({ argv: ['true'], labels: { which: 'lost' } }).catch((error) => error.code);
    losing = false;
    expect(lost).toBe('REDIS_UNAVAILABLE');
    const owner = await tab.waitFor('command.owner', (arrival) => arrival.method === 'command.owner');
    const { commandId } = owner.params;
    const writer = await claimToWrite(stores, commandId);
    await writer.print('all the same\n');
    await writer.end();
    await tab.ended(commandId);
    expect(tab.output(commandId)).toBe('all the same\n');
  });
});

describe('a page that comes', () => {
  /** A node that answers open by `answer`; written by hand, since a real one gives no say in its timing. */
  async function withNode(
    answer: (socket: WebSocket, welcome: () => void, opens: number) => void,
    use: (url: string) => Promise<void>,
  ): Promise<void> {
    const server = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: () => 'homing.v1' });
    let opens = 0;
    server.on('connection', (socket: WebSocket) => {
      socket.on('message', (data) => {
        const { id, method } = JSON.parse(data.toString());
        if (method !== 'session.open' && method !== 'session.resume') return;
        opens += 1;
        const result = { sessionId: 's', resumeToken: 'r', heartbeatMs: 10_000, commands: [], more: false };
        answer(socket, () => socket.send(JSON.stringify({ jsonrpc: '2.0', id, result })), opens);
      });
    });
    await until('the server', () => server.address() !== null);
    try {
      await use(`http://127.0.0.1:${(server.address() as { port: number }).port}`);
    } finally {
      for (const socket of server.clients) socket.terminate();
      server.close();
    }
  }

  it('[SE3] tries again when the node did not hear it in time: a slow way says nothing about the token', async () => {
    let asked = 0;
    await withNode(
      (socket, welcome, opens) => {
        asked = opens;
        if (opens === 1) socket.close(4501, 'no session was opened within 5000 ms');
        else welcome();
      },
      async (url) => {
        const session = await connect({ url, token: 't', conversation: 'c' });
        expect([asked, session.state.state]).toEqual([2, 'live']);
        session.leave();
      },
    );
  });

  it('[SE6] while its node begins to drain goes on with the attempt that is under way, and leaves when it is there', async () => {
    await withNode(
      (socket, welcome, opens) => {
        const params = { reconnectWithinMs: 0 };
        if (opens === 1) socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'session.draining', params }));
        // Later than the time to leave.
        setTimeout(welcome, 100);
      },
      async (url) => {
        const session = await connect({ url, token: 't', conversation: 'c', connectTimeoutMs: 3_000 });
        expect(session.state.state).toBe('live');
        session.leave();
      },
    );
  });

  it('[SE3] back, and is told to try again while it tries, goes on with the attempt that is under way', async () => {
    let session: Session | undefined;
    await withNode(
      (socket, welcome, opens) => {
        if (opens === 1) {
          welcome();
          setImmediate(() => socket.close(4001, 'the node is stopping'));
          return;
        }
        session?.retry();
        setTimeout(welcome, 100);
      },
      async (url) => {
        session = await connect({ url, token: 't', conversation: 'c' });
        await until('the loss', () => session?.state.state === 'away');
        await until('it to be back', () => session?.state.state === 'live', 5_000);
        session.leave();
      },
    );
  });
});
