/** Whatever a client sends, it gets the right error; and the connection survives where the contract says so. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LIMITS } from '../../src/protocol/limits.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';
import { dial, type Json, type Socket } from '../support/tab.js';
import { until, within } from '../support/wait.js';

/** HOMING_OUTBOX_BYTES as it is. */
const OUTBOX_BYTES = 1024 * 1024;

describe('garbage', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    // A client that reads nothing shows no sign of life either, and is not to be closed for that, however slow the host.
    cluster = await startCluster({ nodes: 1, workers: 1, env: { HOMING_HEARTBEAT_MS: '60000' } });
  });
  afterAll(() => cluster?.[Symbol.asyncDispose]());

  /** A socket with an open session, and what comes back for what is sent. */
  async function raw(open = true) {
    const socket = await dial(cluster.node(0).url, { token: cluster.token() });
    const heard: Json[] = [];
    socket.ws.on('message', (data) => heard.push(JSON.parse(data.toString())));
    const ask = async (frame: string | Buffer): Promise<Json> => {
      const before = heard.length;
      socket.ws.send(frame);
      return until(`an answer to ${String(frame).slice(0, 80)}`, () => heard[before], 5_000, 5);
    };
    if (open) await ask(request(0, 'session.open', { conversation: 'garbage' }));
    return { socket, heard, ask };
  }
  const request = (id: number, method: string, params: unknown = {}) =>
    JSON.stringify({ jsonrpc: '2.0', id, method, params });
  const isAlive = async ({ ask }: { ask: (frame: string) => Promise<Json> }) =>
    expect(await ask(request(99, 'command.list'))).toMatchObject({ id: 99, result: { commands: expect.any(Array) } });
  const end = async (socket: Socket) => {
    socket.ws.terminate();
    await socket.closed;
  };

  it('malformed frames are answered with JSON-RPC’s own errors, and the connection stays', async () => {
    const line = await raw();
    const cases: [string, number, unknown][] = [
      ['{"jsonrpc":"2.0",', -32700, null],
      ['', -32700, null],
      ['\u0000\u0001', -32700, null],
      ['42', -32600, null],
      ['null', -32600, null],
      ['"text"', -32600, null],
      ['[]', -32600, null],
      ['{}', -32600, null],
      ['{"jsonrpc":"1.0","id":1,"method":"command.list"}', -32600, 1],
      ['{"jsonrpc":"2.0","id":2,"method":7}', -32600, 2],
      ['{"jsonrpc":"2.0","id":{},"method":"command.list"}', -32600, null],
      ['{"jsonrpc":"2.0","id":3,"method":"no.such.method"}', -32601, 3],
      ['{"jsonrpc":"2.0","id":4,"method":"__proto__"}', -32601, 4],
      ['{"jsonrpc":"2.0","id":5,"method":"constructor"}', -32601, 5],
      ['{"jsonrpc":"2.0","id":"six","method":"command.get","params":{"commandId":7}}', -32602, 'six'],
      ['{"jsonrpc":"2.0","id":7,"method":"command.get"}', -32602, 7],
    ];
    for (const [frame, code, id] of cases) {
      const answer = await line.ask(frame);
      expect(answer, frame).toMatchObject({ jsonrpc: '2.0', id, error: { code, message: expect.any(String) } });
      expect(answer.error.message).not.toMatch(/\bat .*\.(js|ts):\d+/);
    }
    await isAlive(line);
    await end(line.socket);
  });

  it('wrong types name the field, the limit and what came, with INVALID_PARAMS', async () => {
    const line = await raw();
    const cases: [object, string][] = [
      [{ argv: 'ls' }, 'argv'],
      [{ argv: [] }, 'argv'],
      [{}, 'argv'],
      [{ argv: ['a'], script: 'b' }, 'argv'],
      [{ argv: ['a\u0000b'] }, 'argv'],
      [{ argv: ['ls'], env: { '1X': 'y' } }, 'env'],
      [{ argv: ['ls'], streams: 'three' }, 'streams'],
      [{ argv: ['ls'], timeouts: { runMs: -1 } }, 'timeouts.runMs'],
      [{ argv: ['ls'], priority: 101 }, 'priority'],
      [{ argv: ['ls'], onOwnerGone: 'shrug' }, 'onOwnerGone'],
    ];
    for (const [i, [params, field]] of cases.entries()) {
      const answer = await line.ask(request(i, 'command.run', params));
      expect(answer, JSON.stringify(params)).toMatchObject({
        id: i,
        error: { code: -32602, data: { code: 'INVALID_PARAMS', retryable: false } },
      });
      expect(answer.error.data.field.startsWith(field), `${answer.error.data.field} for ${field}`).toBe(true);
      expect(answer.error.message).toContain(field.split('.')[0]);
    }
    const conversation = await raw(false);
    const answer = await conversation.ask(request(1, 'session.open', { conversation: 'no spaces allowed' }));
    expect(answer.error.data).toMatchObject({ code: 'INVALID_PARAMS', field: 'conversation' });
    await end(conversation.socket);
    await isAlive(line);
    await end(line.socket);
  });

  it('a batch with one bad member gets an answer for each request, and the good ones are done', async () => {
    const line = await raw();
    const batch = [
      { jsonrpc: '2.0', id: 1, method: 'command.run', params: { argv: ['/bin/echo', 'from a batch'] } },
      { jsonrpc: '2.0', id: 2, method: 'no.such.method' },
      7,
      { jsonrpc: '2.0', method: 'output.ack', params: { cursors: {} } },
      { jsonrpc: '2.0', id: 3, method: 'command.list' },
    ];
    line.socket.ws.send(JSON.stringify(batch));
    const answers = await until('four answers', () => {
      const flat = line.heard.flat().filter((m: Json) => 'id' in m && m.id !== 0);
      return flat.length >= 4 && flat;
    });
    const byId = (id: unknown) => answers.find((m: Json) => m.id === id);
    expect(answers).toHaveLength(4);
    expect(byId(1).result.commandId).toMatch(/^cmd_/);
    expect(byId(2).error.code).toBe(-32601);
    expect(byId(null).error.code).toBe(-32600);
    expect(byId(3).result.commands).toBeInstanceOf(Array);
    await until('the command of the batch ended', () =>
      line.heard
        .flat()
        .some((m: Json) => m.method === 'command.ended' && m.params.commandId === byId(1).result.commandId),
    );
    const tooMany = await line.ask(JSON.stringify(Array.from({ length: 65 }, () => ({}))));
    expect(tooMany.error.code).toBe(-32600);
    await isAlive(line);
    await end(line.socket);
  });

  it('[IS1] before open every request is UNAUTHENTICATED, and a socket that never opens is closed with 4501', async () => {
    const line = await raw(false);
    for (const method of ['command.run', 'command.list', 'session.touch', 'session.close']) {
      const answer = await line.ask(request(1, method, { argv: ['/bin/true'] }));
      expect(answer.error.data.code, method).toBe('UNAUTHENTICATED');
    }
    const { code } = await within('the close of a socket without a session', line.socket.closed, 8_000);
    expect(code).toBe(4501);
  });

  it('an oversized frame closes with 1009, a binary one with 4502; others do not notice', async () => {
    const bystander = await cluster.tab(0, { conversation: 'garbage' });
    const big = await raw();
    big.socket.ws.send(request(1, 'command.run', { argv: ['/bin/echo', 'x'.repeat(70_000)] }));
    expect((await within('the close', big.socket.closed, 5_000)).code).toBe(1009);
    const binary = await raw();
    binary.socket.ws.send(Buffer.from(request(1, 'command.list')), { binary: true });
    expect((await within('the close', binary.socket.closed, 5_000)).code).toBe(4502);
    const commandId = await bystander.run({ argv: ['/bin/echo', 'fine'] });
    await bystander.ended(commandId);
    expectComplete(bystander, commandId);
  });

  it('[DE5] a client that asks without reading the answers is held back, not served without bound, and gets them all when it reads', async () => {
    const line = await raw();
    const script = 'head -c 400000 /dev/zero | tr "\\0" x';
    const { result } = await line.ask(request(1, 'command.run', { script }));
    const { commandId } = result;
    await until('its end', () => line.heard.some(({ method }) => method === 'command.ended'));
    const asked = 100;
    line.socket.ws.pause();
    for (let i = 0; i < asked; i += 1) line.socket.ws.send(request(1000 + i, 'command.log', { commandId }));
    const waiting = () => cluster.metric(0, 'homing_outbox_bytes');
    let before = -1;
    const held = await until(
      'no more to be served',
      async () => {
        const now = await waiting();
        if (now > OUTBOX_BYTES && now === before) return now;
        before = now;
        return undefined;
      },
      30_000,
      200,
    );
    // What is worked on when reading stops is answered.
    expect(held).toBeLessThan(2 * OUTBOX_BYTES + LIMITS.maxInFlightRequests * LIMITS.maxLogBytes * 2);
    line.socket.ws.resume();
    const answers = () => line.heard.filter(({ id }) => id >= 1000);
    await until('every answer', () => answers().length === asked);
    for (const { result: page } of answers()) expect(JSON.stringify(page).length).toBeGreaterThan(100_000);
    await isAlive(line);
    await end(line.socket);
  });

  it('HTTP answers malformed bodies, unknown routes and unknown ids with a code and a sentence', async () => {
    const post = (body: string, type = 'application/json') =>
      fetch(`${cluster.node(0).url}/v1/commands`, {
        method: 'POST',
        headers: { authorization: `Bearer ${cluster.token()}`, 'content-type': type },
        body,
      });
    for (const body of [
      '{',
      '[]',
      '7',
      '{"conversation":"x"}',
      '{"argv":["ls"]}',
      '{"conversation":"x","argv":["ls"],"pool":"?"}',
    ]) {
      const response = await post(body);
      expect(response.status, body).toBe(400);
      expect(await response.json(), body).toMatchObject({ code: 'INVALID_PARAMS', retryable: false });
    }
    // As often as it takes for a connection that is reset while the body comes to be seen.
    for (let n = 0; n < 20; n += 1) {
      const large = await post('x'.repeat(8 * 1024 * 1024));
      expect([large.status, await large.json()]).toMatchObject([413, { code: 'INVALID_PARAMS', retryable: false }]);
    }
    const missing = await cluster.http('GET', '/v1/commands/cmd_x');
    expect([missing.status, missing.json.code]).toEqual([404, 'UNKNOWN_COMMAND']);
    expect((await cluster.http('GET', '/v1/nothing/here')).status).toBe(404);
  });
});
