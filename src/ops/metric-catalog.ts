/**
 * Every figure of Homing: its name, kind, unit and meaning. Dashboards and alert rules name only what is here, and a test
 * holds the code to it. Labels are few and bounded; ids are never labels.
 */
export interface MetricFacts {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels?: readonly string[];
  /** Upper bounds of a histogram, in the unit of its name. */
  readonly buckets?: readonly number[];
}

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800];
const MILLISECONDS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000];

const counter = (help: string, ...labels: string[]): MetricFacts => ({ type: 'counter', help, labels });
const gauge = (help: string, ...labels: string[]): MetricFacts => ({ type: 'gauge', help, labels });
const seconds = (help: string, ...labels: string[]): MetricFacts => ({
  type: 'histogram',
  help,
  labels,
  buckets: SECONDS,
});

export const METRICS = {
  // Nodes
  homing_connections: gauge('WebSocket connections of this node'),
  homing_sessions_attached: gauge('Sessions attached to this node'),
  homing_event_streams: gauge('Open server-sent event streams'),
  homing_delivered_entries_total: counter('Entries written to sockets'),
  homing_delivered_bytes_total: counter('Bytes of entries written to sockets'),
  homing_misdelivered_total: counter('Entries a last check at the socket kept from the wrong client; must stay 0'),
  homing_stale_dropped_total: counter(
    'Messages and reads of a former attachment or owner that the fences caught',
    'where',
  ),
  homing_sessions_superseded_total: counter('Connections that lost their session to another one'),
  homing_sessions_restored_total: counter('Sessions restored after Redis went back to older data'),
  homing_sessions_moved_total: counter('Connections sent elsewhere since this node hears nothing'),
  homing_audit_detached_total: counter('Sessions recorded for this node that it did not hold'),
  homing_closes_repeated_total: counter('Closes repeated after Redis went back to older data'),
  homing_commands_vanished_total: counter('Commands whose record was lost with Redis, told to their owners as lost'),
  homing_requests_refused_total: counter('Requests that were answered with an error', 'code'),
  homing_internal_errors_total: counter('Faults of our own, answered as internal errors'),
  homing_submits_total: counter('Commands accepted', 'repeated'),
  homing_queue_add_failed_total: counter('Jobs that could not be added at once; the reconciler adds them'),
  // Bus
  homing_bus_down: gauge('1 while the bus is silent and entries wait'),
  homing_bus_probe_age_seconds: gauge('Age of the last probe that came back through the normal path', 'shard'),
  homing_bus_probe_ms: { type: 'histogram', help: 'Round trip of a probe through Redis', buckets: MILLISECONDS },
  homing_bus_probe_lost_total: counter('Probes that did not come back in time'),
  homing_bus_restored_total: counter('Times all channels were subscribed again'),
  homing_bus_moved_total: counter('Subscriptions that moved to another master'),
  homing_bus_orphans_total: counter('Messages of channels nobody listens to any more'),
  homing_bus_handler_errors_total: counter('Faults while a message was handled'),
  // Workers
  homing_commands_running: gauge('Commands running in this worker'),
  homing_commands_ended_total: counter('Commands ended by this process', 'reason'),
  homing_command_wait_seconds: seconds('From submit to start'),
  homing_claims_lost_total: counter('Claims this worker lost to a judge'),
  homing_claims_short_total: counter('Claims that fewer replicas than wanted confirmed in time'),
  homing_append_failures_total: counter('Appends that Redis did not take at once'),
  homing_watch_notices_total: counter('Notices of patterns that matched, by what the breaker said', 'answer'),
  homing_watch_skipped_total: counter('Lines that patterns did not see, since they had used up their time'),
  homing_log_repairs_total: counter('Logs that had gone back and were repaired by their writer'),
  homing_spool_disk_failures_total: counter('Output that could not wait on the disk, or not be read from it'),
  homing_worker_containment: gauge('1 for the level of containment in use', 'level'),
  homing_webhooks_total: counter('Webhook deliveries', 'result'),
  // Cluster, as this process sees it
  homing_reconciler_actions_total: counter('What the reconciler had to do', 'action'),
  homing_queue_depth: gauge('Jobs waiting in a pool', 'pool'),
  homing_queue_oldest_wait_seconds: gauge('How long the job at the head of a pool has waited', 'pool'),
  homing_pool_workers: gauge('Workers that serve a pool', 'pool'),
  homing_redis_round_trip_seconds: seconds('One PING'),
  homing_redis_used_memory_bytes: gauge('Memory Redis uses'),
  homing_redis_max_memory_bytes: gauge('maxmemory of Redis; 0: no limit'),
  homing_redis_noeviction: gauge('1 while the eviction policy of Redis is noeviction'),
} as const satisfies Readonly<Record<string, MetricFacts>>;

export type MetricName = keyof typeof METRICS;
