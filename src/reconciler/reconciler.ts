/**
 * Sees to it that nothing looks alive for ever: ends graces, judges dead nodes and workers, re-queues and expires.
 * It runs in every node and worker; one of them leads at a time. Two leading at once costs work, not truth, since every
 * step is a script that checks what it changes.
 */
import {
  afterPause,
  type Clocks,
  deadOnes,
  type Health,
  noteClocks,
  noteHealth,
  type Observations,
  observe,
} from '../domain/liveness.js';
import type {
  Chance,
  CommandStore,
  DueItem,
  Log,
  Meter,
  Presence,
  QueueProducer,
  Relief,
  SessionDirectory,
  WebhookQueue,
} from '../domain/ports.js';
import type { Turns } from '../domain/turns.js';
import { AppError, messageOf } from '../errors.js';
import type { NodeId, WorkerId } from '../protocol/ids.js';
import { buryNode, buryWorker } from './burial.js';
import { settleDue } from './due-work.js';

export interface ReconcilerPorts {
  readonly sessions: SessionDirectory;
  readonly commands: CommandStore;
  readonly presence: Presence;
  readonly queue: QueueProducer;
  readonly webhooks: Pick<WebhookQueue, 'add'>;
  /** Lets commands that a limit holds back take their turns. */
  readonly turns?: Pick<Turns, 'ask'>;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
  /** Monotonic, ms. */
  readonly nowMs: () => number;
  /** Another Redis answers than before: whoever holds something says so again (R2). */
  readonly serverChanged?: () => void;
  /** Makes room in a Redis that is nearly full (O2). */
  readonly relief?: Pick<Relief, 'trimOldest'>;
}

export interface ReconcilerOptions {
  /** The node or worker it runs in. */
  readonly id: string;
  readonly leaseMs: number;
  readonly graceMs: number;
  readonly queueMs: number;
  readonly killGraceMs: number;
}

export interface Reconciler {
  start(): void;
  /** Resolves when the step under way is over. Idempotent. */
  close(): Promise<void>;
}

/** Due items of one step; more wait for the next. */
const DUE_PER_TICK = 500;
const TRIMS_PER_TICK = 100;
const SET_ASIDE_MS = 60_000;
const MAX_TOLD = 1_000;
const LONGEST_TICK_MS = 1_000;
/** A round of index repair, where there are not too many records for that. */
const REPAIR_LEASES = 4;

export function createReconciler(ports: ReconcilerPorts, options: ReconcilerOptions): Reconciler {
  const { presence, log, chance, nowMs } = ports;
  const tickMs = Math.min(LONGEST_TICK_MS, options.leaseMs / 4);
  const repairSteps = Math.ceil((REPAIR_LEASES * options.leaseMs) / tickMs);
  let nodes: Observations<NodeId> = new Map();
  let workers: Observations<WorkerId> = new Map();
  let health: Health = { identity: '', judgeFromMs: 0 };
  let clocks: Clocks = { seen: new Map(), steps: [] };
  /** When the beats were looked at last. */
  let lookedAtMs: number | undefined;
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> = Promise.resolve();
  let closed = false;
  /** When what could not be done was told. */
  const toldMs = new Map<string, number>();

  /** Everybody observes, so that a new leader needs no lease of its own to judge. */
  async function look(): Promise<void> {
    const before = health.identity;
    health = noteHealth(health, await presence.serverIdentity(), nowMs(), options);
    if (before !== '' && before !== health.identity) {
      log.warn({}, 'another Redis answers: nobody is judged for a while');
      ports.serverChanged?.();
    }
    const noted = noteClocks(clocks, await presence.serverClocks(), nowMs());
    clocks = noted.clocks;
    if (noted.stepped) {
      log.warn(
        { byMs: Math.round(clocks.steps.at(-1)?.byMs ?? 0) },
        'the clock of Redis was set, nobody is judged yet',
      );
      health = { ...health, judgeFromMs: nowMs() + Math.max(options.leaseMs, options.graceMs) };
    }
    // Who can not be looked at is not judged.
    const seesNodes = await apart('look at the nodes', async () => {
      nodes = observe(nodes, await presence.nodes(), nowMs());
    });
    if (!seesNodes) nodes = new Map();
    const seesWorkers = await apart('look at the workers', async () => {
      workers = observe(workers, await presence.workers(), nowMs());
    });
    if (!seesWorkers) workers = new Map();
    const atMs = nowMs();
    nodes = afterPause(nodes, lookedAtMs, atMs, options.leaseMs);
    workers = afterPause(workers, lookedAtMs, atMs, options.leaseMs);
    lookedAtMs = atMs;
  }

  async function act(): Promise<void> {
    if (nowMs() < health.judgeFromMs) return;
    // By what was seen then: whoever is buried first may take longer than a lease, in which the others beat.
    const seenMs = lookedAtMs ?? 0;
    if (!(await presence.tryLead(options.id, 3 * tickMs))) return;
    for (const id of deadOnes(workers, options.leaseMs, seenMs)) {
      if (id !== options.id) await apart(`bury ${id}`, () => buryWorker(ports, id));
    }
    for (const id of deadOnes(nodes, options.leaseMs, seenMs)) {
      if (id !== options.id) await apart(`bury ${id}`, () => buryNode(ports, id));
    }
    for (const item of await presence.due(DUE_PER_TICK)) {
      await settleDue(ports, options, item, clocks.steps).catch((error) => setAside(item, error));
    }
    const trimmed = (await ports.relief?.trimOldest(TRIMS_PER_TICK)) ?? 0;
    if (trimmed > 0) {
      ports.meter.count('homing_reconciler_actions_total', { action: 'trimmed' }, trimmed);
      log.warn({ trimmed }, 'Redis is nearly full, let go of the oldest logs');
    }
    const missing = await presence.repairIndexes(repairSteps);
    if (missing === 0) return;
    ports.meter.count('homing_reconciler_actions_total', { action: 'noted' }, missing);
    log.warn({ missing }, 'noted what nobody looked after any more');
  }

  /** What is damaged holds up nothing else: it is told, once a minute, and tried again. @returns whether it was done */
  async function apart(what: string, step: () => Promise<void>): Promise<boolean> {
    try {
      await step();
      return true;
    } catch (error) {
      if (error instanceof AppError) throw error;
      ports.meter.count('homing_reconciler_actions_total', { action: 'set_aside' });
      if (nowMs() - (toldMs.get(what) ?? Number.NEGATIVE_INFINITY) < SET_ASIDE_MS) return false;
      if (toldMs.size >= MAX_TOLD) toldMs.clear();
      toldMs.set(what, nowMs());
      log.error({ fault: messageOf(error) }, `could not ${what}`);
      return false;
    }
  }

  /** A record that can not be read holds nobody else up: it is told, and looked at again later. */
  async function setAside(item: DueItem, error: unknown): Promise<void> {
    if (error instanceof AppError) throw error;
    ports.meter.count('homing_reconciler_actions_total', { action: 'set_aside' });
    log.error({ member: item.member, fault: messageOf(error) }, 'could not settle what is due; set aside for a minute');
    await presence.noteDue(item.member, SET_ASIDE_MS);
  }

  async function tick(): Promise<void> {
    try {
      await look();
      await act();
    } catch (error) {
      if (error instanceof AppError) health = noteHealth(health, undefined, nowMs(), options);
      log.warn({ error: messageOf(error) }, 'a reconciler step failed and is repeated');
    }
  }

  function schedule(): void {
    if (closed) return;
    timer = setTimeout(
      () => {
        running = tick().finally(schedule);
      },
      tickMs * (0.75 + chance.random() / 2),
    );
    timer.unref();
  }

  return {
    start: schedule,
    async close() {
      closed = true;
      clearTimeout(timer);
      await running;
    },
  };
}
