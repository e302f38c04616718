/** Redis goes away, comes back, or loses an answer: what was printed arrives once, and what was asked for happens once. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { expectComplete } from '../support/expect-tab.js';
import { createStage, type Stage } from '../support/programs.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createTab } from '../support/tab.js';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { until, within } from '../support/wait.js';

const OUTAGE_MS = 10_000;

/** A chunk that asks Redis to run one of our scripts and names this id. */
const asks = (script: string, id: string) => (bytes: Buffer) => {
  const text = bytes.toString('latin1');
  return /EVALSHA|EVAL/i.test(text) && text.includes(id) && (script === '' || text.includes(script));
};

describe('trouble with Redis', () => {
  let redis: TestRedis;
  let stage: Stage;
  let cluster: Cluster;
  let toNode: TcpProxy;
  let toWorker: TcpProxy;

  beforeAll(async () => {
    stage = await createStage();
    redis = await startRedis();
    toNode = await startTcpProxy({ port: redis.port });
    toWorker = await startTcpProxy({ port: redis.port });
    cluster = await startCluster({
      redis,
      nodes: 2,
      workers: 1,
      // Node 1 reaches Redis directly, node 0 and the worker through a proxy that fails on demand.
      nodeEnv: (index) => ({ HOMING_REDIS_URL: index === 0 ? toNode.url : redis.url }),
      workerEnv: () => ({ HOMING_REDIS_URL: toWorker.url }),
    });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
    await toNode?.[Symbol.asyncDispose]();
    await toWorker?.[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
    await stage?.[Symbol.asyncDispose]();
  });

  it('[CO9] Redis stopped for ten seconds in mid-output and started on the same data: the log is byte for byte what was printed', async () => {
    const tab = await cluster.tab(0, { conversation: 'outage' });
    const other = await cluster.tab(1, { conversation: 'outage' });
    const [one, two] = [await tab.run(stage.chatty('one', 10)), await other.run(stage.chatty('two', 25))];
    await tab.shows(one, 'line 30 ');
    await redis.stop();
    const linesBefore = stage.printed('one').split('\n').length;
    const stoppedAt = performance.now();
    await until('the outage over', () => performance.now() - stoppedAt > OUTAGE_MS, OUTAGE_MS + 1000);
    // Nobody stopped the command: it went on printing.
    expect(stage.printed('one').split('\n').length).toBeGreaterThan(linesBefore + 100);
    await redis.start();
    const answersAt = performance.now();
    const last = stage.printed('one').trimEnd().split('\n').at(-1) as string;
    const catchesUp = tab.shows(one, last, 12_000);
    await catchesUp;
    expect(performance.now() - answersAt).toBeLessThan(8_000);
    for (const gate of ['one', 'two']) stage.open(gate);
    await tab.ended(one);
    await other.ended(two);
    expectComplete(tab, one);
    expectComplete(other, two);
    expect(tab.output(one)).toBe(stage.printed('one'));
    expect(other.output(two)).toBe(stage.printed('two'));
    const text = await cluster.http('GET', `/v1/commands/${one}/log?format=text`);
    expect(text.raw.toString()).toBe(stage.printed('one'));
  }, 60_000);

  it('[DE1] the connection cut between an append and its answer makes no duplicate', async () => {
    const tab = await cluster.tab(1, { conversation: 'cut' });
    const commandId = await tab.run(stage.chatty('cut', 10));
    for (let round = 1; round <= 3; round += 1) {
      await within('an append whose answer is lost', toWorker.swallowNextReply(asks('command.output', commandId)));
      await tab.shows(commandId, `line ${round * 40} `);
    }
    stage.open('cut');
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    expect(tab.output(commandId)).toBe(stage.printed('cut'));
    const text = await cluster.http('GET', `/v1/commands/${commandId}/log?format=text`, { node: 1 });
    expect(text.raw.toString()).toBe(stage.printed('cut'));
  });

  it('[CO1] the answer to a submit lost: one command, started once', async () => {
    const tab = await cluster.tab(0, { conversation: 'submit' });
    const lost = toNode.swallowNextReply(asks('submit-marker', 'submit-marker'));
    const spec = { ...stage.counted('submit'), labels: { m: 'submit-marker' }, idempotencyKey: 'submit-marker' };
    const commandId = await tab.run(spec).catch(async (error) => {
      // The node may say that Redis did not answer; a client repeats with the same key then.
      expect(error.data?.retryable ?? true).toBe(true);
      return until('the submit repeated', () => tab.run(spec), 10_000);
    });
    await within('the lost answer', lost);
    await tab.shows(commandId, 'started');
    stage.open('submit');
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    expect(stage.starts('submit')).toBe(1);
    const { json } = await cluster.http('GET', '/v1/conversations/submit/commands', { node: 1 });
    expect(json.commands).toHaveLength(1);
  });

  it('[SE1] the answer to an open lost: one session', async () => {
    const lost = toNode.swallowNextReply(asks('openlost', 'openlost'));
    const token = cluster.token({ sub: 'openlost' });
    const tab = createTab({ token, conversation: 'open' });
    await using _tab = tab;
    await tab
      .open(cluster.node(0).url)
      .catch(() => until('the open repeated', () => tab.open(cluster.node(0).url).then(() => true)));
    await within('the lost answer', lost);
    const commandId = await tab.run({ argv: ['/bin/echo', 'hello'] });
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    const { json } = await cluster.http('GET', '/v1/conversations/open/sessions', { node: 1, token });
    const live = json.sessions.filter((s: { state: string }) => s.state === 'live');
    expect(live.map((s: { sessionId: string }) => s.sessionId)).toEqual([tab.sessionId]);
  });

  it('[CO2] the answer to a claim lost: one run', async () => {
    const tab = await cluster.tab(1, { conversation: 'claim' });
    // The queue of BullMQ names the command too, with keys of its own; the claim touches the record.
    const lost = toWorker.swallowNextReply((bytes) => /\}:cmd:cmd_/.test(bytes.toString('latin1')));
    const commandId = await tab.run(stage.counted('claim'));
    await within('the lost answer', lost);
    await tab.shows(commandId, 'started');
    stage.open('claim');
    expect((await tab.ended(commandId)).params.outcome).toMatchObject({ reason: 'exited', code: 0 });
    expectComplete(tab, commandId);
    expect(stage.starts('claim')).toBe(1);
  });

  it('[DE7] a node whose subscription was cut finds what was published meanwhile, also when nothing further happens', async () => {
    const tab = await cluster.tab(0, { conversation: 'lost-tail' });
    const commandId = await tab.run(stage.gated('tail', 'before', 'after'));
    await tab.shows(commandId, 'before');
    await toNode.refuse(true);
    toNode.cut();
    stage.open('tail');
    const ended = await cluster.http('GET', `/v1/commands/${commandId}?waitMs=10000`, { node: 1 });
    expect(ended.json.state).toBe('ended');
    await toNode.refuse(false);
    const answersAt = performance.now();
    await tab.ended(commandId);
    expect(performance.now() - answersAt).toBeLessThan(5_000);
    expectComplete(tab, commandId);
  });

  it('[DE7] a half-open link is found too: nothing is lost when it comes back to life', async () => {
    const tab = await cluster.tab(0, { conversation: 'half-open' });
    const commandId = await tab.run(stage.chatty('half', 20));
    await tab.shows(commandId, 'line 10 ');
    toNode.freeze();
    const linesBefore = stage.printed('half').split('\n').length;
    await until('more printed meanwhile', () => stage.printed('half').split('\n').length > linesBefore + 40);
    toNode.thaw();
    stage.open('half');
    await tab.ended(commandId);
    expectComplete(tab, commandId);
    expect(tab.output(commandId)).toBe(stage.printed('half'));
  });

  it('[DE7] without Redis a request is answered with REDIS_UNAVAILABLE in bounded time, and readiness says so while liveness stays', async () => {
    const tab = await cluster.tab(0, { conversation: 'unavailable' });
    await toNode.refuse(true);
    toNode.cut();
    await expect(tab.rpc('command.run', { argv: ['/bin/true'] }, 15_000)).rejects.toMatchObject({
      code: 'REDIS_UNAVAILABLE',
      data: { retryable: true },
    });
    const ops = cluster.node(0).opsUrl;
    await until('readiness gone', async () => (await fetch(`${ops}/readyz`)).status === 503);
    expect((await fetch(`${ops}/livez`)).status).toBe(200);
    await toNode.refuse(false);
    await until('readiness back', async () => (await fetch(`${ops}/readyz`)).status === 200);
    const commandId = await tab.run({ argv: ['/bin/echo', 'again'] });
    await tab.ended(commandId);
    expectComplete(tab, commandId);
  });
});
