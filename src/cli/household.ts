/**
 * The household of `homing up`: Redis (its own, unless one is given), nodes and workers as child processes. Prints where
 * they listen and, last, `ready`.
 */
import { randomBytes } from 'node:crypto';
import { constants } from 'node:os';
import type { Settings } from '../config.js';
import type { Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import { signToken } from '../gateway/tokens.js';
import { createLifecycle, type Lifecycle, onSignals } from '../lifecycle.js';
import { createLog } from '../ops/log.js';
import { startEmbeddedRedis } from '../redis/embedded-server.js';
import { serverSourcesOf } from '../redis/server-binary.js';
import { checkRedis } from '../redis/targets.js';
import { type ReadyFacts, type Supervised, superviseChild } from './child.js';
import { nodeEnvironment, nodePorts, workerEnvironment } from './child-environment.js';
import { dataDirOf, ensureDataDir, readOrMakeSecret, readRunFile, removeRunFile, writeRunFile } from './data-dir.js';
import { CliFault, EXIT } from './fault.js';
import { say, watchPipes } from './output.js';
import type { UpFlags } from './up.js';

/** Tokens of `up` are made anew long before they run out. */
const TOKEN_TTL_MS = 30 * 86_400_000;
const TOKEN_RENEW_MS = 86_400_000;
/** After the drain: what processes may take to close before they are killed. */
const CLOSE_TAIL_MS = 15_000;
/** What they may take once the drain was cut short by a second signal. */
const FORCED_MS = 12_000;
/** Redis writes its last bytes after that. */
const CLOSE_LIMIT_MS = FORCED_MS + 10_000;

/** Resolves with the exit status when everything has ended. @throws CliFault, AppError when the start fails */
export async function up(flags: UpFlags, settings: Settings): Promise<number> {
  const dataDir = claimDataDir(settings);
  watchPipes(() => undefined); // It runs on without whoever read its output.
  const log = createLog(settings.HOMING_LOG_LEVEL, { program: 'up', pid: process.pid });
  const household: Household = { children: [], nodes: [] };
  let status = 0;

  const life = createLifecycle({
    drain(why) {
      log.info({ why, withinMs: settings.HOMING_DRAIN_MS }, 'draining');
      return endChildren(household.children, settings.HOMING_DRAIN_MS + CLOSE_TAIL_MS);
    },
    async close() {
      clearInterval(household.renewal);
      // For those still draining this is the second SIGTERM, which cuts the drain short and kills their commands. Two
      // that come close together arrive as one, so their lifeline is cut as well.
      for (const child of household.children) child.letGo();
      await endChildren(household.children, FORCED_MS);
      await Promise.all(household.children.map((child) => child.stop('SIGKILL')));
      await household.redis?.close();
      removeRunFile(dataDir);
    },
    closeLimitMs: CLOSE_LIMIT_MS,
    failed(step, error) {
      status = 1;
      log.error({ step, error: messageOf(error) }, 'could not end cleanly');
    },
  });
  const stopSignals = onSignals(process, {
    graceful: (signal) => void life.stop(signal),
    forceful(signal) {
      status = 1;
      log.warn({ signal }, 'ending the drain');
      life.force();
    },
    // The rest follows: the lifeline of every child breaks with this process.
    atOnce: (signal) => process.exit(128 + constants.signals[signal as 'SIGTERM']),
  });

  try {
    await startHousehold(household, flags, settings, { dataDir, log, life });
    await life.stopped;
  } catch (error) {
    // A stop during the start makes the start fail, and is no failure.
    if (life.state === 'starting') {
      await life.stop('the start failed');
      throw error;
    }
    await life.stopped;
  } finally {
    stopSignals();
  }
  return status;
}

/** @throws CliFault when another `homing up` has it */
function claimDataDir(settings: Settings): string {
  const dataDir = dataDirOf(settings, process.env);
  ensureDataDir(dataDir);
  const other = readRunFile(dataDir);
  if (other === undefined) return dataDir;
  const sentence = `Homing is already running with the data folder ${dataDir} (process ${other.pid}, ${other.url}).`;
  throw new CliFault(EXIT.failure, sentence);
}

/** Everything that runs under one roof. */
interface Household {
  redis?: Awaited<ReturnType<typeof startEmbeddedRedis>>;
  readonly children: Supervised[];
  /** What each node said last, by its number. */
  readonly nodes: ReadyFacts[];
  renewal?: NodeJS.Timeout;
}

interface Surroundings {
  readonly dataDir: string;
  readonly log: Log;
  readonly life: Lifecycle;
}

async function startHousehold(
  household: Household,
  flags: UpFlags,
  settings: Settings,
  { dataDir, log, life }: Surroundings,
): Promise<void> {
  const { children, nodes } = household;
  const jwtSecret = settings.HOMING_JWT_SECRET ?? readOrMakeSecret(dataDir);
  const adminToken = settings.HOMING_ADMIN_TOKEN ?? randomBytes(24).toString('base64url');

  let redisUrl = settings.HOMING_REDIS_URL;
  // Asked here once, so that its absence is told once and not by every child.
  if (redisUrl !== undefined) await checkRedis(settings);
  else {
    const redis = await startEmbeddedRedis({
      dataDir,
      ...serverSourcesOf(process.env),
      download: flags.download,
      say,
      log,
    });
    if (life.state !== 'starting') {
      await redis.close();
      throw new Error('stopped during the start');
    }
    household.redis = redis;
    redisUrl = redis.url;
  }

  /** Writes run.json anew. @returns the address for people, with a token */
  const announce = async (): Promise<string> => {
    const [first] = nodes;
    const token = await signToken(jwtSecret, tokenRequest(settings), Date.now());
    const url = first?.url ?? '';
    const pids = children.map((child) => ({ name: child.name, pid: child.pid }));
    const own = household.redis === undefined ? {} : { redisUrl: household.redis.url };
    const opsUrl = first?.opsUrl ?? '';
    writeRunFile(dataDir, { pid: process.pid, url, opsUrl, token, adminToken, ...own, nodes, pids });
    return `${url}/#token=${token}`;
  };
  const announceAgain = () => {
    if (life.state !== 'running') return;
    announce().catch((error) => log.error({ error: messageOf(error) }, 'could not write run.json'));
  };

  const nodeEnv = nodeEnvironment(process.env, settings, { redisUrl, jwtSecret, adminToken });
  for (let i = 0; i < flags.nodes; i += 1) {
    const env = () => ({ ...nodeEnv, ...nodePorts(settings, i, nodes[i]) });
    const onReady = (facts: ReadyFacts) => {
      nodes[i] = facts;
      announceAgain();
    };
    children.push(superviseChild({ name: `gateway ${i}`, args: ['gateway'], env, log, onReady }));
  }
  const workerEnv = workerEnvironment(process.env, settings, redisUrl);
  // Commands that start commands need the address of a node; it is known before only where ports are fixed.
  if (settings.HOMING_PORT === 0) await children[0]?.ready;
  const gatewayUrl = () => settings.HOMING_GATEWAY_URL ?? nodes[0]?.url ?? localUrl(settings);
  for (let i = 0; i < flags.workers; i += 1) {
    const env = () => ({ ...workerEnv, HOMING_GATEWAY_URL: gatewayUrl() });
    children.push(superviseChild({ name: `worker ${i}`, args: ['worker'], env, log, onReady: announceAgain }));
  }
  await Promise.all(children.map((child) => child.ready));

  const app = await announce();
  household.renewal = setInterval(announceAgain, TOKEN_RENEW_MS);
  life.running();
  const lines = nodes.map(({ url, opsUrl }, i) => `gateway ${i}  ${url}\nops ${i}      ${opsUrl}\n`);
  process.stdout.write(`${lines.join('')}app        ${app}\nready\n`);
}

/** Asks every child to end and waits for them, at most so long. */
async function endChildren(children: readonly Supervised[], withinMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, withinMs);
  });
  await Promise.race([Promise.all(children.map((child) => child.stop('SIGTERM'))), late]);
  clearTimeout(timer);
}

/** Of the first node, as programs on this machine reach it. */
function localUrl({ HOMING_HOST: host, HOMING_PORT: port }: Settings): string {
  const any = host === '0.0.0.0' || host === '::';
  return `http://${any ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host}:${port}`;
}

const tokenRequest = (settings: Settings) => ({
  sub: 'local',
  scope: 'read run kill',
  pools: [...new Set(['default', settings.HOMING_POOL])],
  ttlMs: TOKEN_TTL_MS,
  issuer: settings.HOMING_JWT_ISSUER,
  audience: settings.HOMING_JWT_AUDIENCE,
});
