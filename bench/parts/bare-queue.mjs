/** The bare queue: a BullMQ worker that spawns and publishes what the child printed. */
import { spawn } from 'node:child_process';
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';

const connection = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null });
const publisher = new Redis(process.env.REDIS_URL);
const worker = new Worker(
  'bare',
  (job) =>
    new Promise((resolve) => {
      const [program, ...args] = job.data.argv;
      const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
      child.stdout.on('data', (data) => publisher.publish(job.data.channel, data));
      child.on('close', (code) => publisher.publish(job.data.channel, `ended ${job.id} ${code}`).then(resolve));
    }),
  { connection, concurrency: 8 },
);
await worker.waitUntilReady();
console.log(JSON.stringify({ ready: true }));
