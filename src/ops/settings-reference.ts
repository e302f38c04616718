/** `docs/settings.md`, made from the schema of the settings, so that it says what is checked. */
import { z } from 'zod';
import { type SettingName, settingsSchema } from '../config.js';

/** Every setting belongs to one group, in the order in which a reader needs them. */
const GROUPS: readonly (readonly [title: string, belongs: (name: string) => boolean])[] = [
  ['Redis', (name) => /REDIS|SENTINEL|PREFIX|CLAIM/.test(name)],
  ['Addresses', (name) => /(OPS_)?(HOST|PORT)$|GATEWAY_URL|ORIGINS|PROXY/.test(name)],
  ['Tokens and secrets', (name) => /JWT|JWKS|TOKEN|SECRET/.test(name)],
  ['Workers', (name) => /_POOL$|CONCURRENCY|CONTAINMENT|RUN_AS|WORK_ROOT|SANDBOX|ENV_ALLOW/.test(name)],
  ['Limits', (name) => /_MAX_|_BYTES/.test(name)],
  ['Times', (name) => /_MS$/.test(name)],
  ['Traces', (name) => /^OTEL_/.test(name)],
  ['The rest', () => true],
];

interface Described {
  readonly description?: string;
  readonly default?: string | number;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
}

export function settingsReference(): string {
  const { properties = {} } = z.toJSONSchema(settingsSchema, { io: 'input', unrepresentable: 'any' });
  const left = Object.entries(properties) as [SettingName, Described][];
  const sections: string[] = [];
  for (const [title, belongs] of GROUPS) {
    const rows = left.filter(([name]) => belongs(name));
    if (rows.length === 0) continue;
    for (const row of rows) left.splice(left.indexOf(row), 1);
    const lines = rows.map(([name, one]) => `| \`${name}\` | ${defaultOf(name, one)} | ${cell(meaningOf(one))} |`);
    sections.push(`## ${title}\n\n| setting | default | meaning |\n|---|---|---|\n${lines.join('\n')}\n`);
  }
  return `${HEAD}\n${sections.join('\n')}${FORMS}`;
}

const HEAD = `# Settings

Made from the schema by \`npm run docs\`; not to be edited by hand. Settings are variables of the environment; flags win over them.
Every one also exists as \`NAME_FILE\`, the path of a file that holds the value: so no secret has to be in the environment or in a
process list. A process tells every fault of its settings at once and ends with 2. Times are milliseconds, sizes are bytes.
An empty variable counts as absent. \`homing doctor\` says whether what they name is there.
`;

const FORMS = `
## Forms of an address of Redis

User and password are part of it, percent-encoded: \`redis://user:password@host\`. \`?tls=1\` encrypts where the scheme does not say so.

| form | for |
|---|---|
| \`redis://host:6379/0\`, \`rediss://host:6379/0\` | one server, plain or encrypted |
| \`unix:///path/to.sock?db=0\` | one server on this machine |
| \`redis-sentinel://host:26379,host:26379/master-name?db=0\` | the master that the sentinels name |
| \`redis-cluster://host:6379,host:6379\` | a Cluster; some of its members are enough |
`;

function defaultOf(name: string, { default: value }: Described): string {
  if (value === undefined) return '–';
  if (typeof value === 'string') return `\`${value}\``;
  const unit = name.endsWith('_MS') ? timeText(value) : name.includes('_BYTES') ? sizeText(value) : undefined;
  return unit === undefined || unit === String(value) ? `${value}` : `${value} (${unit})`;
}

function meaningOf({ description = '', enum: values, minimum, maximum }: Described): string {
  const bounded = maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER;
  const range = bounded ? `${minimum ?? 0} to ${maximum}` : minimum ? `at least ${minimum}` : undefined;
  const allowed = values === undefined ? range : values.map((value) => `\`${value}\``).join(', ');
  return allowed === undefined ? description : `${description} (${allowed})`;
}

const UNITS_MS = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
] as const;

function timeText(ms: number): string | undefined {
  for (const [unitMs, unit] of UNITS_MS) if (ms >= unitMs && ms % unitMs === 0) return `${ms / unitMs} ${unit}`;
  return undefined;
}

function sizeText(bytes: number): string | undefined {
  if (bytes >= 1024 ** 2 && bytes % 1024 ** 2 === 0) return `${bytes / 1024 ** 2} MiB`;
  return bytes >= 1024 && bytes % 1024 === 0 ? `${bytes / 1024} KiB` : undefined;
}

/** A bar would end the cell. */
const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ');
