/** How output travels: one sharded channel for each attached session, one subscriber, no patterns, no broadcast. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectOnly } from '../support/expect-tab.js';
import { createStage, lines, type Stage } from '../support/programs.js';
import { until } from '../support/wait.js';

describe('channels', () => {
  let cluster: Cluster;
  let stage: Stage;
  let admin: Redis;

  beforeAll(async () => {
    stage = await createStage();
    cluster = await startCluster({ nodes: 3, workers: 2 });
    admin = new Redis(cluster.redis.url);
  });
  afterAll(async () => {
    admin?.disconnect();
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  /** Subscribers of every sharded channel that carries a session. */
  const sessionChannels = async (): Promise<Map<string, number>> => {
    const channels = ((await admin.call('PUBSUB', 'SHARDCHANNELS')) as string[]).filter((name) =>
      name.includes(':s:ses_'),
    );
    if (channels.length === 0) return new Map();
    const counts = (await admin.call('PUBSUB', 'SHARDNUMSUB', ...channels)) as (string | number)[];
    return new Map(channels.map((name, i) => [name, Number(counts[2 * i + 1])]));
  };

  it('[IS2] under load no session channel has more than one subscriber, and there are no pattern subscriptions', async () => {
    const tabs = await Promise.all(
      Array.from({ length: 12 }, (_, i) => cluster.tab(i % 3, { name: `tab ${i}`, conversation: `channels-${i % 4}` })),
    );
    const program = lines('load', 100, 5);
    const running = Promise.all(
      tabs.map(async (tab) => {
        const commandId = await tab.run({ argv: program.argv });
        await tab.ended(commandId);
        expectComplete(tab, commandId);
      }),
    );
    let over = false;
    const done = running.finally(() => {
      over = true;
    });
    let most = 0;
    let seen = 0;
    while (!over) {
      const channels = await sessionChannels();
      most = Math.max(most, ...channels.values(), 0);
      seen = Math.max(seen, channels.size);
      expect(await admin.call('PUBSUB', 'NUMPAT')).toBe(0);
    }
    await done;
    expect(most).toBe(1);
    expect(seen).toBe(tabs.length);
    for (const tab of tabs) expectOnly(tab, tab.ran);
    // Nothing is shared: outside the session channels only probes, nudges and questions are subscribed to.
    const plain = (await admin.call('PUBSUB', 'CHANNELS')) as string[];
    expect(plain.filter((name) => name.includes('ses_') || name.includes('cmd_'))).toEqual([]);
  });

  it('[IS2] a takeover has two subscribers for a moment at most, and a tab that goes away leaves none', async () => {
    const tab = await cluster.tab(0, { conversation: 'takeover' });
    const commandId = await tab.run(stage.chatty('takeover', 5));
    await tab.shows(commandId, 'line 10 ');
    const mine = async () =>
      [...(await sessionChannels())]
        .filter(([name]) => name.endsWith(tab.sessionId))
        .reduce((sum, [, n]) => sum + n, 0);
    expect(await mine()).toBe(1);
    await tab.resume(cluster.node(1).url);
    expect(await mine()).toBeLessThanOrEqual(2);
    await until('one subscriber again', async () => (await mine()) === 1, 5_000);
    stage.open('takeover');
    await tab.ended(commandId);
    await tab.drop();
    await until('no subscriber', async () => (await mine()) === 0, 5_000);
  });

  it('[IS1] a job shows an operator its origin, conversation and program in the queue, and nothing of its environment', async () => {
    const tab = await cluster.tab(0, { conversation: 'queue-view' });
    const commandId = await tab.run({
      ...stage.gated('queue-view', 'a', 'b'),
      env: { PASSPHRASE: 'do-not-show-me' },
    });
    await tab.shows(commandId, 'a');
    const keys = await admin.keys(`*${commandId}`);
    const jobKey = keys.find((key) => key.startsWith(`{${cluster.prefix}:default}`));
    if (jobKey === undefined) throw new Error(`no job of ${commandId} among ${keys.join(' ')}`);
    const job = await admin.hgetall(jobKey);
    const text = JSON.stringify(job);
    expect(text).toContain(tab.sessionId);
    expect(text).toContain('queue-view');
    expect(text).toContain('sh');
    expect(text).not.toContain('do-not-show-me');
    stage.open('queue-view');
    await tab.ended(commandId);
  });
});
