/** The limit of the parts: one subscriber connection, one channel a tab, `ws.send`. Nothing is kept. */
import { Redis } from 'ioredis';
import { WebSocketServer } from 'ws';

const subscriber = new Redis(process.env.REDIS_URL);
const sockets = new Map();
subscriber.on('smessage', (channel, message) => sockets.get(channel)?.send(Buffer.from(message), { binary: false }));
const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
server.on('connection', async (socket, request) => {
  const channel = new URL(request.url, 'http://x').searchParams.get('channel');
  socket.on('error', () => {});
  sockets.set(channel, socket);
  await subscriber.ssubscribe(channel);
  socket.send('ready');
});
server.on('listening', () => console.log(JSON.stringify({ url: `ws://127.0.0.1:${server.address().port}` })));
