/**
 * Socket.IO as its makers advise for several nodes: one process with the sockets, one that only publishes, joined by the
 * adapter in ADAPTER. A tab is addressed by its socket's id, which is a room of its own.
 */
import { createServer } from 'node:http';
import { createAdapter, createShardedAdapter } from '@socket.io/redis-adapter';
import { createAdapter as createStreamsAdapter } from '@socket.io/redis-streams-adapter';
import { Redis } from 'ioredis';
import { Server } from 'socket.io';

const pub = new Redis(process.env.REDIS_URL);
const adapters = {
  redis: () => createAdapter(pub, pub.duplicate()),
  sharded: () => createShardedAdapter(pub, pub.duplicate(), { subscriptionMode: 'dynamic-private' }),
  // Longer than a burst: with its default of 10,000 entries a node that is behind loses what was trimmed.
  streams: () => createStreamsAdapter(pub, { maxLen: 500_000, onlyPlaintext: true }),
};
const http = createServer();
const io = new Server(http, {
  adapter: adapters[process.env.ADAPTER](),
  transports: ['websocket'],
  serveClient: false,
  ...(process.env.ADAPTER === 'streams' ? { connectionStateRecovery: {} } : {}),
});
// Their advice on memory: the request of the handshake need not be kept.
io.engine.on('connection', (socket) => {
  socket.request = null;
});

process.on('message', async ({ addresses, total, bytes, window = 2_000 }) => {
  const text = 'x'.repeat(bytes);
  for (let n = 0; n < total; n += 1) {
    io.to(addresses[n % addresses.length]).emit('entry', text);
    // `emit` waits for nothing; an answer on the connection that publishes says that what came before has left.
    if (n % window === window - 1) await pub.ping();
  }
  process.send({ done: true });
});
http.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ url: `http://127.0.0.1:${http.address().port}` })));
