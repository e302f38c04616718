/** Publishes for the bare relay at a pace, 0 for none, each message with the clock that all processes of a machine share. */
import { Redis } from 'ioredis';

const redis = new Redis(process.env.REDIS_URL);
const now = () => Number(process.hrtime.bigint()) / 1e9;
let timer;
process.on('message', ({ channels, eachPerSecond, bytes }) => {
  clearInterval(timer);
  if (eachPerSecond === 0) return;
  const beganAt = now();
  let sent = 0;
  timer = setInterval(() => {
    const due = Math.floor((now() - beganAt) * channels.length * eachPerSecond);
    for (; sent < due; sent += 1) {
      redis.spublish(channels[sent % channels.length], `${now().toFixed(6)} `.padEnd(bytes, 'x'));
    }
  }, 1);
});
redis.once('ready', () => console.log(JSON.stringify({ ready: true })));
