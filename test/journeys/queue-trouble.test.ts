/**
 * The queue has a server of its own, and troubles of its own: what is recorded as queued runs once or ends as expired,
 * whatever becomes of its job; and a job alone starts nothing.
 */
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';
import { createStage, type Stage } from '../support/programs.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { newCommandId, placeOf } from '../support/stores.js';
import type { Tab } from '../support/tab.js';
import { never, until } from '../support/wait.js';

const LEASE_MS = 1_000;

describe('queue trouble', () => {
  let stage: Stage;
  let bus: TestRedis;
  let jobs: TestRedis;
  let cluster: Cluster;
  let queue: Queue;
  let connection: Redis;

  beforeAll(async () => {
    [stage, bus, jobs] = await Promise.all([createStage(), startRedis(), startRedis()]);
    cluster = await startCluster({
      ...{ redis: bus, nodes: 1, workers: 1 },
      env: {
        HOMING_QUEUE_REDIS_URL: jobs.url,
        HOMING_LEASE_MS: String(LEASE_MS),
        HOMING_GRACE_MS: '1000',
        HOMING_CONCURRENCY: '4',
      },
    });
    connection = new Redis(jobs.url, { maxRetriesPerRequest: null });
    connection.on('error', () => {});
    queue = new Queue('default', { connection: connection as never, prefix: `{${cluster.prefix}:default}` });
    queue.on('error', () => {});
  });
  afterAll(async () => {
    await queue?.close();
    connection?.disconnect();
    await cluster?.[Symbol.asyncDispose]();
    await jobs?.[Symbol.asyncDispose]();
    await bus?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  const stateOf = async (tab: Tab, commandId: string) => (await tab.rpc('command.get', { commandId })).state as string;
  const exitOf = async (tab: Tab, commandId: string, limitMs = 20_000) =>
    (await tab.ended(commandId, limitMs)).params.outcome;
  /** Ended well, whole at its tab, and started once. */
  async function ranOnce(tab: Tab, commandId: string, gate: string): Promise<void> {
    stage.open(gate);
    expect(await exitOf(tab, commandId)).toMatchObject({ reason: 'exited', code: 0 });
    expectComplete(tab, commandId);
    expect(stage.starts(gate)).toBe(1);
  }

  it('[Q2] with the queue away and the bus up: a submit is answered as queued at once, what runs goes on, and it runs when the queue is back', async () => {
    const tab = await cluster.tab(0);
    const running = await tab.run(stage.chatty('running', 20));
    await tab.shows(running, 'line 5 ');
    await jobs.stop();
    const waiting = await tab.run(stage.counted('waiting'));
    expect(await stateOf(tab, waiting)).toBe('queued');
    const last = Number(/line (\d+) /.exec(tab.output(running).split('\n').at(-2) ?? '')?.[1]);
    await tab.shows(running, `line ${last + 40} `);
    stage.open('running');
    expect(await exitOf(tab, running)).toMatchObject({ reason: 'exited', code: 0 });
    expectComplete(tab, running);
    expect(tab.output(running)).toBe(stage.printed('running'));
    expect(stage.starts('waiting')).toBe(0);
    await jobs.start();
    await tab.shows(waiting, 'started', 30_000);
    await ranOnce(tab, waiting, 'waiting');
  }, 60_000);

  it('[Q1] with the bus away and the queue up: a job that is handed out meanwhile starts nothing, and its command runs once when the bus is back', async () => {
    const tab = await cluster.tab(0);
    const late = await tab.run({ ...stage.counted('late'), delayMs: 1_500 });
    await bus.stop();
    await until('its job taken', async () => (await queue.getJobState(late)) !== 'delayed');
    await never('a start without a claim', () => stage.starts('late') > 0, LEASE_MS);
    await bus.start();
    await tab.shows(late, 'started', 30_000);
    await ranOnce(tab, late, 'late');
  }, 60_000);

  it('[Q1] a queue that an operator paused keeps its commands queued; they run once when it goes on', async () => {
    const tab = await cluster.tab(0);
    await queue.pause();
    const paused = await tab.run(stage.counted('paused'));
    await never('a start while it is paused', () => stage.starts('paused') > 0, 2 * LEASE_MS);
    expect(await stateOf(tab, paused)).toBe('queued');
    await queue.resume();
    await tab.shows(paused, 'started');
    await ranOnce(tab, paused, 'paused');
  });

  it('[CO8] a command of a pool without a worker ends as expired after its queueMs, once, and its job goes', async () => {
    const tab = await cluster.tab(0, { token: cluster.token({ pools: ['default', 'gpu'] }) });
    const commandId = await tab.run({ argv: ['/bin/true'], pool: 'gpu', timeouts: { queueMs: 1_200 } });
    const askedMs = performance.now();
    const ended = await tab.ended(commandId);
    expect(ended.params.outcome).toMatchObject({ reason: 'expired', code: null });
    expect(ended.timeMs - askedMs).toBeLessThan(4_500);
    expectComplete(tab, commandId);
    const gpu = new Queue('gpu', { connection: connection as never, prefix: `{${cluster.prefix}:gpu}` });
    await until('its job gone', async () => (await gpu.getJob(commandId)) === undefined);
    await gpu.close();
    // A worker that comes for the pool later finds nothing to start.
    expect(await stateOf(tab, commandId)).toBe('ended');
  });

  it('[CO2] [Q3] a job that a failover shows again after its command ended is not started', async () => {
    const tab = await cluster.tab(0);
    const commandId = await tab.run(stage.counted('again'));
    await tab.shows(commandId, 'started');
    await ranOnce(tab, commandId, 'again');
    const job = await until('the job over', async () => {
      const found = await queue.getJob(commandId);
      return found !== undefined && (await found.isCompleted()) && found;
    });
    const { name, data, opts } = job;
    await job.remove();
    await queue.add(name, data, { ...opts, jobId: commandId });
    await until('the job over again', async () => {
      const state = await queue.getJobState(commandId);
      return state === 'completed' || state === 'failed';
    });
    expect(stage.starts('again')).toBe(1);
    expectComplete(tab, commandId);
  });

  it('[Q1] a job without a record, and one that is none of ours, start nothing, end, and do not come back', async () => {
    const tab = await cluster.tab(0);
    const unknown = newCommandId(placeOf('ann', 'demo'));
    const data = { v: 1, commandId: unknown, conversation: 'demo', tenant: 'default', principal: 'ann', program: 'x' };
    await queue.add('x', data, { jobId: unknown });
    await queue.add('stranger', { hello: 'world' }, { jobId: 'not-ours' });
    for (const id of [unknown, 'not-ours']) {
      await until(`the end of job ${id}`, async () => ['completed', 'failed'].includes(await queue.getJobState(id)));
    }
    await expect(tab.rpc('command.get', { commandId: unknown })).rejects.toMatchObject({ code: 'UNKNOWN_COMMAND' });
    const added = await cluster.metric(0, 'homing_reconciler_actions_total');
    await never('a job again', async () => (await queue.getActiveCount()) > 0, 2 * LEASE_MS);
    expect(await cluster.metric(0, 'homing_reconciler_actions_total')).toBe(added);
  });

  it('[Q1] a job that was removed behind our back is added again, and its command runs once', async () => {
    const tab = await cluster.tab(0);
    await queue.pause();
    const removed = await tab.run(stage.counted('removed'));
    await queue.remove(removed);
    await until('its job added again', async () => (await queue.getJob(removed)) !== undefined, 20_000);
    await queue.resume();
    await tab.shows(removed, 'started');
    await ranOnce(tab, removed, 'removed');
  }, 60_000);
});
