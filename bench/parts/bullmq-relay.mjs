/** BullMQ's Relay (experimental) as the bus: a node that subscribes for each socket, or, with ROLE=publisher, one that publishes. */
import { Relay } from 'bullmq';
import { WebSocketServer } from 'ws';

const relay = new Relay({
  connection: { url: process.env.REDIS_URL },
  // Longer than a burst: with its default of 10,000 a node that is behind loses the oldest.
  inboxMaxLength: 500_000,
});
relay.on('error', (error) => console.error(error));
await relay.waitUntilReady();

if (process.env.ROLE === 'publisher') {
  process.on('message', async ({ channels, total, bytes, window = 2_000 }) => {
    const text = 'x'.repeat(bytes);
    let pending = [];
    for (let n = 0; n < total; n += 1) {
      pending.push(relay.publish(channels[n % channels.length], text));
      if (pending.length === window) {
        await Promise.all(pending);
        pending = [];
      }
    }
    await Promise.all(pending);
    process.send({ done: true });
  });
  console.log(JSON.stringify({ ready: true }));
} else {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
  server.on('connection', async (socket, request) => {
    const channel = new URL(request.url, 'http://x').searchParams.get('channel');
    socket.on('error', () => {});
    await relay.subscribe(channel, ({ data }) => socket.send(Buffer.from(data), { binary: false }));
    socket.send('ready');
  });
  server.on('listening', () => console.log(JSON.stringify({ url: `ws://127.0.0.1:${server.address().port}` })));
}
