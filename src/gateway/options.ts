/** What a node is given: the ports it sees the world through, and its settings. */
import type { FastifyInstance } from 'fastify';
import type { Audit } from '../domain/audit.js';
import type { CommandFeed } from '../domain/command-feed.js';
import type {
  Chance,
  CommandStore,
  EventBus,
  GapNotes,
  Lines,
  Log,
  Meter,
  Patterns,
  Presence,
  QueueProducer,
  Reassertion,
  SecretBox,
  SessionDirectory,
  TracePort,
} from '../domain/ports.js';
import type { Rates } from '../domain/rates.js';
import type { NodeId } from '../protocol/ids.js';

export interface GatewayPorts {
  readonly sessions: SessionDirectory;
  readonly commands: CommandStore;
  readonly feed: CommandFeed;
  /** Whether a command may name this address for its webhook; absent where the operator allows none. */
  readonly allowWebhook?: ((address: string) => boolean) | undefined;
  readonly bus: EventBus;
  readonly reassertion: Reassertion;
  readonly presence: Presence;
  readonly queue: QueueProducer;
  readonly lines: Lines;
  /** Absent while traces are off. */
  readonly traces?: TracePort | undefined;
  /** Where gaps are noted for operators. */
  readonly gapNotes?: GapNotes | undefined;
  readonly log: Log;
  /** `dump` gives the text of `/metrics`, where there is one. */
  readonly meter: Meter & { dump?(): string | Promise<string> };
  readonly chance: Chance;
  /** Absent without a key: commands with secrets are refused. */
  readonly secrets?: SecretBox | undefined;
  readonly patterns: Pick<Patterns, 'compile'>;
  /** Milliseconds since 1970. */
  now(): number;
  /** How often may be asked; without it nothing is limited. */
  readonly rates?: Rates | undefined;
  /** Where acts are noted; nowhere without it. */
  readonly audit?: Audit | undefined;
}

export interface GatewayOptions {
  /** This start of the process; made by the node when absent. The bus and the records must know the same one. */
  readonly nodeId?: NodeId;
  readonly version: string;
  readonly host: string;
  readonly port: number;
  readonly opsHost: string;
  readonly opsPort: number;
  readonly heartbeatMs: number;
  readonly leaseMs: number;
  readonly graceMs: number;
  readonly queueMs: number;
  readonly drainMs: number;
  /** Kill grace of a kill that names none. */
  readonly killGraceMs: number;
  /** Longest silence of a stream of events; as PROTOCOL says when absent. */
  readonly keepAliveMs?: number | undefined;
  readonly outboxBytes: number;
  readonly maxFrameBytes: number;
  /** HS256 secrets, the present one first. Neither these nor `jwksUrl`: loopback only, and everybody is the principal `local`. */
  readonly jwtSecrets: readonly string[];
  /** Where the public keys of an issuer are; beside the secrets, or instead of them. */
  readonly jwksUrl?: string | undefined;
  readonly issuer?: string | undefined;
  readonly audience?: string | undefined;
  readonly adminToken?: string | undefined;
  readonly metricsToken?: string | undefined;
  /** Origins of browsers beside this host itself. */
  readonly publicOrigins: readonly string[];
  /** Proxies whose forwarding headers are believed: addresses, subnets, `loopback`. */
  readonly trustedProxies?: readonly string[];
  /** From the beginning of a connection to the end of its request's headers; 10 s unless given. */
  readonly headersWithinMs?: number;
  /** Connections of this node; absent or 0: no limit. */
  readonly maxConnections?: {
    readonly perAddress?: number;
    readonly perPrincipal?: number;
    readonly perTenant?: number;
    readonly unopened?: number;
  };
  /** Folder of the built web app, served at `/`; none without it. */
  readonly webDir?: string | undefined;
  readonly opsPlugins?: readonly OpsPlugin[];
  /** Whether Redis answers: 'ok', or why not; asked by `/readyz`. */
  checkRedis?(): Promise<string>;
}

/** Further routes of the ops address; those below `/admin` need the admin token. */
export type OpsPlugin = (app: FastifyInstance) => Promise<void>;

/** Entries are not sent while the bus has been silent for so long (SE1). */
export const BUS_SILENT_MS = 5_000;
/** Probes are taken by Redis and none comes back for so long, over several connections: clients are sent elsewhere. */
export const BUS_DEAF_MS = 10_000;
