/** What `homing up` hands to its nodes and workers: settings as they were read, and no secret that one has no use for. */
import type { Settings } from '../config.js';
import type { ReadyFacts } from './child.js';
import type { Env } from './env-files.js';

export interface NodeSecrets {
  readonly redisUrl: string;
  readonly jwtSecret: string;
  readonly adminToken: string;
}

/** Flags, files and defaults are resolved: the child reads the same settings from its environment alone. */
function childEnvironment(env: Env, settings: Settings): Record<string, string | undefined> {
  const rest = Object.entries(env).filter(([name]) => !(name.startsWith('HOMING_') && name.endsWith('_FILE')));
  const known = Object.entries(settings).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(rest), ...Object.fromEntries(known.map(([name, value]) => [name, String(value)])) };
}

export function nodeEnvironment(env: Env, settings: Settings, secrets: NodeSecrets): Env {
  return {
    ...childEnvironment(env, settings),
    HOMING_REDIS_URL: secrets.redisUrl,
    HOMING_JWT_SECRET: secrets.jwtSecret,
    HOMING_ADMIN_TOKEN: secrets.adminToken,
  };
}

/** Commands run beside a worker, so it gets no token secret. */
export function workerEnvironment(env: Env, settings: Settings, redisUrl: string): Env {
  return {
    ...childEnvironment(env, settings),
    HOMING_REDIS_URL: redisUrl,
    HOMING_JWT_SECRET: undefined,
    HOMING_JWT_SECRET_PREVIOUS: undefined,
    HOMING_ADMIN_TOKEN: undefined,
    HOMING_METRICS_TOKEN: undefined,
    // Several workers of one machine can not have one port.
    HOMING_WORKER_OPS_PORT: undefined,
    // Nodes send webhooks.
    HOMING_WEBHOOK_ALLOW: undefined,
    HOMING_WEBHOOK_SECRET: undefined,
    HOMING_TOKEN: undefined,
  };
}

/** Where node i listens: 10 further for each; 0 is any. One that is started again keeps the ports it had. */
export function nodePorts(settings: Settings, i: number, before: ReadyFacts | undefined): Env {
  const port = (base: number, url: string | undefined) => {
    if (url !== undefined) return new URL(url).port;
    return String(base === 0 ? 0 : base + 10 * i);
  };
  return {
    HOMING_PORT: port(settings.HOMING_PORT, before?.url),
    HOMING_OPS_PORT: port(settings.HOMING_OPS_PORT, before?.opsUrl),
  };
}

/** Ports that `nodes` nodes can not have. */
export function portFaults({ HOMING_PORT: port, HOMING_OPS_PORT: opsPort }: Settings, nodes: number): string[] {
  const last = 10 * (nodes - 1);
  const faults: string[] = [];
  for (const [name, first] of [['HOMING_PORT', port] as const, ['HOMING_OPS_PORT', opsPort] as const]) {
    if (first + last > 65_535) faults.push(`${name}: node ${nodes - 1} would have port ${first + last}`);
  }
  if (port !== 0 && opsPort !== 0 && (opsPort - port) % 10 === 0 && Math.abs(opsPort - port) <= last) {
    faults.push(`HOMING_OPS_PORT: ${opsPort} meets the ports of the nodes`);
  }
  return faults;
}
