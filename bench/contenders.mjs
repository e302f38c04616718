/**
 * What carries entries from one publisher process through one node to tabs: Homing and the yardsticks, behind one face, for
 * the rows that compare them. Each `start` gives `open()`, which attaches one tab, and `pid` of the node; `publisher()` gives a
 * function that resolves when all was handed over, with the `pid` of that process; `acknowledge()` is there where tabs do so.
 */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { openTab, startHoming, startPart } from './harness.mjs';

/** @param options.batch entries of one script call, as a worker makes them of output that comes fast */
export const homing = ({ batch = 50, env = {}, idle = false } = {}) => ({
  async start(scope, redis) {
    const started = await startHoming(scope, { redis, nodes: 1, env });
    const [node] = started.nodes;
    const token = await started.token();
    const tabs = [];
    const commands = [];
    return {
      pid: node.pid,
      async open(n, onEntry) {
        const tab = await openTab(node, token, { conversation: `c${n % 1_000}` });
        scope.defer(() => tab.close());
        if (idle) return;
        tab.on((method) => method === 'command.output' && onEntry());
        const { commandId } = await tab.rpc('command.run', { argv: ['true'] });
        tabs.push(tab);
        commands.push({ commandId, owner: tab.session.sessionId });
      },
      async publisher() {
        const env = { REDIS_URL: redis.url, PREFIX: started.prefix };
        const { tell, pid } = await startPart(scope, 'publisher.mjs', env);
        return Object.assign((total, bytes) => tell({ commands, total, bytes, batch }), { pid });
      },
      acknowledge() {
        for (const tab of tabs) tab.acknowledge();
      },
    };
  },
});

/** Those that speak plain WebSocket and name a channel in the address. */
const plain = (node, publisher, channelOf) => ({
  async start(scope, redis) {
    const part = await startPart(scope, node, { REDIS_URL: redis.url });
    const channels = [];
    return {
      pid: part.pid,
      async open(n, onEntry) {
        const channel = channelOf(n);
        const socket = new WebSocket(`${part.ready.url}/?channel=${channel}`, { perMessageDeflate: false });
        scope.defer(() => socket.terminate());
        await once(socket, 'message');
        socket.on('message', onEntry);
        channels.push(channel);
      },
      async publisher() {
        const { tell, pid } = await startPart(scope, publisher, { REDIS_URL: redis.url, ROLE: 'publisher' });
        return Object.assign((total, bytes) => tell({ channels, total, bytes }), { pid });
      },
    };
  },
});

export const relay = plain('relay.mjs', 'relay-publisher.mjs', (n) => `{t${n}}:c`);
export const bullmqRelay = plain('bullmq-relay.mjs', 'bullmq-relay.mjs', (n) => `tabs.t${n}`);

/**
 * As much of a Socket.IO client as is needed, and no more work than the others' clients have: the handshake, pongs, events.
 * @returns the socket's id
 */
function attach(socket, onEntry) {
  return new Promise((resolve, reject) => {
    socket.on('error', reject);
    socket.on('message', (data) => {
      const text = String(data);
      if (text.startsWith('0')) socket.send('40');
      else if (text === '2') socket.send('3');
      else if (text.startsWith('40')) resolve(JSON.parse(text.slice(2)).sid);
      else if (text.startsWith('42["entry"')) onEntry();
    });
  });
}

const socketio = (adapter) => ({
  async start(scope, redis) {
    const env = { REDIS_URL: redis.url, ADAPTER: adapter };
    const part = await startPart(scope, 'socketio.mjs', env);
    const addresses = [];
    return {
      pid: part.pid,
      async open(_n, onEntry) {
        const socket = new WebSocket(`${part.ready.url}/socket.io/?EIO=4&transport=websocket`, {
          perMessageDeflate: false,
        });
        scope.defer(() => socket.terminate());
        addresses.push(await attach(socket, onEntry));
      },
      async publisher() {
        const { tell, pid } = await startPart(scope, 'socketio.mjs', env);
        return Object.assign((total, bytes) => tell({ addresses, total, bytes }), { pid });
      },
    };
  },
});
export const socketios = {
  sioRedis: socketio('redis'),
  sioSharded: socketio('sharded'),
  sioStreams: socketio('streams'),
};
