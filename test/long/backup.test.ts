/**
 * A copy of Redis' folder is put back, as after the loss of its host (docs/operating.md): what a living process still holds goes on,
 * what nobody holds any more ends as lost, and what was submitted since is submitted again with its key.
 */
import { cp, rm } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { until } from '../support/wait.js';

let redis: TestRedis;
let cluster: Cluster;
beforeAll(async () => {
  redis = await startRedis();
  cluster = await startCluster({ nodes: 1, workers: 2, redis });
});
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
  await rm(`${redis.folder}-copy`, { recursive: true, force: true });
});

it('[R2] [CO3] [CO1] a copy of the data is restored under living nodes and workers', { timeout: 120_000 }, async () => {
  const tab = await cluster.tab(0, { conversation: 'backup' });
  const startedBy = (id: string) =>
    tab.recording.find(({ method, params }) => method === 'command.started' && params.commandId === id)?.params
      .workerId;
  const counting = 'i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.05; done';
  // One command on each worker, whichever takes it.
  const ids: string[] = [];
  for (const worker of cluster.workers) {
    const id = await until('a command on each worker', async () => {
      const made = await tab.run({ script: counting });
      await tab.waitFor('its start', () => startedBy(made) !== undefined);
      if (startedBy(made) === worker.id) return made;
      await tab.rpc('command.kill', { commandId: made, graceMs: 0 });
      return undefined;
    });
    ids.push(id);
  }
  const [kept, orphan] = ids as [string, string];

  await redis.stop();
  await cp(redis.folder, `${redis.folder}-copy`, { recursive: true });
  await redis.start();
  const after = await until('a submit after the copy', () =>
    tab.run({ argv: ['echo', 'since'], idempotencyKey: 'since' }).catch(() => undefined),
  );
  await tab.ended(after);
  await until('more output than the copy has', () => tab.output(kept).split('\n').length > 60, 60_000);

  await redis.kill();
  await cluster.worker(1).kill();
  await rm(redis.folder, { recursive: true });
  await cp(`${redis.folder}-copy`, redis.folder, { recursive: true });
  await redis.start();

  await tab.ended(kept, 60_000);
  expect(tab.output(kept)).toBe(Array.from({ length: 400 }, (_, i) => `line ${i + 1}\n`).join(''));
  expectComplete(tab, kept);
  const lost = await tab.ended(orphan, 60_000);
  expect(lost.params.outcome.reason).toBe('lost');
  const again = await until('a submit with the same key', () =>
    tab.run({ argv: ['echo', 'since'], idempotencyKey: 'since' }).catch(() => undefined),
  );
  expect(again).toBe(after);
});
