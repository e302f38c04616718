/**
 * Spans for OpenTelemetry: the port TracePort on its SDK, sent over OTLP/HTTP as JSON. Loaded only where traces are asked for. All
 * settings are the SDK's own (`OTEL_*`): where to, headers, sampler, names of the service, size and time of batches. What can not
 * be sent is dropped, never waited for; spans that wait are bounded by the SDK (2,048).
 */
import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import type { SpanBeginning, TracePort } from '../domain/ports.js';

const KINDS = {
  server: SpanKind.SERVER,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
  internal: SpanKind.INTERNAL,
} as const;
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
const FLUSH_WITHIN_MS = 2_000;

/** @param process `gateway` or `worker`, and its id: what tells the processes of one service apart */
export function openTracing(
  url: string,
  process: { readonly program: string; readonly id: string; readonly version: string },
): { readonly traces: TracePort; close(): Promise<void> } {
  const resource = defaultResource()
    .merge(
      resourceFromAttributes({
        'service.name': 'homing',
        'service.version': process.version,
        'service.instance.id': process.id,
        'homing.program': process.program,
      }),
    )
    // What the operator says wins.
    .merge(detectResources({ detectors: [envDetector] }));
  const processor = new BatchSpanProcessor(new OTLPTraceExporter({ url }));
  const provider = new BasicTracerProvider({ resource, spanProcessors: [processor] });
  const tracer = provider.getTracer('homing', process.version);

  return {
    traces: {
      begin(name, { parent, kind = 'internal', startMs, attributes }: SpanBeginning) {
        const options = {
          kind: KINDS[kind],
          ...(startMs === undefined ? {} : { startTime: startMs }),
          ...(attributes === undefined ? {} : { attributes }),
        };
        const span = tracer.startSpan(name, options, contextOf(parent));
        const { traceId, spanId, traceFlags } = span.spanContext();
        return {
          traceparent: `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`,
          end({ endMs, error, attributes: more } = {}) {
            if (more !== undefined) span.setAttributes(more);
            if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: error });
            span.end(endMs);
          },
        };
      },
    },
    async close() {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, FLUSH_WITHIN_MS);
      });
      await Promise.race([provider.shutdown().catch(() => undefined), late]);
      clearTimeout(timer);
    },
  };
}

/** Of something that is no traceparent, none: then a trace begins. */
function contextOf(traceparent: string | undefined) {
  const [, traceId, spanId, flags = '00'] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  const root = context.active();
  if (traceId === undefined || spanId === undefined) return root;
  return trace.setSpanContext(root, { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true });
}
