/**
 * One gateway node: the public listener with its sockets, the ops listener, and what runs beside them. It sees Redis and
 * the queue only through the ports it is given.
 */
import type { AddressInfo } from 'node:net';
import { UNLIMITED } from '../domain/rates.js';
import { messageOf } from '../errors.js';
import { CLOSE } from '../protocol/close-codes.js';
import { makeNodeId, type NodeId, type SessionId } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import { createAddresses } from './addresses.js';
import { createAsker } from './ask.js';
import type { AttachedSession } from './attached-session.js';
import { createAttempts } from './attempts.js';
import { auditHttp } from './audit-trail.js';
import { createCareful } from './careful.js';
import { addCors } from './cors.js';
import { createDoors, isLoopback } from './doors.js';
import { createEventStreams } from './event-streams.js';
import { measureNode, waitingOf } from './figures.js';
import type { Node } from './handlers/context.js';
import { addHttpRoutes } from './http-routes.js';
import { createHttpServer } from './http-server.js';
import { guardAdmin } from './ops-guard.js';
import { addOpsRoutes } from './ops-routes.js';
import { BUS_DEAF_MS, BUS_SILENT_MS, type GatewayOptions, type GatewayPorts } from './options.js';
import { createPublicKeys } from './public-keys.js';
import { createPuller } from './puller.js';
import { createReasserter } from './reassert.js';
import { createSeats } from './seats.js';
import { createSessionTable } from './session-table.js';
import { createSweep } from './sweep.js';
import { createTicks } from './ticks.js';
import { createTokenVerifier } from './tokens.js';
import { createUpgrades } from './upgrade.js';
import { addWebApp } from './web-app.js';

export interface Gateway {
  readonly nodeId: NodeId;
  /**
   * Listens on both addresses; ready when it resolves.
   * @throws AppError REDIS_UNAVAILABLE; Error with a code (EADDRINUSE …); Error for a public address without tokens
   */
  listen(): Promise<{ readonly url: string; readonly opsUrl: string }>;
  /** Tells every client when to come back, sends them away spread over the window, and detaches their sessions (SE6). */
  drain(withinMs: number): Promise<void>;
  /** Another Redis answers than before, or the same one with older data: says again what is held here (FAULTS R2). */
  serverChanged(): void;
  /** Releases everything; idempotent. */
  close(): Promise<void>;
}

/** Pages of logs read at the same time, for all sessions of the node. */
const MAX_PULLS = 32;
const BUS_CHECK_MS = 250;
/** What is done for each connection comes this much late at most. */
const TICK_MS = 100;
/** Clients are sent away over this long. */
const DEAF_SPREAD_MS = 3_000;
/** After the last socket was told to go, detaching may take this long. */
const SETTLE_MS = 2_000;

export function createGateway(ports: GatewayPorts, options: GatewayOptions): Gateway {
  const { bus, presence, chance, meter, now } = ports;
  const nodeId = options.nodeId ?? makeNodeId(chance.bytes(16));
  const log = ports.log.child({ nodeId });
  const random = () => chance.random();
  const publicKeys = options.jwksUrl === undefined ? undefined : createPublicKeys({ url: options.jwksUrl, log });
  const verifier = createTokenVerifier({
    secrets: options.jwtSecrets,
    publicKeys,
    issuer: options.issuer,
    audience: options.audience,
    now,
  });
  const doors = createDoors(options);
  const { rates = UNLIMITED, audit = { note: () => undefined } } = ports;
  const attempts = createAttempts({ rates, meter });
  const {
    perAddress = 0,
    perPrincipal = 0,
    perTenant = 0,
    unopened = LIMITS.maxUnopened,
  } = options.maxConnections ?? {};
  const ticks = createTicks(TICK_MS);
  const seats = createSeats({ perAddress, perPrincipal, perTenant, unopened });
  const addressOf = createAddresses(options.trustedProxies ?? []);
  const puller = createPuller({ concurrency: MAX_PULLS, random });
  const table = createSessionTable({ nodeId, ...ports, log, random });
  const asker = createAsker({ nodeId, bus, table, chance });
  /** A node that hears nothing may have lost its sessions to another (SE1). */
  const busDown = (sessionId?: SessionId) => bus.probeAgeMs(sessionId) > BUS_SILENT_MS;
  const attachedPorts = { ...ports, log, puller, careful: createCareful(), busDown };
  const reasserter = createReasserter({ ...ports, log, random, all: table.all });
  const streams = createEventStreams({ log, meter, now, random, keepAliveMs: options.keepAliveMs });
  const app = createHttpServer(log, doors, options.headersWithinMs);
  const { trailOf } = auditHttp(app, audit, addressOf);
  const node: Node = {
    ...{
      nodeId,
      ports: { ...ports, log },
      options,
      table,
      asker,
      verifier,
      streams,
      reasserter,
      attachedPorts,
      log,
      meter,
    },
    ...{ rates, attempts, seats, audit, ticks, addressOf, trailOf },
  };
  const upgrades = createUpgrades(node, doors);
  const sweep = createSweep({ leaseMs: options.leaseMs, log, random, turn: table.turn });
  const ops = createHttpServer(log, createDoors({ host: options.opsHost, publicOrigins: [] }));
  const startedAt = now();
  let url = '';
  let draining = false;
  let closing: Promise<void> | undefined;
  const timers = new Set<NodeJS.Timeout>();

  addCors(app, options.publicOrigins);
  addHttpRoutes(app, node);
  if (options.webDir !== undefined) addWebApp(app, options.webDir);
  guardAdmin(ops, options.adminToken, audit, addressOf);
  addOpsRoutes(ops, node, () => draining);
  app.server.on('upgrade', upgrades.handle);
  meter.beforeDump?.(() => measureNode(meter, upgrades.connections, table.all()));

  // ------------------------------------------------------------------------------------------------ beside the sockets

  /** Runs again and again, never twice at a time, until closed; a failure is told and the next turn tries again. */
  function every(intervalMs: number, what: string, work: () => Promise<void> | void): void {
    const turn = async () => {
      try {
        await work();
      } catch (error) {
        log.warn({ fault: messageOf(error) }, `${what} failed`);
      }
      if (closing === undefined) arm();
    };
    const arm = () => {
      const timer = setTimeout(
        () => {
          timers.delete(timer);
          void turn();
        },
        intervalMs * (0.9 + random() / 5),
      );
      timer.unref();
      timers.add(timer);
    };
    arm();
  }

  let left = false;
  const beat = async () => {
    if (left) return;
    const busAgeMs = bus.probeAgeMs();
    await presence.beatNode({
      ...{ nodeId, url, version: options.version, startedAt },
      outboxBytes: waitingOf(upgrades.connections).bytes,
      ...(Number.isFinite(busAgeMs) ? { busAgeMs: Math.round(busAgeMs) } : {}),
      ...(draining ? { draining } : {}),
    });
  };

  let wasDown = false;
  function watchBus(): void {
    const down = busDown();
    if (down !== wasDown) log.warn({ down }, down ? 'the bus is silent, entries wait' : 'the bus is heard again');
    if (wasDown && !down) catchUpAll();
    wasDown = down;
    meter.gauge('homing_bus_down', down ? 1 : 0);
    moveTheDeaf();
  }

  const moved = new WeakSet<AttachedSession>();
  /**
   * Commands work and the subscription is dead, so another node may well hear: its clients come back elsewhere, each once,
   * spread over a moment. In an outage for all nothing is published either, and sockets stay.
   */
  function moveTheDeaf(): void {
    if (bus.deafMs() < BUS_DEAF_MS) return;
    for (const { session } of table.all()) {
      if (moved.has(session) || bus.deafMs(session.sessionId) < BUS_DEAF_MS) continue;
      moved.add(session);
      meter.count('homing_sessions_moved_total');
      const timer = setTimeout(() => {
        timers.delete(timer);
        session.sendAway('this node hears nothing of its sessions');
      }, random() * DEAF_SPREAD_MS);
      timers.add(timer);
    }
  }

  /** Spread over a moment: after a restart of Redis, thousands of sessions do this at once (R1). */
  function catchUpAll(): void {
    const held = table.all();
    const spreadMs = Math.min(1_000, held.length);
    for (const { session } of held) {
      const timer = setTimeout(() => {
        timers.delete(timer);
        session.catchUp();
      }, random() * spreadMs);
      timers.add(timer);
    }
  }
  bus.onRestored(catchUpAll);

  // ------------------------------------------------------------------------------------------------ life

  async function listen() {
    if (verifier.anonymous && !isLoopback(options.host)) {
      throw new Error(
        `HOMING_JWT_SECRET: without a token setting a node listens on loopback only, not on ${options.host}`,
      );
    }
    // Its failure is told and is no reason not to start: the first token asks again.
    await publicKeys?.warm();
    const hasOpsToken = options.adminToken !== undefined || options.metricsToken !== undefined;
    if (!hasOpsToken && !isLoopback(options.opsHost)) {
      throw new Error(
        `HOMING_ADMIN_TOKEN: without it the ops address listens on loopback only, not on ${options.opsHost}`,
      );
    }
    await asker.start();
    await app.listen({ host: options.host, port: options.port });
    url = urlOf(app.server.address() as AddressInfo, options.host);
    for (const plugin of options.opsPlugins ?? []) await plugin(ops);
    await ops.listen({ host: options.opsHost, port: options.opsPort });
    const opsUrl = urlOf(ops.server.address() as AddressInfo, options.opsHost);
    await beat();
    every(options.leaseMs / 3, 'a beat', beat);
    every(options.leaseMs, 'an audit', table.audit);
    every(BUS_CHECK_MS, 'a look at the bus', watchBus);
    log.info({ url, opsUrl }, 'the node listens');
    return { url, opsUrl };
  }

  async function drain(withinMs: number): Promise<void> {
    if (draining) return;
    draining = true;
    upgrades.stop();
    const endsMs = performance.now() + withinMs;
    streams.drain(withinMs * DRAIN_SHARE);
    const leavingConnections = [...upgrades.connections];
    for (const connection of leavingConnections) {
      connection.notify('session.draining', { reconnectWithinMs: withinMs });
      const timer = setTimeout(
        () => {
          timers.delete(timer);
          connection.end(CLOSE.NODE_STOPPING, 'the node is stopping');
        },
        random() * withinMs * DRAIN_SHARE,
      );
      timers.add(timer);
    }
    await Promise.race([
      Promise.all(leavingConnections.map((connection) => connection.gone())),
      pause(endsMs - performance.now()),
    ]);
    for (const connection of upgrades.connections) connection.end(CLOSE.NODE_STOPPING, 'the node is stopping');
    await table.settled(SETTLE_MS);
    left = true;
    await presence.forgetNode(nodeId).catch((error) => log.warn({ fault: messageOf(error) }, 'could not say goodbye'));
  }

  function pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(
        () => {
          timers.delete(timer);
          resolve();
        },
        Math.max(0, ms),
      );
      timers.add(timer);
    });
  }

  async function closeAll(): Promise<void> {
    draining = true;
    upgrades.stop();
    for (const timer of timers) clearTimeout(timer);
    timers.clear();
    sweep.close();
    ticks.close();
    reasserter.close();
    streams.close();
    const open = [...upgrades.connections];
    for (const connection of open) connection.end(CLOSE.NODE_STOPPING, 'the node is stopping');
    // Each cuts off a peer that does not answer.
    await Promise.all(open.map((connection) => connection.gone()));
    await table.settled(SETTLE_MS);
    table.close();
    puller.close();
    upgrades.close();
    await Promise.all([asker.close(), app.close(), ops.close()]);
  }

  return {
    nodeId,
    listen,
    drain,
    serverChanged: reasserter.run,
    close() {
      closing ??= closeAll();
      return closing;
    },
  };
}

/** Sockets leave in the first part of the window, so that the slow ones and the detaching fit in the rest. */
const DRAIN_SHARE = 0.6;

function urlOf(address: AddressInfo, host: string): string {
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return `http://${host === 'localhost' ? host : name}:${address.port}`;
}
