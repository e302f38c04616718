/** Publishes for the bare relay at a pace, each message with the clock that all processes of a machine share. */
import { Redis } from 'ioredis';

const redis = new Redis(process.env.REDIS_URL);
const now = () => Number(process.hrtime.bigint()) / 1e9;
process.on('message', ({ channels, eachPerSecond, seconds, bytes }) => {
  const total = channels.length * eachPerSecond * seconds;
  const beganAt = now();
  let sent = 0;
  const timer = setInterval(() => {
    const due = Math.min(total, Math.floor((now() - beganAt) * channels.length * eachPerSecond));
    for (; sent < due; sent += 1) {
      redis.spublish(channels[sent % channels.length], `${now().toFixed(6)} `.padEnd(bytes, 'x'));
    }
    if (sent === total) clearInterval(timer);
  }, 1);
});
redis.once('ready', () => console.log(JSON.stringify({ ready: true })));
