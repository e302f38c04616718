/** Limits with real processes: a tab that starts many commands, and what it sees of those that wait. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';
import { createStage, type Stage } from '../support/programs.js';

describe('limits', () => {
  let cluster: Cluster;
  let stage: Stage;
  beforeAll(async () => {
    stage = await createStage();
    cluster = await startCluster({
      nodes: 2,
      workers: 2,
      env: { HOMING_MAX_RUNNING_PER_SESSION: '2', HOMING_MAX_RUNNING: '3' },
    });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  const look = async (id: string) =>
    (await cluster.http('GET', `/v1/commands/${id}`)).json as { state: string; held?: string };

  it('[CO11] two of a tab’s commands run, one of another tab, and the others when these are over', async () => {
    const tab = await cluster.tab(0, { conversation: 'mine' });
    const other = await cluster.tab(1, { conversation: 'yours' });
    const ids: string[] = [];
    for (const name of ['a', 'b', 'c', 'd']) ids.push(await tab.run(stage.counted(name)));
    const [first, second, third, fourth] = ids as [string, string, string, string];
    const theirs = [await other.run(stage.counted('e')), await other.run(stage.counted('f'))] as const;
    expect(await Promise.all([third, fourth, theirs[1]].map(look))).toMatchObject([
      { state: 'queued', held: 'session' },
      { state: 'queued', held: 'session' },
      { state: 'queued', held: 'tenant' },
    ]);
    expect((await look(theirs[0])).held).toBeUndefined();

    // A kill of one that waits ends it at once, and a place is given on.
    expect((await cluster.http('POST', `/v1/commands/${fourth}/kill`, { body: {} })).json.state).toBe('ended');
    await tab.ended(fourth);
    stage.open('f');
    stage.open('e');
    await other.ended(theirs[0]);
    await other.ended(theirs[1]);
    expect((await look(third)).held).toBe('session');
    for (const name of ['a', 'b', 'c']) stage.open(name);
    for (const id of [first, second, third]) {
      await tab.ended(id);
      expectComplete(tab, id);
    }
    expect(['a', 'b', 'c', 'd', 'e', 'f'].map((name) => stage.starts(name))).toEqual([1, 1, 1, 0, 1, 1]);
  });
});
