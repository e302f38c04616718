/** Ports that stay with a test: a server that is killed and started again finds its own. */
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the range from which the system takes ports for connections, which could take a freed one meanwhile. */
const LOWEST = 15_000;
const HIGHEST = 30_000;

/** A port nobody listened on a moment ago, and that no outgoing connection will use. */
export async function stablePort(): Promise<number> {
  for (let attempt = 1; ; attempt += 1) {
    const port = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST));
    const server = createServer();
    try {
      server.listen(port, '127.0.0.1');
      await once(server, 'listening');
      await new Promise((resolve) => server.close(resolve));
      return port;
    } catch (error) {
      if (attempt >= 50) throw error;
    }
  }
}
