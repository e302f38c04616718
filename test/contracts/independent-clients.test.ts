/** Programs that know nothing of Homing speak to it: what is promised are JSON-RPC 2.0, HTTP and server-sent events. */
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser } from 'playwright-core';
import { CommonClient, type ICommonWebSocket } from 'rpc-websockets';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket, { type ClientOptions } from 'ws';
import { startBrowser } from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { createStage, type Stage } from '../support/programs.js';
import { startProgram } from '../support/snippets.js';
import { until, within } from '../support/wait.js';

let cluster: Cluster;
let stage: Stage;

beforeAll(async () => {
  cluster = await startCluster({ nodes: 1, workers: 1 });
  stage = await createStage();
});
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  await stage?.[Symbol.asyncDispose]();
});

const curl = async (...args: string[]) => {
  const program = startProgram('curl', ['-sS', '-H', `authorization: Bearer ${cluster.token()}`, ...args], {});
  return { code: await program.ended(), stdout: program.stdout, stderr: program.stderr };
};
const submit = async (body: object) => {
  const { stdout } = await curl(
    ...['-H', 'content-type: application/json', '-d', JSON.stringify({ conversation: 'plain', ...body })],
    `${cluster.node(0).url}/v1/commands`,
  );
  return JSON.parse(stdout) as { commandId: string };
};

describe('a JSON-RPC 2.0 client from npm', () => {
  it('[DE1] opens a session, runs a command, gets its notifications and its errors', async () => {
    // Its own factory has no way to name a subprotocol.
    const client = new CommonClient(
      (address, options) =>
        new WebSocket(address, 'homing.v1', options as ClientOptions) as unknown as ICommonWebSocket,
      `${cluster.node(0).url.replace('http', 'ws')}/v1/ws`,
      { reconnect: false, ...{ headers: { authorization: `Bearer ${cluster.token()}` } } },
    );
    await within('the connection', new Promise((resolve) => client.on('open', resolve)));
    try {
      const welcome = (await client.call('session.open', { conversation: 'rpc' })) as { sessionId: string };
      expect(welcome.sessionId).toMatch(/^ses_/);
      const output: string[] = [];
      const ended = new Promise<{ outcome: { code: number } }>((resolve) => client.on('command.ended', resolve));
      client.on('command.output', ({ data }: { data: string }) => output.push(data));
      const { commandId } = (await client.call('command.run', { script: 'echo one; sleep 0.1; echo two; exit 5' })) as {
        commandId: string;
      };
      expect(await within('the end', ended)).toMatchObject({ commandId, outcome: { code: 5 } });
      expect(output.join('')).toBe('one\ntwo\n');
      await expect(client.call('command.get', { commandId: 'cmd_none' })).rejects.toMatchObject({
        code: -32000,
        data: { code: 'UNKNOWN_COMMAND', retryable: false },
      });
      await expect(client.call('command.fly')).rejects.toMatchObject({ code: -32601 });
      await client.notify('output.ack', { cursors: { [commandId]: 1 } });
      await client.call('session.close');
    } finally {
      client.close();
    }
  });
});

describe('curl', () => {
  it('[CO1] submits, waits, reads and ends, with statuses that say what happened', async () => {
    const { url } = cluster.node(0);
    const { commandId } = await submit({ script: 'echo with curl' });
    const { stdout } = await curl(`${url}/v1/commands/${commandId}?waitMs=10000`);
    expect(JSON.parse(stdout)).toMatchObject({ state: 'ended', outcome: { code: 0 } });
    expect((await curl(`${url}/v1/commands/${commandId}/log`)).stdout).toBe('with curl\n');
    const failing = await curl('--fail-with-body', `${url}/v1/commands/cmd_none`);
    expect([failing.code, JSON.parse(failing.stdout).code]).toEqual([22, 'UNKNOWN_COMMAND']);
    const running = await submit({ script: 'sleep 60' });
    expect((await curl('-X', 'POST', `${url}/v1/commands/${running.commandId}/kill`)).stdout).toMatch(
      /requested|ended/,
    );
  });

  it('[DE2] follows a command as server-sent events until its end', async () => {
    const { commandId } = await submit({ script: 'echo one; sleep 0.3; echo two' });
    const { code, stdout } = await curl('-N', `${cluster.node(0).url}/v1/commands/${commandId}/events`);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^retry: \d+\n\n/);
    expect([...stdout.matchAll(/^event: (.*)$/gm)].map(([, event]) => event)).toEqual([
      'command.started',
      'command.output',
      'command.output',
      'command.ended',
    ]);
    const seen = ['-H', 'last-event-id: 4', '-w', '%{http_code}'];
    expect((await curl(...seen, `${cluster.node(0).url}/v1/commands/${commandId}/events`)).stdout).toBe('204');
  });
});

describe('the EventSource of a browser', () => {
  let browser: Browser;
  let site: Server;
  let origin = '';
  /** Open answers; destroyed to lose a connection. */
  const streams = new Set<{ destroy(): void }>();

  beforeAll(async () => {
    // A browser's EventSource can send no header: what an application does is to add the token on its own server.
    site = createServer((incoming, outgoing) => {
      if (incoming.url === '/') return outgoing.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html>');
      const { 'last-event-id': lastEventId } = incoming.headers;
      const { hostname, port } = new URL(cluster.node(0).url);
      const asked = request(
        {
          ...{ hostname, port, path: incoming.url, method: incoming.method },
          headers: {
            authorization: `Bearer ${cluster.token()}`,
            ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
          },
        },
        (answer) => {
          outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
          answer.pipe(outgoing);
          streams.add(outgoing);
        },
      );
      asked.on('error', () => outgoing.destroy());
      outgoing.on('close', () => {
        streams.delete(outgoing);
        asked.destroy();
      });
      asked.end();
    });
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
    origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
    browser = await startBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    site?.closeAllConnections();
    site?.close();
  });

  it('[DE1] follows a command through a lost connection, and stays away when everything was seen', async () => {
    const { commandId } = await submit(stage.gated('es', 'first', 'rest'));
    const page = await browser.newPage();
    await page.goto(origin);
    await page.evaluate((path) => {
      const seen: string[] = [];
      const source = new EventSource(path);
      Object.assign(globalThis, { seen, source });
      for (const name of ['started', 'output', 'gap', 'ended']) {
        source.addEventListener(`command.${name}`, (event) => seen.push(`${event.lastEventId} ${event.type}`));
      }
    }, `/v1/commands/${commandId}/events`);
    const seen = () => page.evaluate(() => (globalThis as unknown as { seen: string[] }).seen);
    const readyState = () => page.evaluate(() => (globalThis as unknown as { source: EventSource }).source.readyState);
    await until('the first output', async () => (await seen()).length === 2);
    for (const stream of [...streams]) stream.destroy();
    stage.open('es');
    await until('the end', async () => (await seen()).includes('4 command.ended'));
    expect(await seen()).toEqual(['1 command.started', '2 command.output', '3 command.output', '4 command.ended']);
    // The stream ended, it came back once, was answered 204, and gave up for good.
    await until('closed', async () => (await readyState()) === 2);
    expect(await seen()).toHaveLength(4);
    await page.close();
  }, 60_000);
});
