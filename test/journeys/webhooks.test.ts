/** A backend that holds no connection is told of an end: signed, at least once, and only where the operator allows it. */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { createStage, type Stage } from '../support/programs.js';
import { until } from '../support/wait.js';

const SECRET = `whsec_${randomBytes(24).toString('base64')}`;

interface Call {
  readonly path: string;
  readonly id: string;
  // biome-ignore lint/suspicious/noExplicitAny: bodies are looked at, not trusted
  readonly body: any;
  readonly signed: boolean;
  readonly text: string;
}

let cluster: Cluster;
let stage: Stage;
let receiver: Server;
let url = '';
const calls: Call[] = [];
/** What the next calls are answered; 204 when there is nothing. 0: the connection is cut. */
const answers: { status: number; location?: string }[] = [];

/** As a receiver does it that knows nothing but Standard Webhooks. */
function isSigned(headers: Record<string, unknown>, body: string): boolean {
  const key = Buffer.from(SECRET.slice('whsec_'.length), 'base64');
  const { 'webhook-id': id, 'webhook-timestamp': seconds, 'webhook-signature': given } = headers;
  if (Math.abs(Date.now() / 1_000 - Number(seconds)) > 300) return false;
  const expected = `v1,${createHmac('sha256', key).update(`${id}.${seconds}.${body}`).digest('base64')}`;
  return expected.length === String(given).length && timingSafeEqual(Buffer.from(expected), Buffer.from(String(given)));
}

beforeAll(async () => {
  receiver = createServer((request, response) => {
    let text = '';
    request.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    request.on('end', () => {
      const id = String(request.headers['webhook-id']);
      calls.push({
        path: request.url ?? '',
        id,
        text,
        body: JSON.parse(text || 'null'),
        signed: isSigned(request.headers, text),
      });
      const { status, location } = answers.shift() ?? { status: 204 };
      if (status === 0) return void request.socket.destroy();
      response.writeHead(status, location === undefined ? {} : { location }).end();
    });
  });
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
  cluster = await startCluster({
    nodes: 2,
    workers: 1,
    env: {
      HOMING_WEBHOOK_ALLOW: `${url}/hooks`,
      HOMING_WEBHOOK_SECRET: SECRET,
      HOMING_SECRET_KEY: randomBytes(32).toString('base64'),
    },
  });
  stage = await createStage();
});
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  await stage?.[Symbol.asyncDispose]();
  receiver?.closeAllConnections();
  receiver?.close();
});
beforeEach(() => {
  calls.length = 0;
  answers.length = 0;
});

const submit = async (spec: object, webhook = `${url}/hooks/done`) => {
  const body = { conversation: 'hooks', notify: { webhook }, ...spec };
  return cluster.http('POST', '/v1/commands', { body });
};
const callFor = (commandId: string, what = 'its call') =>
  until(what, () => calls.find(({ id }) => id.startsWith(commandId)), 20_000);

describe('a webhook', () => {
  it('tells an address of the end, with the outcome, signed, under an id of its own', async () => {
    const { json } = await submit({ script: 'echo told; exit 3', labels: { step: 'build' } });
    const call = await callFor(json.commandId);
    expect(call).toMatchObject({ path: '/hooks/done', id: `${json.commandId}-ended`, signed: true });
    expect(call.body).toMatchObject({
      type: 'command.ended',
      command: {
        commandId: json.commandId,
        state: 'ended',
        labels: { step: 'build' },
        outcome: { reason: 'exited', code: 3, tail: 'told\n' },
      },
    });
  });

  it('is sent again when it is refused, cut off or redirected, under the same id, and not after it was taken', async () => {
    answers.push({ status: 500 }, { status: 0 }, { status: 302, location: `${url}/elsewhere` });
    const { json } = await submit({ script: 'true' });
    await until('the fourth call', () => calls.length === 4, 25_000);
    expect(new Set(calls.map(({ id }) => id))).toEqual(new Set([`${json.commandId}-ended`]));
    expect(calls.every(({ path, signed }) => path === '/hooks/done' && signed)).toBe(true);
    const after = await submit({ script: 'true' });
    await callFor(after.json.commandId);
    expect(calls.filter(({ id }) => id.startsWith(json.commandId))).toHaveLength(4);
  }, 40_000);

  it('[CO3] is sent for a command whose worker died', async () => {
    await using own = await startCluster({
      redis: cluster.redis,
      env: { HOMING_WEBHOOK_ALLOW: `${url}/hooks`, HOMING_WEBHOOK_SECRET: SECRET },
    });
    const body = { conversation: 'hooks', argv: ['sleep', '600'], notify: { webhook: `${url}/hooks/lost` } };
    const { json } = await own.http('POST', '/v1/commands', { body });
    await until(
      'its start',
      async () => (await own.http('GET', `/v1/commands/${json.commandId}`)).json.state === 'running',
    );
    await own.worker(0).kill();
    expect((await callFor(json.commandId)).body.command.outcome.reason).toBe('lost');
  }, 60_000);

  it('is sent for a command that was ended before it started', async () => {
    const { json } = await submit({ script: 'true', delayMs: 60_000 });
    await cluster.http('POST', `/v1/commands/${json.commandId}/kill`, { body: {} });
    expect((await callFor(json.commandId)).body.command.outcome.reason).toBe('cancelled');
  });

  it('[CO10] carries no secret in clear', async () => {
    const secret = `s3cret-${randomBytes(8).toString('hex')}`;
    const { json } = await submit({ script: 'echo "the key is $KEY"', secrets: { KEY: secret } });
    const call = await callFor(json.commandId);
    expect(call.body.command.outcome.tail).toMatch(/^the key is /);
    expect(call.text).not.toContain(secret);
  });

  it('[IS1] goes nowhere that the operator does not allow', async () => {
    for (const webhook of [`${url}/hooksome`, `${url}/`, 'http://127.0.0.1:6379/', 'http://169.254.169.254/latest']) {
      const { status, json } = await submit({ script: 'true' }, webhook);
      expect([status, json.code, json.field], webhook).toEqual([403, 'FORBIDDEN', 'notify.webhook']);
    }
    const none = await submit({ script: 'true' }, 'nowhere');
    expect([none.status, none.json.code]).toEqual([400, 'INVALID_PARAMS']);
  });

  it('is refused with a sentence where the operator allows none', async () => {
    await using bare = await startCluster({ redis: cluster.redis, workers: 0 });
    const body = { conversation: 'hooks', script: 'true', notify: { webhook: `${url}/hooks` } };
    const { status, json } = await bare.http('POST', '/v1/commands', { body });
    expect([status, json.code, json.field]).toEqual([400, 'INVALID_PARAMS', 'notify.webhook']);
    expect(json.message).toContain('HOMING_WEBHOOK_ALLOW is not set');
  });
});
