/** The queue on a real Redis, a Cluster and a Sentinel: what BullMQ may and may not do to a command's job. */
import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JobData, QueueConsumer, QueueProducer } from '../../src/domain/ports.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { createQueueConsumer } from '../../src/queue/consumer.js';
import { createQueueProducer } from '../../src/queue/producer.js';
import { createRedis, parseRedisUrl } from '../../src/redis/connections.js';
import { createKeys, type Keys } from '../../src/redis/keys.js';
import { DEPLOYMENTS, type Deployment } from '../support/deployments.js';
import { startRedis, uniquePrefix } from '../support/redis.js';
import { newCommandId, placeOf, silentLog } from '../support/stores.js';
import { until, within } from '../support/wait.js';

const jobFor = (commandId: CommandId): JobData => ({
  v: 1,
  commandId,
  originSessionId: 'ses_origin',
  ownerSessionId: 'ses_owner',
  conversation: 'chat',
  tenant: 'default',
  principal: 'ann',
  program: 'make',
});
const now = { priority: 50, delayMs: 0 };

interface TestQueue extends AsyncDisposable {
  readonly keys: Keys;
  readonly producer: QueueProducer;
  readonly connection: Redis;
  consume(run: (commandId: CommandId) => Promise<void>, concurrency?: number): QueueConsumer;
}

async function openQueue(url: string): Promise<TestQueue> {
  const keys = createKeys(uniquePrefix());
  const connection = createRedis(parseRedisUrl(url), 'queue-producer', silentLog) as Redis;
  await until('the connection', () => connection.status === 'ready');
  const producer = createQueueProducer({ redis: connection, keys, log: silentLog });
  const closers: (() => Promise<void>)[] = [];
  return {
    keys,
    producer,
    connection,
    consume(run, concurrency = 1) {
      const own = createRedis(parseRedisUrl(url), 'queue-worker', silentLog) as Redis;
      const consumer = createQueueConsumer({ redis: own, keys, pool: 'default', concurrency, log: silentLog, run });
      closers.push(async () => {
        await consumer.close();
        own.disconnect();
      });
      return consumer;
    },
    async [Symbol.asyncDispose]() {
      for (const close of closers) await close();
      await producer.close();
      connection.disconnect();
    },
  };
}

describe.each(DEPLOYMENTS)('the queue on $name', ({ start }) => {
  let redis: Deployment;
  beforeAll(async () => {
    redis = await start();
  });
  afterAll(() => redis?.[Symbol.asyncDispose]());

  it('tells how many jobs come before one, by priority and then by age', async () => {
    await using queue = await openQueue(redis.url);
    const [late, early, first, delayed] = Array.from({ length: 4 }, () => newCommandId(placeOf())) as CommandId[];
    await queue.producer.add('default', jobFor(early!), now);
    await queue.producer.add('default', jobFor(late!), now);
    await queue.producer.add('default', jobFor(first!), { priority: 1, delayMs: 0 });
    await queue.producer.add('default', jobFor(delayed!), { priority: 1, delayMs: 60_000 });
    const positions = [first, early, late, delayed].map((id) => queue.producer.position('default', id!));
    expect(await Promise.all(positions)).toEqual([1, 2, 3, undefined]);
    const taken: CommandId[] = [];
    queue.consume(async (commandId) => {
      taken.push(commandId);
    });
    await until('three of them to be taken', () => taken.length === 3);
    expect(taken).toEqual([first, early, late]);
  });

  it('hands a job over once, with our id, and forgets nothing an operator needs to see', async () => {
    await using queue = await openQueue(redis.url);
    const commandId = newCommandId(placeOf());
    await queue.producer.add('default', jobFor(commandId), now);
    const view = new Queue('default', { connection: queue.connection, prefix: queue.keys.queuePrefix('default') });
    const job = await view.getJob(commandId);
    expect(job?.name).toBe('make · chat');
    expect(job?.data).toMatchObject({ originSessionId: 'ses_origin', conversation: 'chat', program: 'make' });
    const taken: string[] = [];
    queue.consume(async (id) => void taken.push(id));
    await until('the end of the job', async () => (await queue.producer.state('default', commandId)) === 'finished');
    expect(taken).toEqual([commandId]);
    await view.close();
  });

  it('[CO1] makes one job of an add that is repeated', async () => {
    await using queue = await openQueue(redis.url);
    const commandId = newCommandId(placeOf());
    for (let i = 0; i < 3; i++) await queue.producer.add('default', jobFor(commandId), now);
    const taken: string[] = [];
    queue.consume(async (id) => void taken.push(id));
    const last = newCommandId(placeOf());
    await queue.producer.add('default', jobFor(last), { priority: 100, delayMs: 0 });
    await until('the last job', () => taken.includes(last));
    expect(taken).toEqual([commandId, last]);
  });

  it('[Q1] tells where a job is, and lets a finished one be added again after it was removed', async () => {
    await using queue = await openQueue(redis.url);
    const { producer } = queue;
    const commandId = newCommandId(placeOf());
    expect(await producer.state('default', commandId)).toBe('missing');
    await producer.add('default', jobFor(commandId), { priority: 50, delayMs: 60_000 });
    expect(await producer.state('default', commandId)).toBe('waiting');
    await producer.remove('default', commandId);
    await producer.add('default', jobFor(commandId), now);
    expect(await producer.state('default', commandId)).toBe('waiting');

    let runs = 0;
    let release: () => void = () => {};
    const consumer = queue.consume(() => {
      runs += 1;
      return new Promise((resolve) => {
        release = resolve;
      });
    });
    await until('the job to be taken', async () => (await producer.state('default', commandId)) === 'active');
    await producer.remove('default', commandId);
    expect(await producer.state('default', commandId)).toBe('active');
    release();
    await until('the end of the job', async () => (await producer.state('default', commandId)) === 'finished');
    await producer.add('default', jobFor(commandId), now);
    expect(await producer.state('default', commandId)).toBe('finished');
    await producer.remove('default', commandId);
    await producer.add('default', jobFor(commandId), now);
    await until('the second run', () => runs === 2);
    release();
    await consumer.pause();
  });

  it('takes what is to come first first, and what is delayed later', async () => {
    await using queue = await openQueue(redis.url);
    const [late, low, high] = [1, 2, 3].map(() => newCommandId(placeOf())) as [CommandId, CommandId, CommandId];
    await queue.producer.add('default', jobFor(late), { priority: 1, delayMs: 500 });
    await queue.producer.add('default', jobFor(low), { priority: 100, delayMs: 0 });
    await queue.producer.add('default', jobFor(high), { priority: 1, delayMs: 0 });
    const taken: string[] = [];
    queue.consume(async (id) => void taken.push(id));
    await until('three jobs', () => taken.length === 3);
    expect(taken).toEqual([high, low, late]);
  });

  it('[CO2] never tries a job again that failed', async () => {
    await using queue = await openQueue(redis.url);
    const commandId = newCommandId(placeOf());
    const taken: string[] = [];
    queue.consume(async (id) => {
      taken.push(id);
      if (id === commandId) throw new Error('as if the worker had a fault');
    });
    await queue.producer.add('default', jobFor(commandId), now);
    await until('the failed job', async () => (await queue.producer.state('default', commandId)) === 'finished');
    const next = newCommandId(placeOf());
    await queue.producer.add('default', jobFor(next), now);
    await until('the next job', () => taken.includes(next));
    expect(taken).toEqual([commandId, next]);
  });

  it('takes no more jobs once it was paused, while running ones go on', async () => {
    await using queue = await openQueue(redis.url);
    const first = newCommandId(placeOf());
    const taken: string[] = [];
    let release: () => void = () => {};
    const consumer = queue.consume((id) => {
      taken.push(id);
      return new Promise((resolve) => {
        release = resolve;
      });
    }, 2);
    await queue.producer.add('default', jobFor(first), now);
    await until('the first job', () => taken.length === 1);
    await consumer.pause();
    const second = newCommandId(placeOf());
    await queue.producer.add('default', jobFor(second), now);
    release();
    await until('the end of the first', async () => (await queue.producer.state('default', first)) === 'finished');
    expect(taken).toEqual([first]);
    expect(await queue.producer.state('default', second)).toBe('waiting');
  });
});

describe('the queue', () => {
  it('fails at once while Redis is away, works again after, and closes in bounded time', async () => {
    await using own = await startRedis();
    await using queue = await openQueue(own.url);
    const commandId = newCommandId(placeOf());
    await queue.producer.add('default', jobFor(commandId), { priority: 50, delayMs: 60_000 });
    const consumer = queue.consume(async () => {});
    await own.stop();
    const askedMs = performance.now();
    await expect(queue.producer.add('default', jobFor(newCommandId(placeOf())), now)).rejects.toMatchObject({
      code: 'REDIS_UNAVAILABLE',
      retryable: true,
    });
    expect(performance.now() - askedMs).toBeLessThan(6_000);
    await own.start();
    await until('the queue to answer again', () => queue.producer.state('default', commandId));
    expect(await queue.producer.state('default', commandId)).toBe('waiting');
    await own.stop();
    await within('the close', Promise.all([consumer.close(), queue.producer.close()]), 4_000);
  });
});
