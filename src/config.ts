/**
 * Settings: names, defaults and checks in one schema. Pure: the environment is an argument, and every fault is listed
 * at once. `NAME_FILE` is resolved by the CLI before, since it reads files.
 */
import { z } from 'zod';
import { poolName } from './protocol/methods.js';
import { parseAllowList } from './protocol/webhook.js';

const ms = (fallback: number, min = 1) => z.coerce.number().int().min(min).default(fallback);
const count = (fallback: number, min = 0) => z.coerce.number().int().min(min).default(fallback);
const port = (fallback: number) => z.coerce.number().int().min(0).max(65_535).default(fallback);
const bytes = (fallback: number, min = 1024) => z.coerce.number().int().min(min).default(fallback);
const optional = z.string().min(1).optional();
const webAddress = z.url({ protocol: /^https?$/, error: 'must be an address that begins with http:// or https://' });

const REDIS_SCHEMES = /^(redis|rediss|unix|redis-sentinel|redis-cluster):\/\//;
const redisUrl = z
  .string()
  .regex(REDIS_SCHEMES, 'must begin with redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://')
  .optional();

const proxy = z.union([z.enum(['loopback', 'linklocal', 'uniquelocal']), z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()]);
const isProxyList = (text: string | undefined): boolean =>
  text === undefined || text.split(',').every((part) => proxy.safeParse(part.trim()).success);

const secretKey = z
  .string()
  .regex(/^[A-Za-z0-9+/_-]{43}=?$/, 'must be 32 bytes in base64, as from: openssl rand -base64 32')
  .optional();

export const settingsSchema = z.object({
  HOMING_REDIS_URL: redisUrl.describe('Redis for records, logs and channels'),
  HOMING_QUEUE_REDIS_URL: redisUrl.describe('Redis for the queues; the same one unless given'),
  HOMING_REDIS_CA: optional.describe('Certificate authority for rediss://, PEM'),
  HOMING_SENTINEL_PASSWORD: optional.describe('Password of the sentinels'),
  HOMING_HOST: z.string().min(1).default('127.0.0.1').describe('Address a node listens on'),
  HOMING_PORT: port(7420).describe('Port a node listens on; 0 means any'),
  HOMING_OPS_HOST: z.string().min(1).default('127.0.0.1').describe('Address of the ops listener'),
  HOMING_OPS_PORT: port(7421).describe('Port of the ops listener; 0 means any'),
  HOMING_WORKER_OPS_PORT: z.coerce
    .number()
    .int()
    .min(0)
    .max(65_535)
    .optional()
    .describe(
      'Port of the ops listener of a worker, on HOMING_OPS_HOST: /livez, /readyz, /metrics; none unless given, 0 means any',
    ),
  HOMING_GATEWAY_URL: webAddress.optional().describe('What commands on a worker use as HOMING_URL'),
  HOMING_PUBLIC_ORIGINS: optional.describe(
    'Origins browsers may come from, separated by commas; same host only unless given',
  ),
  HOMING_TRUST_PROXY: optional
    .refine(isProxyList, 'must be addresses or subnets, loopback, linklocal or uniquelocal, separated by commas')
    .describe('Proxies whose forwarding headers are believed: addresses, subnets or `loopback`, separated by commas'),
  HOMING_JWT_SECRET: z
    .string()
    .min(32, 'must have at least 32 characters')
    .optional()
    .describe('Secret that signs tokens (HS256)'),
  HOMING_JWT_SECRET_PREVIOUS: z
    .string()
    .min(32, 'must have at least 32 characters')
    .optional()
    .describe('The secret before, still accepted'),
  HOMING_JWKS_URL: webAddress.optional().describe('Where public keys for tokens are'),
  HOMING_JWT_ISSUER: optional.describe('Required iss of tokens'),
  HOMING_JWT_AUDIENCE: optional.describe('Required aud of tokens'),
  HOMING_SECRET_KEY: secretKey.describe('Key for the secrets of commands: 32 bytes, base64'),
  HOMING_SECRET_KEY_PREVIOUS: secretKey.describe('The key before, which still opens'),
  HOMING_ADMIN_TOKEN: z
    .string()
    .min(16, 'must have at least 16 characters')
    .optional()
    .describe('Token of the ops address'),
  HOMING_METRICS_TOKEN: z
    .string()
    .min(16, 'must have at least 16 characters')
    .optional()
    .describe('Token for /metrics alone'),
  HOMING_GRACE_MS: ms(30_000, 0).describe('Session grace: how long an away session is kept'),
  HOMING_HEARTBEAT_MS: ms(15_000, 100).describe('Interval of session.heartbeat'),
  HOMING_LEASE_MS: ms(15_000, 500).describe('A process without a beat for this long is dead'),
  HOMING_RETENTION_MS: ms(86_400_000, 1000).describe('How long an ended command is kept'),
  HOMING_DRAIN_MS: ms(30_000, 0).describe('How long a stopping process may take'),
  HOMING_QUEUE_MS: ms(3_600_000).describe('How long a command may wait in the queue unless it says so itself'),
  HOMING_KILL_GRACE_MS: ms(2_000, 0).describe('Kill grace: how long a process may take to end by itself'),
  HOMING_LOG_FIRST_BYTES: bytes(1024 * 1024).describe('First bytes of output kept of each command'),
  HOMING_LOG_LAST_BYTES: bytes(7 * 1024 * 1024).describe('Last bytes of output kept of each command'),
  HOMING_SPOOL_BYTES: bytes(32 * 1024 * 1024, 65_536).describe(
    'Output of one command a worker holds while it can not publish; on the disk beyond 1 MiB',
  ),
  HOMING_OUTPUT_BYTES_PER_SEC: bytes(8 * 1024 * 1024).describe('Output of one command published per second'),
  HOMING_OUTBOX_BYTES: bytes(1024 * 1024, 65_536).describe('Bytes waiting for one connection'),
  HOMING_MAX_FRAME_BYTES: bytes(64 * 1024).describe('Largest inbound frame'),
  HOMING_MAX_RUNNING: count(0).describe(
    'Commands of one tenant on their way to a worker or running at the same time; 0: no limit',
  ),
  HOMING_MAX_RUNNING_PER_SESSION: count(0).describe(
    'Commands of one session on their way to a worker or running at the same time; 0: no limit',
  ),
  HOMING_MAX_QUEUED: count(0).describe('Commands of one tenant that may be queued; 0: no limit'),
  HOMING_MAX_QUEUED_PER_SESSION: count(0).describe('Commands of one session that may be queued; 0: no limit'),
  HOMING_MAX_SESSIONS: count(0).describe('Sessions of one tenant that may be open; 0: no limit'),
  HOMING_MAX_RETAINED_BYTES: count(0).describe(
    'Bytes of logs of ended commands of one tenant; beyond it the oldest logs go; 0: no limit',
  ),
  HOMING_MAX_RETAINED_BYTES_PER_SESSION: count(0).describe(
    'Bytes of logs of ended commands that one session asked for; beyond it the oldest logs go; 0: no limit',
  ),
  HOMING_MAX_CONNECTIONS: count(0).describe('Connections of one tenant at one node; 0: no limit'),
  HOMING_MAX_CONNECTIONS_PER_PRINCIPAL: count(0).describe('Connections of one principal at one node; 0: no limit'),
  HOMING_MAX_CONNECTIONS_PER_ADDRESS: count(0).describe(
    'Connections from one address, of IPv6 one /64, at one node; 0: no limit',
  ),
  HOMING_MAX_RUNS_PER_SEC: count(0).describe('Commands that one tenant submits in a second; 0: no limit'),
  HOMING_MAX_RUNS_PER_SEC_PER_PRINCIPAL: count(0).describe(
    'Commands that one principal submits in a second; 0: no limit',
  ),
  HOMING_MAX_WRITES_PER_SEC_PER_PRINCIPAL: count(0).describe(
    'Writes to stdin of one principal in a second; 0: no limit',
  ),
  HOMING_MAX_KILLS_PER_SEC_PER_PRINCIPAL: count(0).describe('Kills of one principal in a second; 0: no limit'),
  HOMING_MAX_FAILED_ATTEMPTS: count(60).describe(
    'Tokens and resumes from one address that fail in a minute before further failures are answered RATE_LIMITED; 0: no limit',
  ),
  HOMING_AUDIT_FILE: optional.describe('File of the audit log, a line an act; `-` is stdout; none unless given'),
  HOMING_POOL: poolName.default('default').describe('Pool whose queue a worker serves'),
  HOMING_CONCURRENCY: count(8, 1).describe('Commands a worker runs at the same time'),
  HOMING_CONTAINMENT: z
    .enum(['auto', 'pidns', 'group'])
    .default('auto')
    .describe('Weakest containment a worker accepts'),
  HOMING_RUN_AS: optional.describe('User that commands run as (name, uid or uid:gid); the worker must be root'),
  HOMING_WORK_ROOT: optional.describe('Folder that the working folders of commands must not leave'),
  HOMING_SANDBOX: z
    .enum(['workspace', 'offline', 'readonly'])
    .optional()
    .describe('Sandbox profile that every command has at least'),
  HOMING_ENV_ALLOW: z
    .string()
    .default('PATH HOME LANG LC_* TZ TERM')
    .describe('Variables of the worker that commands see'),
  HOMING_CLAIM_REPLICAS: z
    .union([z.literal('auto'), z.coerce.number().int().min(0).max(16)], { error: 'must be auto or a number up to 16' })
    .default('auto')
    .describe('Replicas that have to confirm a claim before its command is started; auto: one if one is connected'),
  HOMING_CLAIM_SHORTFALL: z
    .enum(['spawn', 'refuse'])
    .default('spawn')
    .describe('Whether a command is started whose claim too few replicas confirmed'),
  HOMING_WEBHOOK_ALLOW: optional.describe(
    'Addresses that commands may name for their webhook, and all below them, separated by commas; none unless given',
  ),
  HOMING_WEBHOOK_SECRET: z
    .string()
    .min(24, 'must have at least 24 characters')
    .optional()
    .describe('Secret that signs webhooks: text, or whsec_ and base64'),
  HOMING_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,32}$/, 'must be 1 to 32 characters of A-Z a-z 0-9 _ -')
    .default('h')
    .describe('Prefix of every key'),
  HOMING_DATA_DIR: optional.describe(
    "Folder for the embedded Redis, run.json and the ledger of starts; the user's data folder unless given",
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: webAddress
    .optional()
    .describe(
      'Where traces go (OTLP over HTTP, /v1/traces is added); none unless given. All other OTEL_* settings for traces hold too',
    ),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: webAddress.optional().describe('The same as a whole address'),
  OTEL_SDK_DISABLED: z.enum(['true', 'false']).default('false').describe('true: no traces, whatever else is set'),
  HOMING_LOG_LEVEL: z
    .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info')
    .describe('Least level that is logged'),
});

export type Settings = z.output<typeof settingsSchema>;
export type SettingName = keyof Settings;

/** Where traces go; undefined where nobody asked for any. */
export function tracesUrl(settings: Settings): string | undefined {
  if (settings.OTEL_SDK_DISABLED === 'true') return undefined;
  const { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: exact, OTEL_EXPORTER_OTLP_ENDPOINT: base } = settings;
  return exact ?? (base === undefined ? undefined : `${base.replace(/\/$/, '')}/v1/traces`);
}

function webhookFaults(given: Readonly<Record<string, string | undefined>>): string[] {
  const { HOMING_WEBHOOK_ALLOW: allow, HOMING_WEBHOOK_SECRET: secret } = given;
  if (allow === undefined) return [];
  return [
    ...(parseAllowList(allow) === undefined
      ? ['HOMING_WEBHOOK_ALLOW: must be addresses that begin with http:// or https://, separated by commas']
      : []),
    ...(secret === undefined ? ['HOMING_WEBHOOK_SECRET: is needed to sign what HOMING_WEBHOOK_ALLOW allows'] : []),
  ];
}

/** @returns the settings, or every fault as a sentence that begins with the setting's name */
export function parseSettings(
  env: Readonly<Record<string, string | undefined>>,
): { readonly ok: true; readonly settings: Settings } | { readonly ok: false; readonly faults: readonly string[] } {
  const given = Object.fromEntries(
    Object.entries(env).filter(([name, value]) => name in settingsSchema.shape && value !== undefined && value !== ''),
  );
  const parsed = settingsSchema.safeParse(given);
  const faults = (parsed.error?.issues ?? []).map((issue) => {
    const name = issue.path.join('.');
    return `${name}: ${sentenceOf(issue, given[name])}`;
  });
  faults.push(...webhookFaults(given));
  return parsed.success && faults.length === 0 ? { ok: true, settings: parsed.data } : { ok: false, faults };
}

/** In plain words, with what was given; a text that is wrong is not repeated, since it may hold a secret. */
function sentenceOf(issue: z.core.$ZodIssue, given: string | undefined): string {
  switch (issue.code) {
    case 'invalid_type':
      return `must be a whole number, not "${given}"`;
    case 'too_small':
      return issue.origin === 'string' ? issue.message : `must be at least ${issue.minimum}, not ${given}`;
    case 'too_big':
      return issue.origin === 'string' ? issue.message : `must be at most ${issue.maximum}, not ${given}`;
    case 'invalid_value':
      return `must be one of ${issue.values.join(', ')}, not "${given}"`;
    default:
      return issue.message;
  }
}
