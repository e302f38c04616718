/**
 * What Homing needs of Redis, and how facts about one compare with it. Pure: `redis/inspect.ts` gathers the facts. Every
 * demand is one that the promises rest on; where it comes from is said beside it.
 */
import { broken, type Finding, good, risky, sizeText } from './finding.js';

/** One server that takes writes: the server, the master that the sentinels name, or each master of a Cluster. */
export interface ServerFacts {
  readonly address: string;
  /** Whether only this machine reaches it. */
  readonly local: boolean;
  readonly product: 'Redis' | 'Valkey';
  readonly version: string;
  readonly evictionPolicy: string;
  /** 0: no limit but the machine's. */
  readonly maxmemoryBytes: number;
  readonly usedBytes: number;
  /** Memory of its machine; 0 where it does not say. */
  readonly systemBytes: number;
  readonly appendOnly: boolean;
  readonly lastAppendOk: boolean;
  readonly lastSnapshotOk: boolean;
  /** Undefined where CONFIG is forbidden, as managed services do. */
  readonly config?: {
    readonly appendFsync: string;
    /** Whether it takes snapshots by itself. */
    readonly snapshots: boolean;
    readonly pubsub: BufferLimit | undefined;
  };
  readonly replicas: readonly ReplicaFacts[];
  /** Its clock minus ours; positive when it is ahead. */
  readonly clockAheadMs: number;
  readonly trips: RoundTrips;
}

export interface BufferLimit {
  /** 0: no limit. */
  readonly hardBytes: number;
  readonly softBytes: number;
  readonly softSeconds: number;
}

export interface ReplicaFacts {
  readonly address: string;
  readonly online: boolean;
  readonly lagSeconds: number;
}

/** Messages published on a sharded channel that came back on another connection. */
export type RoundTrips =
  | { readonly type: 'heard'; readonly medianMs: number; readonly count: number }
  | { readonly type: 'silent'; readonly why: string };

export type Deployment =
  | { readonly type: 'server' }
  | { readonly type: 'sentinel'; readonly asked: readonly SentinelFacts[] }
  | { readonly type: 'cluster'; readonly ok: boolean; readonly slotsServed: number };

export interface SentinelFacts {
  readonly address: string;
  /** Its own words about the quorum, or why it could not be asked. */
  readonly quorum: { readonly ok: boolean; readonly said: string };
}

export interface RedisFacts {
  readonly deployment: Deployment;
  readonly servers: readonly ServerFacts[];
}

const LEAST_MAJOR_VERSION = 7;
const SLOTS = 16_384;
const MIB = 1024 * 1024;
/** The default: a node that is busy for a second of a fast command is over it (docs/decisions.md). */
const LEAST_HARD_BYTES = 64 * MIB;
const LEAST_SOFT_BYTES = 32 * MIB;
/** Above this share of maxmemory submits are refused (FAULTS O2). */
const FULL_SHARE = 0.85;
const FILLING_SHARE = 0.7;
/** A keystroke and its echo take two of them. */
const SLOW_TRIP_MS = 50;
const LATE_REPLICA_SECONDS = 10;
/** Tokens are judged by a node's clock and made by another's. */
const CLOCK_WARN_MS = 1_000;
const CLOCK_FAIL_MS = 60_000;

/** In the order in which they matter; a server of several is named in `of`. */
export function judgeRedis({ deployment, servers }: RedisFacts): Finding[] {
  const several = servers.length > 1;
  const ofEach = servers.flatMap((server) => {
    const findings = judgeServer(server, deployment);
    return several ? findings.map((finding) => ({ ...finding, of: server.address })) : findings;
  });
  return [...judgeDeployment(deployment), ...ofEach];
}

function judgeServer(server: ServerFacts, deployment: Deployment): Finding[] {
  return [
    versionOf(server),
    evictionOf(server),
    persistenceOf(server),
    ...bufferOf(server),
    replicasOf(server, deployment),
    tripsOf(server),
    memoryOf(server),
    clockOf(server),
  ];
}

function judgeDeployment(deployment: Deployment): Finding[] {
  switch (deployment.type) {
    case 'server':
      return [];
    case 'sentinel':
      return sentinelsOf(deployment.asked);
    case 'cluster': {
      const { ok, slotsServed } = deployment;
      if (ok && slotsServed === SLOTS) return [good('cluster', `all ${SLOTS} slots are served`)];
      const found = `${slotsServed} of ${SLOTS} slots are served, and it says ${ok ? 'ok' : 'fail'}`;
      return [
        broken('cluster', found, 'redis-cli --cluster check, then --cluster fix; start the masters that are down.'),
      ];
    }
  }
}

function sentinelsOf(asked: readonly SentinelFacts[]): Finding[] {
  const faulty = asked.filter(({ quorum }) => !quorum.ok);
  const findings = faulty.map(({ address, quorum }): Finding => {
    const mend = 'Start it, or take it out of HOMING_REDIS_URL; see that enough sentinels reach one another.';
    return { ...risky('sentinels', quorum.said, mend), of: address };
  });
  if (faulty.length === asked.length) {
    return findings.map((finding) => ({ ...finding, level: 'fail' as const }));
  }
  if (asked.length - faulty.length < 2) {
    findings.push(
      risky('sentinels', 'only one is known here', 'Name at least three in HOMING_REDIS_URL: one alone can be down.'),
    );
  } else {
    findings.push(good('sentinels', `${asked.length - faulty.length} of ${asked.length} see a quorum`));
  }
  return findings;
}

/** Sharded channels came with 7. */
function versionOf({ product, version }: ServerFacts): Finding {
  if (Number.parseInt(version, 10) >= LEAST_MAJOR_VERSION) return good('version', `${product} ${version}`);
  return broken('version', `${product} ${version}`, `Install ${LEAST_MAJOR_VERSION} or later, or Valkey.`);
}

function evictionOf({ evictionPolicy, maxmemoryBytes }: ServerFacts): Finding {
  if (evictionPolicy === 'noeviction') return good('eviction', 'noeviction');
  const mend = 'CONFIG SET maxmemory-policy noeviction, and the same line in its configuration.';
  if (maxmemoryBytes > 0) return broken('eviction', `${evictionPolicy}: a full Redis deletes sessions and logs`, mend);
  return risky('eviction', `${evictionPolicy}: nothing is deleted only because maxmemory is not set`, mend);
}

function persistenceOf({ appendOnly, lastAppendOk, lastSnapshotOk, config, replicas }: ServerFacts): Finding {
  const check = 'persistence';
  const room = 'See its log; most often its disk is full or not writable. Until then it refuses writes.';
  if (appendOnly && !lastAppendOk) return broken(check, 'the last write to the append-only file failed', room);
  if (!lastSnapshotOk) return broken(check, 'the last snapshot failed', room);
  const mend = 'CONFIG SET appendonly yes, and in its configuration: appendonly yes, appendfsync everysec.';
  if (!appendOnly) {
    if (config?.snapshots === true) {
      return risky(check, 'snapshots only: a restart loses what came since the last one', mend);
    }
    if (config === undefined) return risky(check, 'no append-only file', mend);
    return broken(check, 'none: a restart loses every session, command and log', mend);
  }
  if (config?.appendFsync === 'no') {
    return risky(check, 'append-only file, synced when the system likes', 'CONFIG SET appendfsync everysec.');
  }
  const alone = config?.appendFsync === 'everysec' && replicas.length === 0;
  // FAULTS T2.
  const risk = alone ? '; its host dying loses up to a second' : '';
  return good(check, `append-only file${config === undefined ? '' : `, synced ${config.appendFsync}`}${risk}`);
}

function bufferOf({ config }: ServerFacts): Finding[] {
  const check = 'output buffers';
  const line = 'client-output-buffer-limit pubsub 256mb 64mb 60';
  if (config === undefined) {
    return [risky(check, 'CONFIG may not be read here', `See that it has this or more: ${line}.`)];
  }
  const { pubsub } = config;
  if (pubsub === undefined) return [];
  const { hardBytes, softBytes, softSeconds } = pubsub;
  const mend = `CONFIG SET client-output-buffer-limit "pubsub 256mb 64mb 60", and in its configuration: ${line}.`;
  if (hardBytes === 0 && softBytes === 0) {
    return [risky(check, 'pubsub has no limit: one node that hangs can fill Redis', mend)];
  }
  const text = `pubsub ${sizeText(hardBytes)}, or ${sizeText(softBytes)} for ${softSeconds} s`;
  const low = (bytes: number, least: number) => bytes > 0 && bytes < least;
  if (low(hardBytes, LEAST_HARD_BYTES) || low(softBytes, LEAST_SOFT_BYTES)) {
    return [risky(check, `${text}: a node that is busy for a moment is cut off and has to catch up`, mend)];
  }
  return [good(check, text)];
}

function replicasOf({ replicas, local }: ServerFacts, deployment: Deployment): Finding {
  const check = 'replicas';
  const away = replicas.filter(({ online, lagSeconds }) => !online || lagSeconds > LATE_REPLICA_SECONDS);
  if (away.length > 0) {
    const found = `${away.length} of ${replicas.length} lag behind: ${away.map(({ address }) => address).join(', ')}`;
    return risky(check, found, 'See the logs of the replica and its network: a failover to it would lose entries.');
  }
  if (replicas.length > 0) return good(check, `${replicas.length}, in step`);
  if (deployment.type !== 'server') {
    return broken(check, 'none: there is nothing to fail over to', 'Add a replica for this master.');
  }
  if (local) return good(check, 'none, and none needed on one machine');
  // FAULTS T2.
  const mend = 'Add one, with Sentinel or Cluster to fail over; or accept that losing its disk loses everything.';
  return risky(check, 'none', mend);
}

function tripsOf({ trips }: ServerFacts): Finding {
  const check = 'pub/sub';
  if (trips.type === 'silent') {
    const mend =
      'Allow SSUBSCRIBE and SPUBLISH for this user (ACL: &* +@pubsub), with no proxy between that lacks them.';
    return broken(check, `a published message did not come back: ${trips.why}`, mend);
  }
  const found = `${trips.medianMs.toFixed(1)} ms there and back (median of ${trips.count})`;
  if (trips.medianMs <= SLOW_TRIP_MS) return good(check, found);
  return risky(check, found, 'Move nodes, workers and Redis closer together: every entry takes this way.');
}

function memoryOf({ usedBytes, maxmemoryBytes, systemBytes }: ServerFacts): Finding {
  const check = 'memory';
  const limit = maxmemoryBytes || systemBytes;
  const used = sizeText(usedBytes);
  if (limit === 0) return good(check, `${used} used`);
  const found = `${used} of ${sizeText(limit)} used${maxmemoryBytes > 0 ? '' : ' (of its machine; maxmemory is not set)'}`;
  const share = usedBytes / limit;
  const mend = 'Raise maxmemory, shorten HOMING_RETENTION_MS, or lower HOMING_LOG_LAST_BYTES.';
  // FAULTS O2.
  if (share > FULL_SHARE) return broken(check, `${found}: commands are refused above ${FULL_SHARE * 100} %`, mend);
  if (share > FILLING_SHARE) return risky(check, found, mend);
  return good(check, found);
}

function clockOf({ clockAheadMs }: ServerFacts): Finding {
  const check = 'clock';
  const offMs = Math.abs(clockAheadMs);
  if (offMs <= CLOCK_WARN_MS) return good(check, `within ${Math.ceil(offMs)} ms of this machine's`);
  const found = `${(offMs / 1_000).toFixed(1)} s ${clockAheadMs > 0 ? 'ahead of' : 'behind'} this machine's`;
  const mend = 'Run a time service (chrony, systemd-timesyncd) on both: tokens expire by these clocks.';
  return offMs > CLOCK_FAIL_MS ? broken(check, found, mend) : risky(check, found, mend);
}
