/**
 * The bare relay for tabs that come back: a connection subscribes, then what it missed is read from its stream, page by page, and
 * counted; with SEND=1 it is also sent. `done` follows.
 */
import { Redis } from 'ioredis';
import { WebSocketServer } from 'ws';

const PAGE = 64;
const subscriber = new Redis(process.env.REDIS_URL);
const reader = new Redis(process.env.REDIS_URL);
const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
server.on('connection', async (socket, request) => {
  const asked = new URL(request.url, 'http://x').searchParams;
  socket.on('error', () => {});
  await subscriber.ssubscribe(asked.get('channel'));
  let after = '-';
  for (;;) {
    const page = await reader.xrangeBuffer(asked.get('stream'), after, '+', 'COUNT', PAGE);
    if (process.env.SEND === '1') {
      const sent = page.map(
        ([, fields]) => new Promise((resolve) => socket.send(fields.at(-1), { binary: false }, resolve)),
      );
      // Not all of it in memory: the next page is read when this one has left.
      await Promise.all(sent);
    }
    if (page.length < PAGE) break;
    after = `(${page.at(-1)[0]}`;
  }
  socket.send('done');
});
server.on('listening', () => console.log(JSON.stringify({ url: `ws://127.0.0.1:${server.address().port}` })));
