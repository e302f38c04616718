/**
 * The manifests for Kubernetes, as far as they can be tried without a cluster: against its own schemas and types, against
 * each other, and against the settings and figures of Homing.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Deployment } from 'kubernetes-models/apps/v1';
import { HorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2';
import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1';
import { ConfigMap, Service } from 'kubernetes-models/v1';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { settingsSchema } from '../../src/config.js';
import { METRICS } from '../../src/ops/metric-catalog.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const FOLDER = `${ROOT}deploy/kubernetes/`;
// biome-ignore lint/suspicious/noExplicitAny: manifests are looked at, not trusted
type Manifest = any;
const manifests: readonly Manifest[] = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.yaml'))
  .flatMap((file) => parseAllDocuments(readFileSync(FOLDER + file, 'utf8')).map((document) => document.toJS()));
const of = (kind: string) => manifests.filter((manifest) => manifest.kind === kind);
const named = (kind: string, name: string) => of(kind).find(({ metadata }) => metadata.name === name);

const KINDS = { ConfigMap, Deployment, HorizontalPodAutoscaler, NetworkPolicy, PodDisruptionBudget, Service } as const;
const MODULES: Readonly<Record<keyof typeof KINDS, string>> = {
  ConfigMap: 'v1',
  Deployment: 'apps/v1',
  HorizontalPodAutoscaler: 'autoscaling/v2',
  NetworkPolicy: 'networking.k8s.io/v1',
  PodDisruptionBudget: 'policy/v1',
  Service: 'v1',
};

/** What the compiler says of these manifests as values of Kubernetes' types; it knows every field that there is. */
function typeFaults(given: readonly Manifest[]): string {
  const folder = `${ROOT}.artifacts/manifests-${process.pid}`;
  const imports = Object.entries(MODULES).map(
    ([kind, path]) => `import type { I${kind} } from 'kubernetes-models/${path}';`,
  );
  const values = given.map((manifest, i) => `export const m${i}: I${manifest.kind} = ${JSON.stringify(manifest)};`);
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${folder}/manifests.ts`, [...imports, ...values].join('\n'));
  const settings = { strict: true, noEmit: true, skipLibCheck: true, module: 'nodenext', target: 'es2022', types: [] };
  writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({ compilerOptions: settings, files: ['manifests.ts'] }));
  const { stdout } = spawnSync(`${ROOT}node_modules/.bin/tsc`, ['-p', folder], { encoding: 'utf8' });
  rmSync(folder, { recursive: true });
  return stdout;
}

describe('deploy/kubernetes', () => {
  it('is what Kubernetes takes, by its schemas and by its types', () => {
    expect(manifests).toHaveLength(12);
    for (const manifest of manifests) {
      const Kind = KINDS[manifest.kind as keyof typeof KINDS];
      expect(Kind, manifest.kind).toBeDefined();
      expect(() => new Kind(manifest).validate(), `${manifest.kind} ${manifest.metadata.name}`).not.toThrow();
      expect(manifest.apiVersion).toBe(MODULES[manifest.kind as keyof typeof KINDS]);
    }
    expect(typeFaults(manifests)).toBe('');
  });

  it('is tried by checks that see a wrong one', () => {
    const wrong = structuredClone(named('Deployment', 'homing-gateway'));
    wrong.spec.template.spec.containers[0].livenesProbe = {};
    expect(typeFaults([wrong])).toContain('livenesProbe');
    expect(() => new Deployment({ ...wrong, spec: { ...wrong.spec, replicas: 'two' } }).validate()).toThrow(/replicas/);
  });

  it.each(['homing-gateway', 'homing-worker'])(
    '%s runs with settings that exist, and every secret from a file',
    (name) => {
      const { template } = named('Deployment', name).spec;
      const [container] = template.spec.containers;
      const variables = [
        ...Object.entries(of('ConfigMap')[0].data),
        ...container.env.map((e: Manifest) => [e.name, e.value]),
      ];
      for (const [variable, value] of variables) {
        expect(settingsSchema.shape).toHaveProperty(variable.replace(/_FILE$/, ''));
        if (/SECRET|TOKEN|REDIS_URL/.test(variable)) expect(variable).toMatch(/_FILE$/);
        if (!variable.endsWith('_FILE')) continue;
        const mounted = container.volumeMounts.some(({ mountPath }: Manifest) => value.startsWith(`${mountPath}/`));
        expect(mounted, variable).toBe(true);
      }
      for (const { name: mounted } of container.volumeMounts) {
        expect(template.spec.volumes.map((volume: Manifest) => volume.name)).toContain(mounted);
      }
      const secrets = template.spec.volumes.flatMap(({ secret }: Manifest) => secret?.secretName ?? []);
      expect(secrets.includes('homing-tokens')).toBe(name === 'homing-gateway');
    },
  );

  it.each(['homing-gateway', 'homing-worker'])('%s is asked whether it is ready, and has the time to drain', (name) => {
    const { template } = named('Deployment', name).spec;
    const [container] = template.spec.containers;
    const ports = container.ports.map((port: Manifest) => port.name);
    expect(container.readinessProbe.httpGet).toMatchObject({ path: '/readyz', port: 'ops' });
    expect(container.livenessProbe.httpGet).toMatchObject({ path: '/livez', port: 'ops' });
    expect(ports).toContain('ops');
    const drainMs = Number(container.env.find((e: Manifest) => e.name === 'HOMING_DRAIN_MS').value);
    const preStopMs = Number(container.lifecycle?.preStop.exec.command[1] ?? 0) * 1_000;
    const closeMs = Number(
      /CLOSE_LIMIT_MS = ([\d_]+);/.exec(readFileSync(`${ROOT}src/cli/serve.ts`, 'utf8'))?.[1]?.replaceAll('_', ''),
    );
    expect(template.spec.terminationGracePeriodSeconds * 1_000).toBeGreaterThan(preStopMs + drainMs + closeMs);
    if (name === 'homing-gateway') expect(preStopMs).toBeGreaterThan(0);
    else expect(drainMs).toBeGreaterThanOrEqual(3_600_000);
  });

  it.each(['homing-gateway', 'homing-worker'])('%s runs without rights, and is not taken away all at once', (name) => {
    const { selector, template } = named('Deployment', name).spec;
    const { labels } = template.metadata;
    expect(template.spec).toMatchObject({
      automountServiceAccountToken: false,
      securityContext: { runAsNonRoot: true },
    });
    expect(template.spec.containers[0].securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    expect(labels).toMatchObject(selector.matchLabels);
    expect(labels).toMatchObject(named('PodDisruptionBudget', name).spec.selector.matchLabels);
    expect(labels).toMatchObject(named('NetworkPolicy', name).spec.podSelector.matchLabels);
    expect(labels).toMatchObject(named('NetworkPolicy', 'homing-nothing-else').spec.podSelector.matchLabels);
    expect(named('HorizontalPodAutoscaler', name).spec.scaleTargetRef.name).toBe(name);
  });

  it('scales workers by the oldest wait of their own pool', () => {
    const [{ external }] = named('HorizontalPodAutoscaler', 'homing-worker').spec.metrics;
    expect(METRICS).toHaveProperty(external.metric.name);
    const { labels } = named('Deployment', 'homing-worker').spec.template.metadata;
    expect(external.metric.selector.matchLabels.pool).toBe(labels['homing/pool']);
  });

  it('lets only Prometheus ask for figures, and only tabs and workers reach a node', () => {
    const rules = named('NetworkPolicy', 'homing-gateway').spec.ingress;
    const from = (port: string) => rules.filter(({ ports }: Manifest) => ports.some((p: Manifest) => p.port === port));
    expect(JSON.stringify(from('ops'))).toContain('monitoring');
    expect(from('ops')[0].from).toHaveLength(1);
    expect(JSON.stringify(from('http'))).toMatch(/ingress-nginx.*worker/);
    const [, internet] = named('NetworkPolicy', 'homing-worker').spec.egress;
    expect(internet.to[0].ipBlock.except).toEqual(expect.arrayContaining(['10.0.0.0/8', '169.254.0.0/16']));
  });
});
