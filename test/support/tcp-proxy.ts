/** A TCP proxy on loopback that fails on demand: cuts, hangs, delays, refuses, or loses exactly one reply. */
import { once } from 'node:events';
import { createConnection, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface TcpProxy extends AsyncDisposable {
  /** `<scheme>://127.0.0.1:<port>` */
  readonly url: string;
  readonly port: number;
  /** Connections passed at the moment. */
  readonly connections: number;
  /** Connections taken so far. */
  readonly taken: number;
  /** How long each chunk waits in each direction; order is kept. */
  delayMs: number;
  /** Destroys every connection; new ones are taken. Returns how many there were. */
  cut(): number;
  /** Takes connections and bytes but passes nothing: a half-open link. What was held is passed after `thaw`. */
  freeze(): void;
  thaw(): void;
  /** What present connections send that way is lost from now on, and nobody is told; new connections are well. */
  blackhole(direction: 'to server' | 'to client'): void;
  /** Closes the port, so that connecting is refused, or opens it again. Connections that exist stay. */
  refuse(on: boolean): Promise<void>;
  /**
   * Passes on the next request that matches, drops what the server says from then on, and destroys the connection once
   * the server has answered. `match` sees one chunk of what clients send, unframed.
   * @returns resolves when the client's connection is gone; the server has the whole request
   */
  swallowNextReply(match: (requestBytes: Buffer) => boolean): Promise<void>;
}

interface Link {
  readonly client: Socket;
  readonly server: Socket;
  /** Set while what the server says is dropped. */
  swallowing: (() => void) | undefined;
  readonly holes: Set<'to server' | 'to client'>;
}

export async function startTcpProxy(target: {
  readonly port: number;
  readonly host?: string;
  readonly scheme?: string;
}): Promise<TcpProxy> {
  const links = new Set<Link>();
  let frozen = false;
  let delayMs = 0;
  let trap: { match(bytes: Buffer): boolean; sprung(): void } | undefined;

  /** Passes chunks on in order, with delay and back-pressure. `see` may keep a chunk from being passed. */
  const pass = (from: Socket, to: Socket, see: (chunk: Buffer) => boolean) => {
    let queue: Promise<unknown> = Promise.resolve();
    let isFull = false;
    to.on('drain', () => {
      isFull = false;
      if (!frozen) from.resume();
    });
    from.on('data', (chunk: Buffer) => {
      const forward = () => {
        if (!see(chunk) || to.destroyed || to.write(chunk) || isFull) return;
        isFull = true;
        from.pause();
      };
      const dueMs = performance.now() + delayMs;
      if (delayMs === 0) queue = queue.then(forward);
      else queue = queue.then(() => sleep(Math.max(0, dueMs - performance.now()))).then(forward);
    });
    from.on('end', () => {
      queue = queue.then(() => to.end());
    });
    from.on('error', () => to.destroy());
    from.on('close', () => {
      queue = queue.then(() => to.destroySoon());
    });
  };

  let taken = 0;
  const listener = createServer({ allowHalfOpen: true }, (client) => {
    const server = createConnection({ port: target.port, host: target.host ?? '127.0.0.1', allowHalfOpen: true });
    const link: Link = { client, server, swallowing: undefined, holes: new Set() };
    links.add(link);
    taken += 1;
    client.setNoDelay(true);
    server.setNoDelay(true);
    client.on('close', () => links.delete(link));
    pass(client, server, (chunk) => {
      if (link.holes.has('to server')) return false;
      if (trap?.match(chunk)) {
        link.swallowing = trap.sprung;
        trap = undefined;
      }
      return true;
    });
    pass(server, client, () => {
      if (link.holes.has('to client')) return false;
      if (link.swallowing === undefined) return true;
      // The answer proves that the request was carried out.
      link.swallowing();
      client.destroy();
      return false;
    });
    if (frozen) {
      client.pause();
      server.pause();
    }
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
  const { port } = address;

  const setFrozen = (on: boolean) => {
    frozen = on;
    for (const { client, server } of links) {
      for (const socket of [client, server]) on ? socket.pause() : socket.resume();
    }
  };
  const cut = () => {
    const count = links.size;
    for (const { client, server } of links) {
      client.destroy();
      server.destroy();
    }
    links.clear();
    return count;
  };
  const closePort = () => {
    if (!listener.listening) return;
    // Without waiting for its connections, which may stay.
    listener.close();
  };

  return {
    url: `${target.scheme ?? 'redis'}://127.0.0.1:${port}`,
    port,
    get connections() {
      return links.size;
    },
    get taken() {
      return taken;
    },
    get delayMs() {
      return delayMs;
    },
    set delayMs(value: number) {
      delayMs = value;
    },
    cut,
    freeze: () => setFrozen(true),
    thaw: () => setFrozen(false),
    blackhole(direction) {
      for (const { holes } of links) holes.add(direction);
    },
    async refuse(on) {
      if (on) closePort();
      else if (!listener.listening) {
        listener.listen(port, '127.0.0.1');
        await once(listener, 'listening');
      }
    },
    swallowNextReply(match) {
      return new Promise((resolve) => {
        trap = { match, sprung: resolve };
      });
    },
    async [Symbol.asyncDispose]() {
      closePort();
      cut();
    },
  };
}
