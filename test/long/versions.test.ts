/**
 * Two builds side by side on one Redis, as during an upgrade: nodes and workers of both, commands of each run by each, tabs that go
 * from one to the other and back (V1). The other build is at HOMING_TEST_OLD; without it there is nothing to try:
 *
 *   git worktree add ../old v0.1.0 && (cd ../old && npm ci)
 *   HOMING_TEST_LONG=1 HOMING_TEST_OLD=../old npx vitest run test/long/versions.test.ts
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';

const old = process.env.HOMING_TEST_OLD;

describe.skipIf(old === undefined)('versions n - 1 and n side by side', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await startCluster({ nodes: 2, workers: 2, build: (_role, index) => (index === 0 ? old : undefined) });
  });
  afterAll(() => cluster?.[Symbol.asyncDispose]());

  it('[OW1] [DE1] commands of tabs at either node are run by workers of both, and come home whole', async () => {
    for (const node of [0, 1]) {
      const tab = await cluster.tab(node, { conversation: `both-${node}` });
      const ids = await Promise.all(
        Array.from({ length: 40 }, (_, i) => tab.run({ script: `echo ${i}; sleep 0.2; echo ${i} done` })),
      );
      await Promise.all(ids.map((id) => tab.ended(id)));
      const workers = new Set(
        tab.recording.filter(({ method }) => method === 'command.started').map(({ params }) => params.workerId),
      );
      expect([...workers].sort()).toEqual(cluster.workers.map(({ id }) => id).sort());
      for (const [i, id] of ids.entries()) {
        expect(tab.output(id)).toBe(`${i}\n${i} done\n`);
        expectComplete(tab, id);
      }
    }
  });

  it.each([
    ['n - 1', 'n', 0, 1],
    ['n', 'n - 1', 1, 0],
  ] as const)(
    '[SE3] [DE1] a tab of version %s resumes at version %s in mid-output, and nothing is missing',
    async (_a, _b, from, to) => {
      const tab = await cluster.tab(from, { conversation: `resume-${from}` });
      const id = await tab.run({ script: 'i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.02; done' });
      await tab.waitFor('output', ({ method }) => method === 'command.output');
      await tab.drop();
      await tab.resume(cluster.node(to).url);
      await tab.ended(id);
      expect(tab.output(id)).toBe(Array.from({ length: 40 }, (_, i) => `line ${i + 1}\n`).join(''));
      expectComplete(tab, id);
    },
  );

  it.each([
    ['n - 1', 'n', 0, 1],
    ['n', 'n - 1', 1, 0],
  ] as const)(
    '[OW2] [CO5] a command moves from a tab of version %s to one of version %s, which writes to it and ends it',
    async (_a, _b, from, to) => {
      const conversation = `move-${from}`;
      const [first, second] = [await cluster.tab(from, { conversation }), await cluster.tab(to, { conversation })];
      const id = await first.run({ argv: ['cat'], stdin: 'pipe' });
      await first.waitFor('the start', ({ method }) => method === 'command.started');
      await first.close();
      await second.waitFor('the move', ({ method, params }) => method === 'command.owner' && params.commandId === id);
      await second.rpc('command.write', { commandId: id, offset: 0, data: 'over there\n' });
      await second.waitFor('the echo', ({ method, params }) => method === 'command.output' && params.commandId === id);
      await second.rpc('command.kill', { commandId: id, graceMs: 0 });
      const ended = await second.ended(id);
      expect(ended.params.outcome).toMatchObject({ reason: 'cancelled' });
      expect(second.output(id)).toBe('over there\n');
    },
  );

  it('[CO3] [OW4] a worker of version n - 1 that dies is judged by the others, and what it ran ends as lost, once', async () => {
    const tab = await cluster.tab(1, { conversation: 'judged' });
    const ids = await Promise.all(Array.from({ length: 10 }, () => tab.run({ argv: ['sleep', '60'] })));
    await tab.waitFor('all', () => tab.recording.filter(({ method }) => method === 'command.started').length >= 10);
    const startedAt = (id: string) =>
      tab.recording.find(({ method, params }) => method === 'command.started' && params.commandId === id)?.params
        .workerId;
    const lost = ids.filter((id) => startedAt(id) === cluster.worker(0).id);
    expect(lost.length).toBeGreaterThan(0);
    await cluster.worker(0).kill();
    await Promise.all(lost.map((id) => tab.ended(id)));
    for (const id of lost) {
      const ends = tab.recording.filter(({ method, params }) => method === 'command.ended' && params.commandId === id);
      expect(ends.map(({ params }) => params.outcome.reason)).toEqual(['lost']);
    }
  });

  it('[IS2] nothing went astray in all of it', async () => {
    for (const node of [0, 1]) expect(await cluster.metric(node, 'homing_misdelivered_total')).toBe(0);
  });
});
