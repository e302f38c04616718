/**
 * Figures of this process, in memory, and their text for /metrics. Bounded: beyond a number of series per name, new label
 * values are counted under `overflow`, so that a label that turns out to be unbounded costs nothing.
 */
import type { Meter } from '../domain/ports.js';

type Labels = Readonly<Record<string, string>>;
type Kind = 'counter' | 'gauge' | 'summary';

interface Metric {
  readonly kind: Kind;
  readonly series: Map<string, number>;
}

const MAX_SERIES = 100;

export interface TextMeter extends Meter {
  /** Prometheus text exposition, format 0.0.4. */
  dump(): string;
}

const escapeLabel = (value: string) => value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return pairs.length === 0 ? '' : `{${pairs.map(([name, value]) => `${name}="${escapeLabel(value)}"`).join(',')}}`;
}

export function createMeter(): TextMeter {
  const metrics = new Map<string, Metric>();

  function change(name: string, kind: Kind, labels: Labels, by: (before: number) => number, suffix = ''): void {
    let metric = metrics.get(name);
    if (metric === undefined) {
      metric = { kind, series: new Map() };
      metrics.set(name, metric);
    }
    let key = `${suffix}${labelText(labels)}`;
    if (!metric.series.has(key) && metric.series.size >= MAX_SERIES) key = `${suffix}{overflow="true"}`;
    metric.series.set(key, by(metric.series.get(key) ?? 0));
  }

  return {
    count: (name, labels = {}, by = 1) => change(name, 'counter', labels, (before) => before + by),
    gauge: (name, value, labels = {}) => change(name, 'gauge', labels, () => value),
    observe(name, value, labels = {}) {
      change(name, 'summary', labels, (before) => before + value, '_sum');
      change(name, 'summary', labels, (before) => before + 1, '_count');
    },
    dump() {
      let text = '';
      for (const [name, { kind, series }] of metrics) {
        text += `# TYPE ${name} ${kind}\n`;
        for (const [key, value] of series) text += `${name}${key} ${value}\n`;
      }
      return text;
    },
  };
}
