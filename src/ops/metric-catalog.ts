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
  homing_delivery_seconds: seconds(
    "From the moment a worker read output to the write to its owner's socket, of live entries, a sample of 100 a second of each connection at most; by two clocks",
  ),
  homing_outbox_bytes: gauge('Bytes that wait for all sockets of this node'),
  homing_outbox_largest_bytes: gauge('Bytes that wait for the socket with the most of them'),
  homing_slow_connections: gauge('Connections that entries are not pushed to until their socket has taken some'),
  homing_unacknowledged_entries: gauge('Entries sent to attached sessions and not acknowledged yet'),
  homing_unacknowledged_largest: gauge('The same of the session with the most of them'),
  homing_catch_ups_total: counter('Streams that went from live to reading pages of the log', 'cause'),
  homing_lost_publishes_total: counter('Streams whose log a sweep found ahead with no message on its way (DE7)'),
  homing_gaps_total: counter(
    'Gaps told to owners: made by workers (flood, spool) or at reading (the others)',
    'reason',
  ),
  homing_owner_moves_total: counter("Commands that became an attached session's by a move", 'why'),
  homing_attaches_total: counter('Sessions opened or resumed at this node', 'kind'),
  homing_attaches_refused_total: counter('Sessions that were not opened or resumed', 'reason'),
  homing_sessions_closed_total: counter('Sessions closed for good', 'cause'),
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
  homing_attempts_failed_total: counter('Tokens and resumes that failed', 'code'),
  homing_internal_errors_total: counter('Faults of our own, answered as internal errors'),
  homing_submits_total: counter('Commands accepted', 'repeated'),
  homing_queue_add_failed_total: counter('Jobs that could not be added at once; the reconciler adds them'),
  // Bus
  homing_bus_down: gauge('1 while the bus is silent and entries wait'),
  homing_bus_probe_age_seconds: gauge(
    'Age of the last probe that came back through the normal path; of the worst master',
  ),
  homing_bus_probe_ms: { type: 'histogram', help: 'Round trip of a probe through Redis', buckets: MILLISECONDS },
  homing_bus_probe_lost_total: counter('Probes that did not come back in time'),
  homing_bus_restored_total: counter('Times all channels were subscribed again'),
  homing_bus_moved_total: counter('Subscriptions that moved to another master'),
  homing_bus_orphans_total: counter('Messages of channels nobody listens to any more'),
  homing_bus_handler_errors_total: counter('Faults while a message was handled'),
  // Workers
  homing_commands_running: gauge('Commands running in this worker'),
  homing_commands_ended_total: counter('Commands ended by this process', 'reason'),
  homing_command_wait_seconds: seconds('From submit to claim, without a delay that was asked for'),
  homing_command_spawn_seconds: seconds('From claim to a running process'),
  homing_command_run_seconds: seconds('From a running process to its end and that of all it started'),
  homing_commands_killed_total: counter('Commands that were ended by Homing instead of by themselves', 'reason'),
  homing_kill_survivors_total: counter('Processes that were still there after SIGKILL'),
  homing_spool_bytes: gauge('Output that waits for Redis or its rate in this worker'),
  homing_spool_memory_bytes: gauge('The part of it that is in memory'),
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
  homing_pool_workers: gauge('Workers that take jobs of a pool', 'pool'),
  homing_workers: gauge('Workers that take jobs'),
  homing_redis_up: gauge('1 while the last look at Redis and its queues succeeded'),
  homing_redis_round_trip_seconds: seconds('One PING'),
  homing_retained_bytes: gauge(
    'Output kept in all logs, as of the last walk over all records; of the process that walked',
  ),
  homing_redis_used_memory_bytes: gauge('Memory Redis uses'),
  homing_redis_max_memory_bytes: gauge('maxmemory of Redis; 0: no limit'),
  homing_redis_noeviction: gauge('1 while the eviction policy of Redis is noeviction'),
} as const satisfies Readonly<Record<string, MetricFacts>>;

export type MetricName = keyof typeof METRICS;

/**
 * Alerts ask how often these were counted lately. One that is not there before it was counted would rise from nothing to one,
 * which is no rise to Prometheus, so each begins at 0.
 */
export const FROM_ZERO: readonly (readonly [MetricName, Readonly<Record<string, string>>])[] = [
  ['homing_misdelivered_total', {}],
  ['homing_claims_lost_total', {}],
  ['homing_claims_short_total', {}],
  ['homing_lost_publishes_total', {}],
  ['homing_kill_survivors_total', {}],
  ['homing_internal_errors_total', {}],
  ['homing_spool_disk_failures_total', {}],
  ['homing_commands_ended_total', { reason: 'lost' }],
  ['homing_commands_ended_total', { reason: 'expired' }],
  ['homing_attaches_total', { kind: 'open' }],
  ['homing_attaches_total', { kind: 'resume' }],
  ...(['flood', 'spool', 'trimmed', 'expired', 'redis_lost'] as const).map(
    (reason) => ['homing_gaps_total', { reason }] as const,
  ),
];
