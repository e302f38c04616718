/**
 * The only wiring: settings → connections → adapters → a node or a worker. Whoever starts one drains it and closes it.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Settings } from './config.js';
import type { Chance, EventBus, Log } from './domain/ports.js';
import { refusalOf, withRetainedQuota, withSessionQuota } from './domain/quotas.js';
import { createTurns, withTurns } from './domain/turns.js';
import { withWebhookIntent } from './domain/webhook-intent.js';
import { createMeter } from './ops/meter.js';
import { createPatterns } from './ops/patterns.js';
import { createSecretBox } from './ops/secret-box.js';
import { openTraces } from './ops/traces.js';
import { version } from './ops/version.js';
import { makeNodeId, makeWorkerId, type NodeId, type WorkerId } from './protocol/ids.js';
import { type AllowedTarget, isAllowed, parseAllowList } from './protocol/webhook.js';
import { createQueueConsumer } from './queue/consumer.js';
import { createQueueProducer } from './queue/producer.js';
import { createWebhookConsumer, createWebhookQueue } from './queue/webhooks.js';
import { createReconciler } from './reconciler/reconciler.js';
import { createClaimLane } from './redis/claim-lane.js';
import { createCommandFeed } from './redis/command-feed.js';
import { createCommandStore } from './redis/command-store.js';
import { createRedis, type RedisRole } from './redis/connections.js';
import { createEventBus } from './redis/event-bus.js';
import { createGapNotes } from './redis/gap-notes.js';
import { createKeys } from './redis/keys.js';
import { createLines } from './redis/lines.js';
import { createNoticeCounts } from './redis/notice-counts.js';
import { checkPing } from './redis/ping.js';
import { createPresence } from './redis/presence.js';
import { createQuotas } from './redis/quotas.js';
import { createReassertion } from './redis/reassertion.js';
import { createRelief } from './redis/relief.js';
import { createScripts, scriptText } from './redis/scripts.js';
import { createSessionDirectory } from './redis/session-directory.js';
import { redisTargets, requireRedis } from './redis/targets.js';
import { createTenantPlaces } from './redis/tenant-places.js';
import { createDelivery } from './webhook/deliver.js';
import { openHost } from './worker/host.js';
import { createShim } from './worker/shim.js';
import { createWorker, type Worker } from './worker/worker.js';

/** A running node or worker. */
export interface Part<Facts> {
  readonly facts: Facts;
  /** Takes no new work and ends or hands over what it has. Bounded by `HOMING_DRAIN_MS` unless told otherwise. */
  drain(withinMs?: number): Promise<void>;
  /** Releases everything. Idempotent; bounded also while Redis is away. */
  close(): Promise<void>;
}

export interface NodePartFacts {
  readonly nodeId: NodeId;
  readonly url: string;
  readonly opsUrl: string;
}

export interface WorkerPartFacts {
  readonly workerId: WorkerId;
  readonly pool: string;
  readonly concurrency: number;
  /** Where it was asked for. */
  readonly opsUrl?: string;
}

export interface NodeSurroundings {
  readonly log: Log;
  /** An operator asked this process to stop, as SIGTERM does. */
  drainAsked(): void;
}

export interface WorkerSurroundings extends NodeSurroundings {
  /** The environment of which `HOMING_ENV_ALLOW` names what commands see. */
  readonly hostEnv: Readonly<Record<string, string | undefined>>;
  /** Folder of commands that name none. */
  readonly defaultCwd: string;
  /** Shared by the workers of this host; the ledger of starts is in it. */
  readonly dataDir: string;
  /** How to start `homing`, for commands that start commands: program and first arguments. */
  readonly program: readonly string[];
}

/** Failures of one token in a minute before they are answered RATE_LIMITED. */
const MAX_TOKEN_FAILURES = 20;

/** How long a host remembers at least what it started. */
const LEDGER_MS = 24 * 3_600_000;

const chance: Chance = { bytes: (size) => randomBytes(size), random: Math.random };

/**
 * A gateway node with a reconciler: listens when this resolves.
 * @throws AppError REDIS_UNAVAILABLE with a sentence; Error with a code (EADDRINUSE …) from listening
 */
export function startNode(settings: Settings, surroundings: NodeSurroundings): Promise<Part<NodePartFacts>> {
  const { log, drainAsked } = surroundings;
  return assemble(async (closers) => {
    // Only here: a worker has no use for a web server and pages for operators, and does without their memory. Before there are
    // connections, which would go unheard meanwhile.
    const { createGateway } = await import('./gateway/gateway.js');
    const { proxyList } = await import('./gateway/addresses.js');
    const { createRates } = await import('./redis/rates.js');
    const { openAudit } = await import('./ops/audit.js');
    const { openOperators } = await import('./ops/operators.js');
    const nodeId = makeNodeId(chance.bytes(16));
    const core = await openCore(settings, nodeId, log.child({ nodeId }), closers);
    const { sessions, commands, feed, bus, presence, reassertion, queue, lines, meter } = core;
    const allowed = parseAllowList(settings.HOMING_WEBHOOK_ALLOW ?? '');
    const operators = openOperators({ ...core, log, chance });
    closers.add(() => operators.close());
    const { HOMING_AUDIT_FILE: auditFile, HOMING_MAX_FAILED_ATTEMPTS: failures } = settings;
    const audit = auditFile === undefined ? undefined : openAudit(auditFile, { nodeId }, log, Date.now);
    closers.add(() => audit?.close());
    const rates = createRates({
      ...core,
      limits: {
        tenantRuns: settings.HOMING_MAX_RUNS_PER_SEC,
        runs: settings.HOMING_MAX_RUNS_PER_SEC_PER_PRINCIPAL,
        writes: settings.HOMING_MAX_WRITES_PER_SEC_PER_PRINCIPAL,
        kills: settings.HOMING_MAX_KILLS_PER_SEC_PER_PRINCIPAL,
        addressFailures: failures,
        // A client that repeats a token which failed is asked to wait sooner than an office behind one address.
        tokenFailures: Math.min(failures, MAX_TOKEN_FAILURES),
      },
    });
    const tracing = await openTraces(settings, { program: 'gateway', id: nodeId, version: version() });
    closers.add(() => tracing?.close());
    const gateway = createGateway(
      {
        sessions,
        commands,
        feed,
        bus,
        presence,
        reassertion,
        gapNotes: core.gapNotes,
        traces: tracing?.traces,
        queue,
        lines,
        log,
        meter,
        chance,
        secrets: secretBoxOf(settings),
        allowWebhook: allowed && ((address: string) => isAllowed(allowed, address)),
        patterns: createPatterns(),
        now: Date.now,
        rates,
        audit,
      },
      {
        nodeId,
        version: version(),
        host: settings.HOMING_HOST,
        port: settings.HOMING_PORT,
        opsHost: settings.HOMING_OPS_HOST,
        opsPort: settings.HOMING_OPS_PORT,
        heartbeatMs: settings.HOMING_HEARTBEAT_MS,
        leaseMs: settings.HOMING_LEASE_MS,
        graceMs: settings.HOMING_GRACE_MS,
        queueMs: settings.HOMING_QUEUE_MS,
        drainMs: settings.HOMING_DRAIN_MS,
        killGraceMs: settings.HOMING_KILL_GRACE_MS,
        outboxBytes: settings.HOMING_OUTBOX_BYTES,
        maxFrameBytes: settings.HOMING_MAX_FRAME_BYTES,
        jwtSecrets: present([settings.HOMING_JWT_SECRET, settings.HOMING_JWT_SECRET_PREVIOUS]),
        jwksUrl: settings.HOMING_JWKS_URL,
        issuer: settings.HOMING_JWT_ISSUER,
        audience: settings.HOMING_JWT_AUDIENCE,
        adminToken: settings.HOMING_ADMIN_TOKEN,
        metricsToken: settings.HOMING_METRICS_TOKEN,
        publicOrigins: (settings.HOMING_PUBLIC_ORIGINS ?? '')
          .split(',')
          .map((origin) => origin.trim())
          .filter((origin) => origin !== ''),
        trustedProxies: proxyList(settings.HOMING_TRUST_PROXY),
        maxConnections: {
          perTenant: settings.HOMING_MAX_CONNECTIONS,
          perPrincipal: settings.HOMING_MAX_CONNECTIONS_PER_PRINCIPAL,
          perAddress: settings.HOMING_MAX_CONNECTIONS_PER_ADDRESS,
        },
        webDir: builtWebApp(),
        opsPlugins: operators.plugins,
        checkRedis: () => checkPing(core.ping),
      },
    );
    closers.add(() => gateway.close());
    sendWebhooks(settings, allowed, core, closers);
    startReconciler(settings, nodeId, core, closers, gateway.serverChanged);
    const { url, opsUrl } = await gateway.listen();
    await hearDrain(bus, nodeId, drainAsked, closers);
    return {
      facts: { nodeId, url, opsUrl },
      drain: (withinMs = settings.HOMING_DRAIN_MS) => gateway.drain(withinMs),
    };
  });
}

/**
 * A worker with a reconciler, so that judging goes on with either kind of process alive: takes jobs when this resolves.
 * @throws AppError REDIS_UNAVAILABLE with a sentence
 */
export function startWorker(settings: Settings, surroundings: WorkerSurroundings): Promise<Part<WorkerPartFacts>> {
  return assemble(async (closers) => {
    const { log, hostEnv, defaultCwd, dataDir, drainAsked } = surroundings;
    const { HOMING_POOL: pool, HOMING_CONCURRENCY: concurrency } = settings;
    const workerId = makeWorkerId(chance.bytes(16));
    // Trying the host takes as long as all the rest, and neither waits for the other.
    const opening = openHost({
      id: workerId,
      floor: settings.HOMING_CONTAINMENT,
      runAs: settings.HOMING_RUN_AS,
      workRoot: settings.HOMING_WORK_ROOT,
      sandbox: settings.HOMING_SANDBOX,
      dataDir,
      keepMs: Math.max(settings.HOMING_RETENTION_MS, LEDGER_MS),
      path: hostEnv.PATH ?? '',
      log,
    });
    opening.catch(() => undefined); // It is awaited below, unless Redis does not answer: then that is what to tell.
    closers.add(async () => (await opening.catch(() => undefined))?.close());
    // Only the bus's own probe goes by this name; the worker makes its own.
    const core = await openCore(settings, makeWorkerId(chance.bytes(16)), log, closers);
    const { commands, presence, bus, meter, keys } = core;
    const { containment, cgroups, ledger, spoolFiles, runAs, workRoot, sandbox } = await opening;
    const shim = await createShim(surroundings.program);
    closers.add(() => shim.close());
    const jobs = core.connect('queue-worker');
    const tracing = await openTraces(settings, { program: 'worker', id: workerId, version: version() });
    closers.add(() => tracing?.close());
    const worker = createWorker(
      {
        containment,
        cgroups,
        ledger,
        spoolFiles,
        store: commands,
        presence,
        reassertion: core.reassertion,
        gapNotes: core.gapNotes,
        traces: tracing?.traces,
        bus,
        secrets: secretBoxOf(settings),
        patterns: createPatterns(),
        noticeCounts: core.noticeCounts,
        shim,
        consume: (run) => createQueueConsumer({ redis: jobs, keys, pool, concurrency, log, run }),
        log,
        meter,
        chance,
      },
      {
        workerId,
        runAs,
        workRoot,
        sandbox,
        pool,
        concurrency,
        version: version(),
        leaseMs: settings.HOMING_LEASE_MS,
        killGraceMs: settings.HOMING_KILL_GRACE_MS,
        spoolBytes: settings.HOMING_SPOOL_BYTES,
        logFirstBytes: settings.HOMING_LOG_FIRST_BYTES,
        logLastBytes: settings.HOMING_LOG_LAST_BYTES,
        outputBytesPerSec: settings.HOMING_OUTPUT_BYTES_PER_SEC,
        envAllow: settings.HOMING_ENV_ALLOW,
        hostEnv,
        defaultCwd,
        gatewayUrl: settings.HOMING_GATEWAY_URL,
      },
    );
    closers.add(() => worker.close());
    startReconciler(settings, workerId, core, closers, worker.serverChanged);
    const door = await openDoor(settings, workerId, worker, core, closers);
    await worker.start();
    await hearDrain(bus, workerId, drainAsked, closers);
    return {
      facts: { workerId, pool, concurrency, ...door },
      drain: (withinMs = settings.HOMING_DRAIN_MS) => worker.drain(withinMs),
    };
  });
}

// ----------------------------------------------------------------------------------------------------- common parts

/** Until it answers for the first time, the one sentence at the end tells more than a warning for each attempt. */
function quietLog(log: Log): { readonly log: Log; speak(): void } {
  let quiet = true;
  const warn: Log['warn'] = (fields, message) => (quiet ? log.debug(fields, message) : log.warn(fields, message));
  const speaking =
    (level: 'debug' | 'info' | 'error'): Log[typeof level] =>
    (fields, message) =>
      log[level](fields, message);
  return {
    log: {
      debug: speaking('debug'),
      info: speaking('info'),
      warn,
      error: speaking('error'),
      child: (fields) => log.child(fields),
    },
    speak() {
      quiet = false;
    },
  };
}

type Core = Awaited<ReturnType<typeof openCore>>;

/** What nodes and workers have alike: connections and the adapters on them. */
async function openCore(settings: Settings, selfId: NodeId | WorkerId, log: Log, closers: Closers) {
  const { target, queueTarget } = redisTargets(settings);
  const keys = createKeys(settings.HOMING_PREFIX);
  const meter = createMeter();
  const connect = (role: RedisRole, roleLog = log) => {
    const redis = createRedis(role.startsWith('queue') ? queueTarget : target, role, roleLog);
    closers.add(() => redis.disconnect());
    return redis;
  };

  const startLog = quietLog(log);
  const redis = connect('commands', startLog.log);
  await requireRedis(redis, 'HOMING_REDIS_URL');
  const producing = connect('queue-producer', startLog.log);
  await requireRedis(
    producing,
    settings.HOMING_QUEUE_REDIS_URL === undefined ? 'HOMING_REDIS_URL' : 'HOMING_QUEUE_REDIS_URL',
  );
  startLog.speak();

  const scripts = createScripts(redis);
  const leaseMs = settings.HOMING_LEASE_MS;
  const graceMs = settings.HOMING_GRACE_MS;
  const retentionMs = settings.HOMING_RETENTION_MS;
  const presence = createPresence({ redis, keys, scripts, leaseMs, chance, graceMs, retentionMs, meter, log });
  const quotas = createQuotas({ redis, keys, scripts, retentionMs });
  const most = {
    sessions: settings.HOMING_MAX_SESSIONS,
    queued: settings.HOMING_MAX_QUEUED,
    queuedPerSession: settings.HOMING_MAX_QUEUED_PER_SESSION,
    retainedBytes: settings.HOMING_MAX_RETAINED_BYTES,
    retainedBytesPerSession: settings.HOMING_MAX_RETAINED_BYTES_PER_SESSION,
  };
  const directory = createSessionDirectory({ redis, keys, scripts, presence, graceMs, retentionMs, log });
  const sessions = withSessionQuota(directory, quotas, most);
  const claimLane = createClaimLane({
    connect: () => (target.type === 'cluster' ? redis : connect('claims')),
    lua: scriptText('claim'),
    replicas: settings.HOMING_CLAIM_REPLICAS,
    shortfall: settings.HOMING_CLAIM_SHORTFALL,
    log,
    meter,
  });
  closers.add(() => claimLane.close());
  const relief = createRelief({ redis, keys, scripts });
  const stored = createCommandStore({
    log,
    redis,
    keys,
    scripts,
    presence,
    chance,
    retentionMs,
    logFirstBytes: settings.HOMING_LOG_FIRST_BYTES,
    logLastBytes: settings.HOMING_LOG_LAST_BYTES,
    claimLane,
    relief,
    refusalOf: (request) => refusalOf(quotas, most, request),
    // 0: no limit.
    limits: {
      session: settings.HOMING_MAX_RUNNING_PER_SESSION || undefined,
      tenant: settings.HOMING_MAX_RUNNING || undefined,
    },
  });
  const queue = createQueueProducer({ redis: producing, keys, log });
  closers.add(() => queue.close());
  const places = createTenantPlaces({ keys, scripts, staleMs: leaseMs });
  const lines = createLines({ redis, keys, queue });
  const turns = createTurns({ store: stored, places, queue, log });
  const counted = withRetainedQuota(stored, quotas, most, log);
  const commands = withTurns(withWebhookIntent(counted, presence), turns, log);
  const feed = createCommandFeed({ redis, keys });
  const gapNotes = createGapNotes({ keys, scripts });
  closers.add(() => gapNotes.close());
  const noticeCounts = createNoticeCounts({ keys, scripts });
  const reassertion = createReassertion({ redis, keys, scripts, presence });
  const subscriber = connect('subscriber');
  const bus = createEventBus({ commands: redis, subscriber, keys, selfId, log, meter, chance });
  closers.add(() => bus.close());
  const webhooks = createWebhookQueue({ redis: producing, keys, log });
  closers.add(() => webhooks.close());
  return {
    ...{
      redis,
      queueRedis: producing,
      keys,
      meter,
      log,
      presence,
      sessions,
      commands,
      feed,
      gapNotes,
      reassertion,
      relief,
      bus,
      queue,
      lines,
      noticeCounts,
      turns,
      webhooks,
      connect,
    },
    ping: () => redis.ping(),
  };
}

/** The ops address of a worker, where one is asked for. */
async function openDoor(
  settings: Settings,
  workerId: WorkerId,
  worker: Pick<Worker, 'state'>,
  { meter, ping }: Core,
  closers: Closers,
): Promise<{ readonly opsUrl?: string }> {
  const { HOMING_WORKER_OPS_PORT: port, HOMING_OPS_HOST: host, HOMING_METRICS_TOKEN: metricsToken } = settings;
  if (port === undefined) return {};
  const { openWorkerDoor } = await import('./ops/worker-door.js');
  const jobs = () => (worker.state === 'running' ? 'ok' : worker.state);
  const identity = { workerId, version: version(), host, port, metricsToken };
  const door = await openWorkerDoor({ ...identity, jobs, checkRedis: () => checkPing(ping), dump: meter.dump });
  closers.add(() => door.close());
  return { opsUrl: door.opsUrl };
}

/** An operator's page asks a process to stop over its own channel. What is not understood is of another version. */
async function hearDrain(
  bus: EventBus,
  id: NodeId | WorkerId,
  drainAsked: () => void,
  closers: Closers,
): Promise<void> {
  const subscription = await bus.subscribeAsk(id, (message) => {
    if (/^\{"v":1,"type":"drain"\}$/.test(message)) drainAsked();
  });
  closers.add(() => subscription.close());
}

/** Webhooks that a node sends at the same time. */
const WEBHOOK_CONCURRENCY = 8;

/** A node sends them where the operator allows some; any node takes any of them. */
function sendWebhooks(
  settings: Settings,
  allowed: readonly AllowedTarget[] | undefined,
  { commands, keys, log, meter, connect }: Core,
  closers: Closers,
): void {
  const { HOMING_WEBHOOK_SECRET: secret } = settings;
  if (allowed === undefined || secret === undefined) return;
  const deliver = createDelivery({ commands, log, meter, now: Date.now }, { allowed, secret, version: version() });
  const redis = connect('queue-worker');
  const consumer = createWebhookConsumer({ redis, keys, log, concurrency: WEBHOOK_CONCURRENCY, deliver });
  closers.add(() => consumer.close());
}

function startReconciler(
  settings: Settings,
  id: NodeId | WorkerId,
  core: Core,
  closers: Closers,
  serverChanged: () => void,
): void {
  const { sessions, commands, presence, queue, turns, webhooks, relief, log, meter } = core;
  const reconciler = createReconciler(
    {
      sessions,
      commands,
      presence,
      queue,
      turns,
      webhooks,
      log,
      meter,
      chance,
      nowMs: () => performance.now(),
      serverChanged,
      relief,
    },
    {
      id,
      leaseMs: settings.HOMING_LEASE_MS,
      graceMs: settings.HOMING_GRACE_MS,
      queueMs: settings.HOMING_QUEUE_MS,
      killGraceMs: settings.HOMING_KILL_GRACE_MS,
    },
  );
  closers.add(() => reconciler.close());
  reconciler.start();
}

/** Beside this file in the build; absent when it runs from its source. */
function builtWebApp(): string | undefined {
  const folder = fileURLToPath(new URL('web/', import.meta.url));
  return existsSync(join(folder, 'index.html')) ? folder : undefined;
}

const secretBoxOf = (settings: Settings) =>
  createSecretBox(present([settings.HOMING_SECRET_KEY, settings.HOMING_SECRET_KEY_PREVIOUS]), chance);

const present = (values: readonly (string | undefined)[]): string[] => values.filter((value) => value !== undefined);

interface Closers {
  add(close: () => unknown): void;
}

/** Builds a part; what was opened is closed in reverse order, also when building it fails half-way. */
async function assemble<Facts>(build: (closers: Closers) => Promise<Omit<Part<Facts>, 'close'>>): Promise<Part<Facts>> {
  const opened: (() => unknown)[] = [];
  let closing: Promise<void> | undefined;
  async function closeAll(): Promise<void> {
    const failures: unknown[] = [];
    for (const close of opened.reverse()) {
      try {
        await close();
      } catch (error) {
        failures.push(error); // The rest is released all the same.
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, 'not everything could be closed');
  }
  const close = () => {
    closing ??= closeAll();
    return closing;
  };
  try {
    const part = await build({ add: (closer) => opened.push(closer) });
    return { ...part, close };
  } catch (error) {
    await close().catch(() => undefined); // The first failure is the one to tell.
    throw error;
  }
}
