/** The catalogue of figures and the code agree: nothing is counted that is not described, and the text is Prometheus'. */
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { createMeter } from '../../src/ops/meter.js';
import { METRICS, type MetricFacts } from '../../src/ops/metric-catalog.js';

const SRC = new URL('../../src/', import.meta.url);
const catalogue: Readonly<Record<string, MetricFacts>> = METRICS;

/** Calls like `meter.count('homing_x', { label: …` in the whole source. */
const calls = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.ts$/.test(file) && !file.startsWith('ops/metric-catalog'))
  .flatMap((file) => [
    ...readFileSync(new URL(file, SRC), 'utf8').matchAll(/\b(count|gauge|observe)\(\s*'(homing_[a-z_]+)'/g),
  ])
  .map(([, call, name]) => ({ call, name: name ?? '' }));

describe('figures', () => {
  it('are described in the catalogue, with the kind that the code uses', () => {
    const kinds = { count: 'counter', gauge: 'gauge', observe: 'histogram' };
    const wrong = calls.filter(({ call, name }) => catalogue[name]?.type !== kinds[call as keyof typeof kinds]);
    expect(wrong).toEqual([]);
    expect(calls.length).toBeGreaterThan(20);
  });

  it('are all measured somewhere', () => {
    const measured = new Set(calls.map(({ name }) => name));
    expect(Object.keys(catalogue).filter((name) => !measured.has(name))).toEqual([]);
  });

  it('are looked at when they are read, and at no other time', async () => {
    const meter = createMeter();
    let looks = 0;
    meter.beforeDump?.(() => meter.gauge('homing_spool_bytes', ++looks));
    expect(looks).toBe(0);
    expect(await meter.dump()).toContain('homing_spool_bytes 1');
    expect(await meter.dump()).toContain('homing_spool_bytes 2');
  });

  it('name their unit, and counters end in _total', () => {
    for (const [name, { type, help }] of Object.entries(catalogue)) {
      expect(name).toMatch(/^homing_[a-z_]+$/);
      expect(name.endsWith('_total'), name).toBe(type === 'counter');
      if (type === 'histogram') expect(name).toMatch(/_(seconds|ms|bytes)$/);
      expect(help.length, name).toBeGreaterThan(6);
    }
  });

  it('have no label that could be an id', () => {
    const labels = new Set(Object.values(catalogue).flatMap(({ labels = [] }) => labels));
    expect([...labels].filter((label) => /id$|session|command|principal|tenant|conversation/i.test(label))).toEqual([]);
  });

  it('come as text that Prometheus reads, and a name that is not in the catalogue does no harm', async () => {
    const meter = createMeter();
    meter.count('homing_submits_total', { repeated: 'false' });
    meter.count('homing_submits_total', { repeated: 'false' }, 2);
    meter.gauge('homing_connections', 3);
    meter.observe('homing_bus_probe_ms', 0.4);
    meter.count('homing_unheard_of_total', { where: 'here' });
    const text = await meter.dump();
    expect(text).toContain('# TYPE homing_submits_total counter');
    expect(text).toContain('homing_submits_total{repeated="false"} 3');
    expect(text).toContain('homing_connections 3');
    expect(text).toContain('homing_bus_probe_ms_bucket{le="0.5"} 1');
    expect(text).toContain('homing_unheard_of_total{where="here"} 1');
    expect(text).toContain('homing_nodejs_eventloop_lag_seconds');
  });
});
