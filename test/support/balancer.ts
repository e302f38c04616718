/** A real haproxy in front of nodes, with the configuration that docker-compose.yml gives it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stablePort } from './ports.js';
import { until, within } from './wait.js';

const CONFIGURATION = fileURLToPath(new URL('../../deploy/haproxy.cfg', import.meta.url));

/** Undefined where it is not installed; a Debian puts it into a folder that is not on everybody's PATH. */
export const HAPROXY = [...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/usr/local/sbin']
  .map((folder) => join(folder, 'haproxy'))
  .find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });

export interface Balancer extends AsyncDisposable {
  readonly url: string;
}

/** Resolves when it passes requests on. @param idle instead of its own time for idle connections, such as `2s` */
export async function startBalancer(
  nodes: readonly { readonly port: number; readonly opsPort: number }[],
  { idle }: { readonly idle?: string } = {},
): Promise<Balancer> {
  if (HAPROXY === undefined) throw new Error('haproxy is not installed');
  const port = await stablePort();
  const places = nodes.flatMap((node, i) => [
    [`HOMING_NODE_${i + 1}_HOST`, '127.0.0.1'],
    [`HOMING_NODE_${i + 1}_PORT`, String(node.port)],
    [`HOMING_NODE_${i + 1}_OPS_PORT`, String(node.opsPort)],
  ]);
  const child = spawn(HAPROXY, ['-db', '-f', CONFIGURATION], {
    env: {
      ...Object.fromEntries(places),
      HOMING_LISTEN: `127.0.0.1:${port}`,
      ...(idle === undefined ? {} : { HOMING_IDLE: idle }),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-20_000);
    });
  }
  const ended = once(child, 'exit');
  const url = `http://127.0.0.1:${port}`;
  const balancer = {
    url,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await within('the end of haproxy', ended);
    },
  };
  try {
    // Each node asked as often as there are nodes: none of them is down for the balancer any more.
    const passing = until('the balancer to pass on', async () => {
      for (const _ of nodes) if (!(await fetch(`${url}/openapi.json`)).ok) return false;
      return true;
    });
    await Promise.race([passing, ended.then(() => Promise.reject(new Error('it ended')))]);
    return balancer;
  } catch (error) {
    await balancer[Symbol.asyncDispose]();
    throw new Error(`${error}; haproxy said:\n${said}`);
  }
}
