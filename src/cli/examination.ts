/** What `homing doctor` looks at: the Redis that would be used, the one of the queues, and this machine. */
import { createServer } from 'node:net';
import type { Settings } from '../config.js';
import { broken, type Finding, good, risky } from '../domain/finding.js';
import type { Log } from '../domain/ports.js';
import { judgeRedis } from '../domain/redis-health.js';
import { messageOf } from '../errors.js';
import { describeTarget, type RedisTarget } from '../redis/connections.js';
import { inspectRedis } from '../redis/inspect.js';
import { createKeys } from '../redis/keys.js';
import { findOrFetchServer, serverSourcesOf } from '../redis/server-binary.js';
import { redisTargets } from '../redis/targets.js';
import { tryCgroups } from '../worker/cgroups-probe.js';
import { probeContainment } from '../worker/containment.js';
import { countLeftovers } from '../worker/containment-sweep.js';
import { dataDirOf, readRunFile } from './data-dir.js';
import type { Section } from './doctor.js';
import type { Env } from './env-files.js';
import { nodeFaults } from './settings.js';

/** Never throws for something that is wrong: that is a finding. Looks, and changes nothing. */
export async function examine(settings: Settings, env: Env): Promise<Section[]> {
  const run = readRunFile(dataDirOf(settings, env));
  const redisUrl: string | undefined = settings.HOMING_REDIS_URL ?? run?.redisUrl;
  const queueUrl = settings.HOMING_QUEUE_REDIS_URL;
  const [redis, queue, host] = await Promise.all([
    redisUrl === undefined ? redisToStart(env) : redisSection('Redis', redisUrl, settings),
    queueUrl === undefined || queueUrl === redisUrl
      ? undefined
      : redisSection('Redis of the queues', queueUrl, settings),
    hostSection(settings, env, run?.pid),
  ]);
  return [redis, ...(queue === undefined ? [] : [queue]), host];
}

async function redisSection(title: string, url: string, settings: Settings): Promise<Section> {
  let target: RedisTarget;
  try {
    target = redisTargets({ ...settings, HOMING_REDIS_URL: url }).target;
  } catch (error) {
    return {
      title,
      findings: [broken('address', messageOf(error), 'See docs/settings.md for the forms it may have.')],
    };
  }
  const place = `${title} at ${describeTarget(target)}`;
  try {
    return { title: place, findings: judgeRedis(await inspectRedis(target, createKeys(settings.HOMING_PREFIX))) };
  } catch (error) {
    const mend = 'Start it, or change HOMING_REDIS_URL; see that its port is open and the password right.';
    return { title: place, findings: [broken('connection', messageOf(error), mend)] };
  }
}

/** None is given and none runs: `homing up` would start one. */
async function redisToStart(env: Env): Promise<Section> {
  const title = 'Redis (none given, none running)';
  const passedOver: string[] = [];
  const say = (sentence: string) => void passedOver.push(sentence);
  const overlooked = () => passedOver.map((sentence) => risky('server', sentence, 'Update it, or leave it to others.'));
  try {
    const { file, version } = await findOrFetchServer({ ...serverSourcesOf(env), download: false, say });
    return { title, findings: [...overlooked(), good('server', `"homing up" starts ${file}, version ${version}`)] };
  } catch {
    const mend = '"homing up" fetches one where it can. Or: apt-get install redis-server, or set HOMING_REDIS_URL.';
    return { title, findings: [...overlooked(), risky('server', 'no redis-server or valkey-server here', mend)] };
  }
}

async function hostSection(settings: Settings, env: Env, upPid: number | undefined): Promise<Section> {
  const { HOMING_HOST, HOMING_PORT, HOMING_OPS_HOST, HOMING_OPS_PORT } = settings;
  const findings = await Promise.all([
    containmentOf(settings, env),
    groupsOf(),
    leftoversOf(),
    portOf('port', HOMING_HOST, HOMING_PORT, '/openapi.json', upPid),
    portOf('ops port', HOMING_OPS_HOST, HOMING_OPS_PORT, '/livez', upPid),
  ]);
  const settingsFindings = nodeFaults(settings).map((fault) =>
    broken('settings', fault, 'Set it for gateway nodes; see docs/settings.md.'),
  );
  return { title: 'This machine', findings: [...findings, ...settingsFindings] };
}

/** As a worker would find it here, by planting processes and killing their parent. */
async function containmentOf(settings: Settings, env: Env): Promise<Finding> {
  const check = 'containment';
  const reasons: string[] = [];
  const log: Log = {
    ...silent,
    warn(fields) {
      const { faults } = fields as { faults?: unknown };
      if (Array.isArray(faults)) reasons.push(...faults.map(String));
    },
  };
  const mend =
    'Run workers as root, or allow user namespaces (bubblewrap helps). In a container the container itself holds them.';
  try {
    const options = { path: env.PATH ?? '', floor: settings.HOMING_CONTAINMENT, log };
    const { level, means, profiles } = await probeContainment(options);
    if (level === 'pidns') {
      const sandbox = profiles.length > 0 ? `; sandboxes: ${profiles.join(', ')}` : '; no sandboxes (bwrap is missing)';
      return good(check, `${level}, by ${means}${sandbox}`);
    }
    const why = reasons.length === 0 ? '' : ` (${reasons.join('; ')})`;
    return risky(check, `${level}: a process that hides can outlive a worker that is killed${why}`, mend);
  } catch (error) {
    return broken(check, messageOf(error), mend);
  }
}

/** As a worker would find them if it were started from here; everything is put back. */
async function groupsOf(): Promise<Finding> {
  const tried = await tryCgroups(`doctor-${process.pid}`);
  if (tried.type === 'open') tried.cgroups.close();
  const used = tried.type === 'open' ? 'the kernel holds limits of memory' : `not used: ${tried.why}`;
  return good('control groups', used);
}

async function leftoversOf(): Promise<Finding> {
  const count = await countLeftovers();
  if (count === 0) return good('leftovers', 'none of workers that died');
  const found = `${count} process${count === 1 ? '' : 'es'} of commands whose worker died`;
  return risky('leftovers', found, 'The next worker that starts on this machine ends them.');
}

const ASK_WITHIN_MS = 3_000;

async function portOf(check: string, host: string, port: number, path: string, upPid?: number): Promise<Finding> {
  const place = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  if (port === 0) return good(check, 'any that is free');
  const code = await tryToListen(host, port);
  if (code === undefined) return good(check, `${place} is free`);
  const mend = `Choose another with HOMING_${check === 'port' ? '' : 'OPS_'}PORT, or stop the program that has it.`;
  if (code === 'EADDRINUSE') {
    const own = await isHoming(`http://${reachable(host)}:${port}${path}`);
    if (own) return good(check, `${place} is Homing's${upPid === undefined ? '' : ` (process ${upPid})`}`);
    return broken(check, `${place} is taken by another program`, mend);
  }
  if (code === 'EACCES') return broken(check, `this user may not listen on ${place}`, mend);
  return broken(check, `${place} can not be listened on: ${code}`, 'Choose an address of this machine.');
}

/** @returns undefined when it can be had */
function tryToListen(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen(port, host, () => server.close(() => resolve(undefined)));
  });
}

const reachable = (host: string): string => {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
};

async function isHoming(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(ASK_WITHIN_MS) });
    const said = (await response.json()) as { nodeId?: string; info?: { title?: string } };
    return said.nodeId !== undefined || said.info?.title === 'Homing';
  } catch {
    return false; // Not HTTP, or not JSON, or silent: not ours.
  }
}

const silent: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
