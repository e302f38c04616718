/** Pages of other origins over HTTP: those that are named may, with what a preflight says; others are refused. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { claimToWrite } from '../support/log-writer.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { makeToken } from '../support/tokens.js';

const secret = 'a secret of at least 32 characters';
/** As `startTestNode` allows it. */
const ALLOWED = 'https://app.example';

describe('a page of another origin', () => {
  let redis: TestRedis;
  let stores: Stores;
  let node: TestNode;
  beforeAll(async () => {
    redis = await startRedis();
    stores = await createStores(redis.url);
    node = await startTestNode({ redis, stores, secret });
  });
  afterAll(async () => {
    await node?.close();
    await stores?.[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
  });

  const ask = (path: string, origin: string, init: RequestInit = {}) =>
    fetch(node.url + path, {
      ...init,
      headers: { origin, authorization: `Bearer ${makeToken(secret, { sub: 'ann' })}`, ...init.headers },
    });
  const preflight = (origin: string, path = '/v1/commands') =>
    ask(path, origin, {
      method: 'OPTIONS',
      headers: {
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type,idempotency-key,last-event-id',
      },
    });
  const words = (text: string | null) => (text ?? '').toLowerCase().split(/, */);

  it('[IS1] that is named gets a preflight for what the SDK sends, to be remembered, and no cookies', async () => {
    const answer = await preflight(ALLOWED);
    expect(answer.status).toBe(204);
    const { headers } = answer;
    expect(headers.get('access-control-allow-origin')).toBe(ALLOWED);
    expect(words(headers.get('access-control-allow-methods'))).toEqual(['get', 'post']);
    const sent = ['authorization', 'content-type', 'idempotency-key', 'last-event-id'];
    expect(words(headers.get('access-control-allow-headers'))).toEqual(sent);
    expect(headers.get('access-control-max-age')).toBe('600');
    expect(headers.get('access-control-allow-credentials')).toBeNull();
    expect(words(headers.get('vary'))).toContain('origin');
  });

  it('that is named may read answers, errors, their headers and streams of events', async () => {
    const body = JSON.stringify({ conversation: 'cors', argv: ['true'] });
    const made = await ask('/v1/commands', ALLOWED, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    expect(made.status).toBe(202);
    expect(made.headers.get('access-control-allow-origin')).toBe(ALLOWED);
    const exposed = words(made.headers.get('access-control-expose-headers'));
    expect(exposed).toEqual(['location', 'retry-after', 'content-disposition']);
    const { commandId } = (await made.json()) as { commandId: string };
    await (await claimToWrite(stores, commandId)).end();
    const events = await ask(`/v1/commands/${commandId}/events`, ALLOWED);
    expect(events.headers.get('access-control-allow-origin')).toBe(ALLOWED);
    expect(await events.text()).toContain('event: command.ended');
    const failed = await ask('/v1/commands/nothing', ALLOWED);
    expect([failed.status, failed.headers.get('access-control-allow-origin')]).toEqual([404, ALLOWED]);
  });

  it('[IS1] that is not named is refused, and told nothing that its browser would pass on', async () => {
    for (const origin of ['https://evil.example', 'https://app.example.evil.example', 'null']) {
      for (const answer of [await preflight(origin), await ask('/openapi.json', origin)]) {
        expect(answer.status).toBe(403);
        expect(answer.headers.get('access-control-allow-origin')).toBeNull();
      }
    }
  });

  it('the operators’ port allows no page of another origin', async () => {
    const answer = await fetch(`${node.opsUrl}/livez`, { headers: { origin: ALLOWED } });
    expect([answer.status, answer.headers.get('access-control-allow-origin')]).toEqual([403, null]);
  });
});
