/**
 * The same attempts as in the journeys, on a product in which the rules were switched off: now they succeed, which shows
 * that the journeys would notice. Every fence alone is tried in test/contracts/fences.test.ts.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { deliveryFaults, foreignFaults } from '../support/recording.js';
import { createTab } from '../support/tab.js';
import { until } from '../support/wait.js';

describe('rules switched off', () => {
  let cluster: Cluster;

  beforeAll(async () => {
    cluster = await startCluster({
      nodes: 2,
      // Some rules are checked by the node first and by a script in the end: then both are taken out.
      without: {
        fences: ['attach: resume token', 'attach: duplicated tab', 'submit: origin', 'ack: acks only rise'],
        switches: [
          { file: 'gateway/http-commands.js', rule: 'home.principal !== principal', off: 'false' },
          { file: 'gateway/attached-session.js', rule: 'seq <= stream.sentSeq', off: 'true' },
          { file: 'protocol/token.js', rule: 'thing.principal === claims.principal &&', off: '' },
        ],
      },
    });
  });
  afterAll(() => cluster?.[Symbol.asyncDispose]());

  it('[SE2] twin: a guessed resume token gets the whole output', async () => {
    const ann = await cluster.tab(0, { conversation: 'guess' });
    const commandId = await ann.run({ argv: ['/bin/echo', 'the secret'] });
    await ann.ended(commandId);
    await using thief = createTab({
      token: cluster.token(),
      session: { sessionId: ann.sessionId, resumeToken: 'guessed' },
    });
    await thief.resume(cluster.node(1).url, { cursors: { [commandId]: 0 } });
    await thief.ended(commandId);
    expect(foreignFaults(thief.recording, thief.ran)).not.toEqual([]);
  });

  it('[SE4] twin: a duplicated browser tab takes the session from the first one', async () => {
    const ann = await cluster.tab(0, { conversation: 'duplicate' });
    const first = ann.socket;
    await ann.resume(cluster.node(1).url, { pageNonce: 'another page' });
    expect((await first.closed).code).toBe(4500);
  });

  it('[OW5] twin: what a stranger submits comes to ann', async () => {
    const ann = await cluster.tab(0, { conversation: 'origin' });
    const { status, json } = await cluster.http('POST', '/v1/commands', {
      token: cluster.token({ sub: 'bob' }),
      body: { conversation: 'origin', originSessionId: ann.sessionId, argv: ['/bin/echo', 'from bob'] },
    });
    expect(status).toBe(202);
    await ann.ended(json.commandId);
    expect(foreignFaults(ann.recording, ann.ran)).not.toEqual([]);
  });

  it('[IS1] twin: a stranger in the same conversation reads the log', async () => {
    const ann = await cluster.tab(0, { conversation: 'log' });
    const bob = await cluster.tab(1, { conversation: 'log', sub: 'bob' });
    const commandId = await ann.run({ argv: ['/bin/echo', 'the secret'] });
    await ann.ended(commandId);
    const { raw } = await cluster.http('GET', `/v1/commands/${commandId}/log`, {
      token: cluster.token({ sub: 'bob' }),
    });
    expect(raw.toString()).toBe('the secret\n');
    expect((await bob.rpc('command.get', { commandId })).commandId).toBe(commandId);
  });

  it('[DE6] twin: an acknowledgement from nowhere leaves a page without memory without its entries', async () => {
    const ann = await cluster.tab(0, { conversation: 'ack' });
    const commandId = await ann.run({ script: 'echo one; sleep 600' });
    await ann.shows(commandId, 'one');
    ann.ack({ [commandId]: 1_000 });
    await until('the acknowledgement stored', async () => {
      return (await ann.rpc('command.get', { commandId })).ackedSeq === 1_000;
    });
    await ann.rpc('command.kill', { commandId });
    await ann.ended(commandId);
    await ann.drop();
    ann.forget();
    await ann.resume(cluster.node(1).url, { cursors: {} });
    await ann.drop();
    expect(deliveryFaults(ann.recording, { commandId, fromSeq: 2 })).not.toEqual([]);
  });
});
