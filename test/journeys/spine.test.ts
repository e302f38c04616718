/** The main job: output comes home to exactly the tab that asked, whichever node it is on and whichever worker ran it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectNothing, expectOnly } from '../support/expect-tab.js';
import { lines } from '../support/programs.js';

describe('three nodes, two workers', () => {
  let cluster: Cluster;

  beforeAll(async () => {
    cluster = await startCluster({ nodes: 3, workers: 2 });
  });
  afterAll(() => cluster?.[Symbol.asyncDispose]());

  it('[OW1] two tabs of one conversation on different nodes and one of another each get exactly what they ran', async () => {
    const a = await cluster.tab(0, { name: 'A', conversation: 'shared' });
    const b = await cluster.tab(1, { name: 'B', conversation: 'shared' });
    const c = await cluster.tab(0, { name: 'C', conversation: 'other' });
    const tabs = [a, b, c];

    // All three print at the same time, on whichever worker took them.
    const programs = tabs.map((tab) => lines(`line of ${tab.name}`, 60, 10));
    const ids = await Promise.all(tabs.map((tab, i) => tab.run({ argv: programs[i]?.argv })));
    const endings = await Promise.all(tabs.map((tab, i) => tab.ended(ids[i] as string)));

    for (const [i, tab] of tabs.entries()) {
      expectComplete(tab, ids[i] as string);
      expectOnly(tab, [ids[i] as string]);
      expect(tab.output(ids[i] as string)).toBe(programs[i]?.output);
      expect(endings[i]?.params.outcome).toMatchObject({ reason: 'exited', code: 0, signal: null });
    }
  });

  it('[DE1] a hundred commands of twenty tabs over three nodes arrive in order, complete and once, and nowhere else', async () => {
    const tabs = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        cluster.tab(i % 3, { name: `tab ${i}`, conversation: `load-${i % 5}`, sub: i % 2 === 0 ? 'ann' : 'bob' }),
      ),
    );
    await Promise.all(
      tabs.flatMap((tab, i) =>
        Array.from({ length: 5 }, async (_, j) => {
          const program = lines(`${i}/${j}`, 40);
          const commandId = await tab.run({ argv: program.argv, labels: { of: tab.name } });
          await tab.ended(commandId, 60_000);
          expectComplete(tab, commandId);
          expect(tab.output(commandId)).toBe(program.output);
        }),
      ),
    );
    for (const tab of tabs) {
      expect(tab.ran).toHaveLength(5);
      expectOnly(tab, tab.ran);
    }
  }, 90_000);

  it('[DE2] a command that prints nothing still starts and ends, once each', async () => {
    const tab = await cluster.tab(2);
    const commandId = await tab.run({ argv: ['/bin/true'] });
    await tab.ended(commandId);
    expect(tab.entries(commandId).map((entry) => entry.method)).toEqual(['command.started', 'command.ended']);
    expectComplete(tab, commandId);
  });

  it('[CO8] the exit code, the signal and a program that is not there each have their own ending', async () => {
    const tab = await cluster.tab(1);
    const outcome = async (argv: string[]) => (await tab.ended(await tab.run({ argv }))).params.outcome;
    expect(await outcome(['/bin/sh', '-c', 'echo bad; exit 7'])).toMatchObject({
      reason: 'exited',
      code: 7,
      signal: null,
      outputBytes: 4,
      tail: 'bad\n',
    });
    expect(await outcome(['/bin/sh', '-c', 'kill -TERM $$'])).toMatchObject({ reason: 'signaled', signal: 'SIGTERM' });
    expect(await outcome(['/no/such/program'])).toMatchObject({
      reason: 'spawn_failed',
      code: 127,
      error: expect.stringContaining('/no/such/program'),
    });
    expect(await outcome(['/bin/sh', '-c', 'exit 3'])).not.toHaveProperty('error');
  });

  it('[DE1] split streams keep their names, and bytes that are not UTF-8 or are cut in a character arrive unharmed', async () => {
    const tab = await cluster.tab(0);
    const commandId = await tab.run({
      // A euro sign in two halves with time between, then a byte that is no character at all, then stderr.
      script: `printf '\\342\\202'; sleep 0.1; printf '\\254 ok\\n'; sleep 0.05; printf '\\377\\n'; sleep 0.05; echo oops >&2`,
      streams: 'split',
    });
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    expect(tab.outputBytes(commandId, 'out')).toEqual(
      Buffer.concat([Buffer.from('€ ok\n'), Buffer.from([0xff, 0x0a])]),
    );
    expect(tab.output(commandId, 'err')).toBe('oops\n');
    const texts = tab.entries(commandId).filter((entry) => entry.params.data !== undefined);
    expect(texts.some((entry) => entry.params.data.includes('\uFFFD'))).toBe(false);
  });

  it('[DE1] a client that asked for batches gets the same entries in the same order', async () => {
    const tab = await cluster.tab(0, { batch: true });
    const program = lines('batched', 300);
    const commandId = await tab.run({ argv: program.argv });
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    expect(tab.output(commandId)).toBe(program.output);
  });

  it('[IS2] a viewer gets marked entries only of what it asked for, is never owner, and sees nothing after it detached', async () => {
    const owner = await cluster.tab(0, { name: 'owner' });
    const viewer = await cluster.tab(1, { name: 'viewer' });
    const program = lines('watched', 30, 20);
    const watched = await owner.run({ argv: program.argv });
    const unwatched = await owner.run({ argv: program.argv });
    await viewer.rpc('command.attach', { commandId: watched, fromSeq: 0 });
    await owner.ended(watched);
    await owner.ended(unwatched);
    await viewer.waitFor('the end as a viewer', (a) => a.method === 'command.ended' && a.params.view === true);

    expectComplete(owner, watched);
    expectNothing({ ...viewer, recording: viewer.recording.filter((a) => a.params.view !== true) } as typeof viewer);
    const seen = viewer.recording.filter((a) => a.params.view === true);
    expect(new Set(seen.map((a) => a.params.commandId))).toEqual(new Set([watched]));
    expect(seen.map((a) => a.params.seq)).toEqual(owner.entries(watched).map((a) => a.params.seq));
    expect((await owner.rpc('command.get', { commandId: watched })).ownerSessionId).toBe(owner.sessionId);

    const third = await owner.run({ argv: program.argv });
    await viewer.rpc('command.attach', { commandId: third });
    await viewer.waitFor('an entry as a viewer', (a) => a.params.commandId === third);
    await viewer.rpc('command.detach', { commandId: third });
    const seenBefore = viewer.recording.length;
    await owner.ended(third);
    expect(viewer.recording.slice(seenBefore).filter((a) => a.params.commandId === third)).toEqual([]);
  });

  it('[IS2] the last check at the sockets found nothing misdelivered on any node', async () => {
    for (const index of cluster.nodes.keys()) {
      expect(await cluster.metric(index, 'homing_misdelivered_total')).toBe(0);
    }
  });
});
