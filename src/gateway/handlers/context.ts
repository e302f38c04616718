/** What handlers of requests see of the connection they serve, and of the node. */
import type { IncomingMessage } from 'node:http';
import type { FastifyRequest } from 'fastify';
import type { Audit } from '../../domain/audit.js';
import type { Log, Meter } from '../../domain/ports.js';
import type { Rates } from '../../domain/rates.js';
import type { NodeId } from '../../protocol/ids.js';
import type { MethodName, MethodParams } from '../../protocol/methods.js';
import type { Claims } from '../../protocol/token.js';
import type { Asker } from '../ask.js';
import type { AttachedSession, AttachedSessionPorts, Delivery } from '../attached-session.js';
import type { Attempts } from '../attempts.js';
import type { Trail } from '../audit-trail.js';
import type { EventStreams } from '../event-streams.js';
import type { GatewayOptions, GatewayPorts } from '../options.js';
import type { Reasserter } from '../reassert.js';
import type { Seats } from '../seats.js';
import type { Holding, SessionTable } from '../session-table.js';
import type { Ticks } from '../ticks.js';
import type { TokenVerifier } from '../tokens.js';
import type { Viewers } from '../viewers.js';

/** The node as handlers see it. */
export interface Node {
  readonly nodeId: NodeId;
  readonly ports: GatewayPorts;
  readonly options: GatewayOptions;
  readonly table: SessionTable;
  readonly asker: Asker;
  readonly verifier: TokenVerifier;
  readonly streams: EventStreams;
  readonly reasserter: Reasserter;
  readonly attachedPorts: AttachedSessionPorts;
  readonly log: Log;
  readonly meter: Meter;
  readonly rates: Rates;
  readonly attempts: Attempts;
  readonly seats: Seats;
  readonly audit: Audit;
  readonly ticks: Ticks;
  /** Where a request comes from, as it is counted. */
  addressOf(request: IncomingMessage): string;
  /** What a request over HTTP is found to be about, for the audit. */
  trailOf(request: FastifyRequest): Trail;
}

/** One connection as handlers see it. */
export interface Caller {
  readonly id: string;
  readonly address: string;
  /** Takes a place among the connections of the principal. @throws AppError LIMIT_EXCEEDED */
  takeSeat(claims: Claims): void;
  /** From the upgrade's header, or since open, resume or refresh. */
  claims(): Claims | undefined;
  /** Whose token it is from now on; also sets when the connection must end (4005). */
  setClaims(claims: Claims): void;
  readonly delivery: Delivery;
  readonly viewers: Viewers;
  answersPing(timeoutMs: number): Promise<boolean>;
  useBatches(): void;
  /** The session this connection holds; set once. */
  bind(holding: Holding): void;
  session(): AttachedSession | undefined;
  isGone(): boolean;
}

export interface Answer {
  readonly result: unknown;
  /** Called when the answer is in the outbox: what it causes may follow. */
  readonly afterwards?: () => void;
}

/** @throws AppError with the code to answer */
export type SessionlessHandler<M extends MethodName> = (
  node: Node,
  caller: Caller,
  params: MethodParams<M>,
) => Promise<Answer>;

/** @throws AppError with the code to answer */
export type Handler<M extends MethodName> = (
  node: Node,
  request: { readonly caller: Caller; readonly claims: Claims; readonly session: AttachedSession },
  params: MethodParams<M>,
) => Promise<Answer>;
