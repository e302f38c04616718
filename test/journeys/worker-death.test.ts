/** A worker that dies loses its commands once, and says so; nothing is ever started again. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete, expectNothing } from '../support/expect-tab.js';
import { isRunning, withCommandLine } from '../support/processes.js';
import { createStage, type Stage } from '../support/programs.js';
import type { Tab } from '../support/tab.js';
import { never, until } from '../support/wait.js';

const LEASE_MS = 2000;

describe('the death of a worker', () => {
  let stage: Stage;
  let cluster: Cluster;

  beforeAll(async () => {
    stage = await createStage();
    cluster = await startCluster({ nodes: 1, workers: 1, env: { HOMING_LEASE_MS: String(LEASE_MS) } });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  it('[CO3] kill -9 of the only worker ends its command as lost, once, with no other worker alive; and [CO2] it is never started again when workers come back', async () => {
    const tab = await cluster.tab(0);
    const other = await cluster.tab(0, { name: 'other', conversation: 'other' });
    const commandId = await tab.run(stage.counted('alone'));
    await tab.shows(commandId, 'started');
    const queued = await Promise.all(
      // More than one worker takes at a time: the rest is still waiting when it dies.
      Array.from({ length: 9 }, () => tab.run({ argv: ['/bin/sleep', '600'] })),
    );
    await cluster.worker(0).kill('SIGKILL');
    const killedAt = performance.now();

    const ended = await tab.ended(commandId, LEASE_MS + 8_000);
    expect(ended.params.outcome).toMatchObject({ reason: 'lost', code: null });
    expect(ended.params.outcome.error).toMatch(/\w+ .*\./);
    expect(ended.timeMs - killedAt).toBeLessThan(LEASE_MS + 5_000);
    expectComplete(tab, commandId);

    // A worker comes back; what still waited is run or killed, what was lost stays lost.
    await cluster.worker(0).restart();
    const after = await tab.run({ argv: ['/bin/echo', 'alive'] });
    await Promise.all(queued.map((id) => tab.rpc('command.kill', { commandId: id })));
    await tab.ended(after);
    for (const id of queued) {
      const { outcome } = (await tab.ended(id)).params;
      expect(['lost', 'cancelled']).toContain(outcome.reason);
      expectComplete(tab, id);
    }
    expect(stage.starts('alone')).toBe(1);
    await never('the lost command started again', () => stage.starts('alone') !== 1, LEASE_MS);
    expectComplete(tab, commandId);
    expectNothing(other);
  }, 60_000);

  it('[CO2] with another worker alive it is lost all the same, and that worker does not run it again', async () => {
    await using two = await startCluster({
      nodes: 1,
      workers: 2,
      env: { HOMING_LEASE_MS: '1000', HOMING_CONCURRENCY: '1' },
    });
    const tab = await two.tab(0);
    const first = await tab.run(stage.counted('first'));
    const second = await tab.run(stage.counted('second'));
    await tab.shows(first, 'started');
    await tab.shows(second, 'started');
    const worker = (await tab.rpc('command.get', { commandId: first })).workerId as string;
    const victim = two.workers.find((handle) => handle.id === worker);
    if (victim === undefined) throw new Error('no worker says that it is the one of the record');
    await victim.kill('SIGKILL');
    expect((await tab.ended(first)).params.outcome.reason).toBe('lost');
    expectComplete(tab, first);
    stage.open('second');
    expect((await tab.ended(second)).params.outcome).toMatchObject({ reason: 'exited', code: 0 });
    expect([stage.starts('first'), stage.starts('second')]).toEqual([1, 1]);
  });

  it('[CO3] a worker that was stopped for longer than its lease finds itself without its claim, and kills its process', async () => {
    const tab = await cluster.tab(0);
    const script = 'trap "" TERM; echo started; : while it is paused; while :; do sleep 0.1; done';
    const commandId = await tab.run({ script });
    await tab.shows(commandId, 'started');
    const [program] = withCommandLine(`/bin/sh -c ${script}`);
    if (program === undefined) throw new Error('the command was not found on the host');
    cluster.worker(0).signal('SIGSTOP');
    expect((await tab.ended(commandId)).params.outcome.reason).toBe('lost');
    expect(isRunning(program)).toBe(true);
    cluster.worker(0).signal('SIGCONT');
    await until('the process of the lost command gone', () => !isRunning(program), 10_000);
    expectComplete(tab, commandId);
    // It is still good for work.
    const after = await tab.run({ argv: ['/bin/echo', 'alive'] });
    expect((await tab.ended(after)).params.outcome).toMatchObject({ reason: 'exited', code: 0 });
  });

  it('[CO5] kill means gone: TERM first, and after the kill grace the whole group by force', async () => {
    const tab = await cluster.tab(0);
    const gentle = await tab.run({ script: 'trap "echo bye; exit 3" TERM; echo up; while :; do sleep 0.05; done' });
    await tab.shows(gentle, 'up');
    expect((await tab.rpc('command.kill', { commandId: gentle, graceMs: 10_000 })).state).toBe('requested');
    expect((await tab.ended(gentle)).params.outcome).toMatchObject({ reason: 'cancelled', code: 3 });
    expect(tab.output(gentle)).toMatch(/bye\n$/);

    const stubborn = await tab.run({
      script: `trap '' TERM; (trap '' TERM; exec sleep 600111) & echo up; wait; sleep 600`,
    });
    await tab.shows(stubborn, 'up');
    // Pids that a command sees may be those of a namespace of its own.
    await until('its child', () => withCommandLine('sleep 600111').length === 1);
    await tab.rpc('command.kill', { commandId: stubborn, graceMs: 200 });
    expect((await tab.ended(stubborn)).params.outcome).toMatchObject({ reason: 'cancelled', signal: 'SIGKILL' });
    expect(withCommandLine('sleep 600111')).toEqual([]);
    expect((await tab.rpc('command.kill', { commandId: stubborn })).state).toBe('ended');
    for (const id of [gentle, stubborn]) expectComplete(tab, id);
  });

  it('[CO8] a run that takes longer than it may is ended as timed_out', async () => {
    const tab = await cluster.tab(0);
    const commandId = await tab.run({ argv: ['/bin/sleep', '600'], timeouts: { runMs: 300 } });
    expect((await tab.ended(commandId)).params.outcome).toMatchObject({ reason: 'timed_out', signal: 'SIGTERM' });
    expectComplete(tab, commandId);
  });

  it('[CO6] a grandchild that keeps the pipe open does not hold the end back', async () => {
    const tab = await cluster.tab(0);
    const commandId = await tab.run({ script: '(trap "" HUP; sleep 600) & echo leader is done' });
    const { outcome } = (await tab.ended(commandId, 8_000)).params;
    expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
    expectComplete(tab, commandId);
    expect(tab.output(commandId)).toBe('leader is done\n');
  });

  it('[CO8] a worker that is told to stop takes no more, ends what runs as worker_drained after its time, and exits 0', async () => {
    const tab = await cluster.tab(0);
    const commandId = await tab.run({ argv: ['/bin/sleep', '600'] });
    await tab.waitFor('started', (a) => a.method === 'command.started' && a.params.commandId === commandId);
    cluster.worker(0).signal('SIGTERM');
    // A signal is heard when its process finds the time.
    await until('the worker to hear it', () => /"msg":"draining"/.test(cluster.worker(0).log));
    const waits = await tab.run({ argv: ['/bin/echo', 'later'] });
    expect((await tab.ended(commandId)).params.outcome.reason).toBe('worker_drained');
    await until('the worker to end by itself', () => cluster.worker(0).exitCode !== null);
    expect(cluster.worker(0).exitCode).toBe(0);
    expect(tab.entries(waits)).toEqual([]);
    await cluster.worker(0).restart();
    await tab.ended(waits);
    expectComplete(tab, waits);
  });

  it('[R4] on a machine that stood still nobody is judged by who wakes first: what runs goes on, and no tab loses its socket', async () => {
    await using three = await startCluster({ nodes: 2, workers: 1, env: { HOMING_LEASE_MS: String(LEASE_MS) } });
    const tab = await three.tab(0);
    const commandId = await tab.run(stage.counted('standstill'));
    await tab.shows(commandId, 'started');
    // Everybody has seen everybody's beat.
    await never('an end', () => tab.entries(commandId).length > 2, LEASE_MS / 2);
    const all = [...three.nodes, ...three.workers];
    for (const one of all) one.signal('SIGSTOP');
    await sleep(1.5 * LEASE_MS);
    three.node(1).signal('SIGCONT');
    await sleep(LEASE_MS / 2);
    for (const one of all) one.signal('SIGCONT');
    await never('an end, or a socket that is lost', () => isOver(tab, commandId), 1.5 * LEASE_MS);
    stage.open('standstill');
    expect((await tab.ended(commandId)).params.outcome).toMatchObject({ reason: 'exited', code: 0 });
    expectComplete(tab, commandId);
  }, 60_000);
});

const isOver = (tab: Tab, commandId: string): boolean =>
  tab.socket.ws.readyState !== WebSocket.OPEN ||
  tab.entries(commandId).some(({ method }) => method === 'command.ended');
