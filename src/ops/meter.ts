/**
 * The figures of this process for Prometheus: the port Meter on prom-client. A name that is not in the catalogue is
 * counted all the same, so that a forgotten line there never ends a process; a test finds it.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Meter } from '../domain/ports.js';
import { FROM_ZERO, METRICS, type MetricFacts } from './metric-catalog.js';

export interface TextMeter extends Meter {
  /** Prometheus text exposition, format 0.0.4. */
  dump(): Promise<string>;
}

type Labels = Readonly<Record<string, string>>;
const NONE: Labels = {};

/** @param process names the default figures of Node (event-loop lag, memory, CPU) as `homing_process_*` */
export function createMeter(): TextMeter {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, prefix: 'homing_' });
  const counters = new Map<string, Counter>();
  const gauges = new Map<string, Gauge>();
  const histograms = new Map<string, Histogram>();
  const looks: (() => void)[] = [];

  const factsOf = (name: string, type: MetricFacts['type'], labels: Labels): MetricFacts =>
    (METRICS as Readonly<Record<string, MetricFacts>>)[name] ?? { type, help: name, labels: Object.keys(labels) };

  /** Made at the first use, so that a worker shows no figures of a node. */
  function metricOf<T>(known: Map<string, T>, name: string, make: () => T): T {
    let metric = known.get(name);
    if (metric === undefined) {
      metric = make();
      known.set(name, metric);
    }
    return metric;
  }

  const optionsOf = (name: string, type: MetricFacts['type'], labels: Labels) => {
    const { help, labels: labelNames = [], buckets } = factsOf(name, type, labels);
    return {
      name,
      help,
      labelNames: [...labelNames],
      registers: [registry],
      ...(buckets ? { buckets: [...buckets] } : {}),
    };
  };

  const meter: TextMeter = {
    count(name, labels = NONE, by = 1) {
      metricOf(counters, name, () => new Counter(optionsOf(name, 'counter', labels))).inc(labels, by);
    },
    gauge(name, value, labels = NONE) {
      metricOf(gauges, name, () => new Gauge(optionsOf(name, 'gauge', labels))).set(labels, value);
    },
    observe(name, value, labels = NONE) {
      metricOf(histograms, name, () => new Histogram(optionsOf(name, 'histogram', labels))).observe(labels, value);
    },
    beforeDump(look) {
      looks.push(look);
    },
    dump() {
      for (const look of looks) look();
      return registry.metrics();
    },
  };
  // Alerts ask for these: a figure that was never counted must read 0, not nothing.
  for (const [name, labels] of FROM_ZERO) meter.count(name, labels, 0);
  return meter;
}
