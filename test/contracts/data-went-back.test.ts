/** Redis forgets what it had taken: what worker and node make of that, each on its own (R2, L2, L3, DE2). */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CommandId } from '../../src/protocol/ids.js';
import { claimToWrite } from '../support/log-writer.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createStage } from '../support/programs.js';
import { deliveryFaults } from '../support/recording.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { openTab } from '../support/tab.js';
import { program, readWholeLog, script, startWorkerOn, submitFromTab } from '../support/test-worker.js';
import { makeToken } from '../support/tokens.js';
import { until, within } from '../support/wait.js';

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

const partsOf = (id: CommandId) => [stores.keys.command(id), stores.keys.first(id), stores.keys.last(id)];

/** What is stored of a command now, to be brought back later. */
async function remember(id: CommandId) {
  const dumps: [string, Buffer | null][] = [];
  for (const key of partsOf(id)) dumps.push([key, (await stores.redis.dumpBuffer(key)) as Buffer | null]);
  return async () => {
    const all = stores.redis.multi();
    for (const [key, bytes] of dumps) {
      all.del(key);
      if (bytes !== null) all.restore(key, 0, bytes);
    }
    await all.exec();
  };
}
const logOf = (id: CommandId) => readWholeLog(stores, id);
const shows = (id: CommandId, text: string) =>
  until(`"${text}" in the log`, async () => (await logOf(id)).output.includes(text));

describe('a worker', () => {
  it('[L3][DE2] ends a command again that Redis has running again, with the same entries', async () => {
    await using stage = await createStage();
    await using test = await startWorkerOn(stores, redis.url);
    const id = await submitFromTab(stores, stage.gated('remembered', 'line 1', 'line 2'));
    const over = test.run(id);
    await shows(id, 'line 1\n');
    const back = await remember(id);
    stage.open('remembered');
    await within('the end', over);
    const before = await logOf(id);
    await back();
    expect((await stores.commands.get(id))?.snapshot.state).toBe('running');
    test.worker.serverChanged();
    await until('the end again', async () => (await stores.commands.get(id))?.snapshot.state === 'ended');
    expect((await logOf(id)).entries).toEqual(before.entries);
    expect((await stores.commands.get(id))?.snapshot.outcome).toEqual(before.outcome);
  });

  it('[L3] ends as lost what is recorded as running here and is not', async () => {
    await using test = await startWorkerOn(stores, redis.url, { leaseMs: 600 });
    const id = await submitFromTab(stores, script('true'));
    await stores.presence.noteWorkerCommand(test.worker.workerId, id);
    await stores.commands.claim(id, `clm_${'x'.repeat(26)}` as never, test.worker.workerId, 'group');
    await until('its end', async () => (await stores.commands.get(id))?.snapshot.state === 'ended');
    expect((await stores.commands.get(id))?.snapshot.outcome?.reason).toBe('lost');
    expect(await stores.presence.workerCommands(test.worker.workerId)).toEqual([]);
  });

  it('[R2][DE1] gives a command back that Redis has lost, with all it has printed, and lets it run', async () => {
    await using test = await startWorkerOn(stores, redis.url);
    const id = await submitFromTab(stores, program('count.sh', '40', '0.05'));
    const over = test.run(id);
    await shows(id, 'line 5\n');
    await stores.redis.del(...partsOf(id));
    await within('the end', over);
    const { output, entries, outcome } = await logOf(id);
    expect(output.toString()).toBe(Array.from({ length: 40 }, (_, n) => `line ${n + 1}\n`).join(''));
    expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, n) => n + 1));
    expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
  });
});

describe('a node', () => {
  const secret = randomBytes(32).toString('hex');
  let node: TestNode;
  beforeAll(async () => {
    node = await startTestNode({ redis, stores, secret });
  });
  afterAll(async () => {
    await node.close();
  });
  const tabHere = () => openTab(node.url, { token: makeToken(secret, { sub: 'ann' }) });

  it.concurrent('[DE2] tells a tab that a command is lost which neither Redis nor a worker knows any more', async () => {
    await using tab = await tabHere();
    const id = await tab.run({ argv: ['true'] });
    const writer = await claimToWrite(stores, id);
    await writer.print('one');
    await tab.shows(id, 'one');
    await stores.redis.del(...partsOf(id as CommandId));
    const ended = await tab.ended(id, 12_000);
    expect(ended.params.outcome).toMatchObject({ reason: 'lost' });
    expect(ended.params.outcome.error).toContain('Redis lost this command');
    expect(deliveryFaults(tab.recording, { commandId: id })).toEqual([]);
  }, 20_000);

  it.concurrent('[L2][DE3] tells exactly which entries are lost when nobody repairs the log, and goes on after them', async () => {
    await using tab = await tabHere();
    const id = await tab.run({ argv: ['true'] });
    const writer = await claimToWrite(stores, id);
    await writer.print('one');
    const back = await remember(id as CommandId);
    await writer.print('two');
    await writer.print('three');
    await tab.shows(id, 'three');
    await back();
    const lost = await tab.waitFor('the gap', (a) => a.method === 'command.gap', 15_000);
    const sent = tab.entries(id).filter(({ method }) => method === 'command.output');
    const [, two, three] = sent.map(({ params }) => params.seq);
    expect(lost.params).toMatchObject({ commandId: id, fromSeq: two, toSeq: three, reason: 'redis_lost' });
  }, 30_000);

  it('[R2] a session that Redis has lost is restored by the sweep, without the client noticing', async () => {
    await using tab = await tabHere();
    let closed = false;
    void tab.socket.closed.then(() => {
      closed = true;
    });
    await stores.redis.del(stores.keys.session(tab.sessionId as never));
    await until('it to be there again', async () => {
      const { state } = await stores.sessions.check(tab.sessionId as never, []);
      return state === 'live';
    });
    const id = await tab.run({ argv: ['true'] });
    const writer = await claimToWrite(stores, id);
    await writer.print('home');
    await tab.shows(id, 'home');
    expect(closed).toBe(false);
    expect(node.count('homing_sessions_restored_total')).toBe(1);
  });
});
