/**
 * What operators watch Homing with: alert rules, the dashboard and the scrape settings name only figures that there are, the
 * rules fire when they should and only then, and the documents say what to do for each.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { createMeter } from '../../src/ops/meter.js';
import { FROM_ZERO, METRICS, type MetricFacts } from '../../src/ops/metric-catalog.js';

const at = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const read = (path: string) => readFileSync(at(path), 'utf8');

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook: string };
}
interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string }[];
}
const rules: Rule[] = parse(read('deploy/prometheus/alerts.yml')).groups.flatMap(
  ({ rules }: { rules: Rule[] }) => rules,
);
const dashboard = JSON.parse(read('deploy/grafana/homing.json'));
const panels: Panel[] = dashboard.panels;
const expressions = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
const catalogue: Readonly<Record<string, MetricFacts>> = METRICS;

/** Of Debian's package `prometheus`. */
function promtool(...args: string[]): { readonly status: number | null; readonly said: string } {
  const { status, stdout, stderr, error } = spawnSync('promtool', args, { encoding: 'utf8', timeout: 20_000 });
  if (error !== undefined) throw new Error(`promtool is missing (apt-get install prometheus): ${error.message}`);
  return { status, said: stdout + stderr };
}

/** Names of figures in an expression, a histogram by its own name. */
const namesIn = (expr: string): string[] =>
  [...expr.matchAll(/\bhoming_[a-z0-9_]+/g)].map(([name]) => name.replace(/_(bucket|count|sum)$/, ''));

async function known(): Promise<Set<string>> {
  // Those of Node itself come with the library.
  const text = await createMeter().dump();
  return new Set([...Object.keys(catalogue), ...[...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name ?? '')]);
}

/** What the rules or tests would be with a change. */
function withChanged<T>(file: string, change: (text: string) => string, work: (path: string) => T): T {
  const folder = mkdtempSync(join(tmpdir(), 'homing-rules-'));
  try {
    for (const name of ['alerts.yml', 'alerts.test.yml']) {
      const text = read(`deploy/prometheus/${name}`);
      writeFileSync(join(folder, name), name === file ? change(text) : text);
    }
    return work(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe('alert rules', () => {
  it('name only figures that there are', async () => {
    const names = await known();
    expect(rules.flatMap(({ expr }) => namesIn(expr)).filter((name) => !names.has(name))).toEqual([]);
  });

  it('are there for everything that must not go unseen', () => {
    expect(rules.map(({ alert }) => alert)).toEqual(
      expect.arrayContaining([
        'HomingNoWorkerForPool',
        'HomingOldestWait',
        'HomingProbeFailing',
        'HomingMisdelivery',
        'HomingClaimsLost',
        'HomingGapRate',
        'HomingEvictionPolicy',
        'HomingRedisMemory',
        'HomingReconnectStorm',
      ]),
    );
  });

  it('count from 0 what they ask the increase of', async () => {
    const text = await createMeter().dump();
    const series = rules.flatMap(({ expr }) =>
      [...expr.matchAll(/increase\((homing_[a-z_]+)/g)].map(([, name]) => name),
    );
    expect(series.length).toBeGreaterThan(8);
    for (const name of series) expect(text, name).toMatch(new RegExp(`^${name}(\\{.*\\})? 0$`, 'm'));
    for (const [name, labels] of FROM_ZERO) expect(catalogue[name]?.labels ?? []).toEqual(Object.keys(labels));
  });

  it('are rules that Prometheus takes, and its settings too', () => {
    expect(promtool('check', 'rules', at('deploy/prometheus/alerts.yml'))).toMatchObject({ status: 0 });
    const settings = read('deploy/prometheus/prometheus.yml')
      .replace('/etc/prometheus/alerts.yml', at('deploy/prometheus/alerts.yml'))
      .replaceAll('/run/secrets/metrics_token', '/dev/null');
    const folder = mkdtempSync(join(tmpdir(), 'homing-prometheus-'));
    writeFileSync(join(folder, 'prometheus.yml'), settings);
    expect(promtool('check', 'config', join(folder, 'prometheus.yml'))).toMatchObject({ status: 0 });
    rmSync(folder, { recursive: true });
  });

  it('each fires when it should and only then', () => {
    const tested = read('deploy/prometheus/alerts.test.yml');
    const { said, status } = promtool('test', 'rules', at('deploy/prometheus/alerts.test.yml'));
    expect(status, said).toBe(0);
    for (const { alert } of rules) {
      const [cases, fired] = [`alertname: ${alert}\n`, `alertname: ${alert}\n        exp_alerts:`];
      expect(tested, alert).toContain(fired);
      // At least one more, in which it is quiet.
      expect(tested.split(cases).length, alert).toBeGreaterThan(2);
    }
  });

  it('are tried by tests that see a wrong one', () => {
    const spoil = (text: string) =>
      text
        .replace('(max by (pool) (homing_pool_workers) == 0)', '(max by (pool) (homing_pool_workers) == 1)')
        .replace('increase(homing_misdelivered_total[10m]) > 0', 'increase(homing_misdelivered_total[10m]) >= 0');
    const { status, said } = withChanged('alerts.yml', spoil, (folder) =>
      promtool('test', 'rules', join(folder, 'alerts.test.yml')),
    );
    expect(status).not.toBe(0);
    for (const alert of ['HomingNoWorkerForPool', 'HomingMisdelivery']) expect(said).toContain(alert);
  });

  it('say how bad it is, and where it is written what to do', () => {
    const headings = [...read('docs/operating.md').matchAll(/^### (.+)$/gm)].map(([, title]) => title);
    for (const { alert, labels, annotations } of rules) {
      expect(['page', 'ticket']).toContain(labels.severity);
      expect(annotations.runbook).toBe(`docs/operating.md#${alert.toLowerCase()}`);
      expect(headings).toContain(alert);
    }
    const alerts = rules.map(({ alert }) => alert);
    expect(headings.filter((title) => title?.startsWith('Homing') && !alerts.includes(title))).toEqual([]);
  });
});

describe('the dashboard', () => {
  it('names only figures that there are, and leaves out none of ours that tells something of its own', async () => {
    const names = await known();
    const shown = new Set(expressions.flatMap(namesIn));
    expect([...shown].filter((name) => !names.has(name))).toEqual([]);
    const hidden = Object.keys(catalogue).filter((name) => !shown.has(name));
    expect(hidden.length, hidden.join(' ')).toBeLessThan(Object.keys(catalogue).length / 3);
  });

  it('asks questions that Prometheus understands', () => {
    const folder = mkdtempSync(join(tmpdir(), 'homing-dashboard-'));
    const asked = expressions.map((expr, i) => ({
      record: `panel:${i}`,
      expr: expr.replaceAll('$__rate_interval', '5m'),
    }));
    writeFileSync(join(folder, 'panels.yml'), JSON.stringify({ groups: [{ name: 'panels', rules: asked }] }));
    const { status, said } = promtool('check', 'rules', '--lint=none', join(folder, 'panels.yml'));
    rmSync(folder, { recursive: true });
    expect(status, said).toBe(0);
    expect(expressions.length).toBeGreaterThan(40);
  });

  it('has panels that do not lie on each other', () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const taken = new Set<string>();
    for (const { title, gridPos } of panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect(taken.has(`${x} ${y}`), title).toBe(false);
          taken.add(`${x} ${y}`);
        }
      }
    }
  });
});
