/** Publishes ready messages for the bare relay, one SPUBLISH each, pipelined. */
import { Redis } from 'ioredis';

const redis = new Redis(process.env.REDIS_URL);
process.on('message', async ({ channels, total, bytes, window = 2_000 }) => {
  const text = 'x'.repeat(bytes);
  let pending = [];
  for (let n = 0; n < total; n += 1) {
    pending.push(redis.spublish(channels[n % channels.length], text));
    if (pending.length === window) {
      await Promise.all(pending);
      pending = [];
    }
  }
  await Promise.all(pending);
  process.send({ done: true });
});
redis.once('ready', () => console.log(JSON.stringify({ ready: true })));
