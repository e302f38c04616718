/** A collector of OpenTelemetry of one test's own: takes spans as OTLP over HTTP, in JSON. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
  /** Of the process that made it. */
  readonly resource: Readonly<Record<string, string | number | boolean>>;
}

interface Attribute {
  readonly key: string;
  readonly value: { readonly stringValue?: string; readonly intValue?: number | string; readonly boolValue?: boolean };
}
const valuesOf = (attributes: readonly Attribute[] = []) =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [key, value.stringValue ?? value.boolValue ?? Number(value.intValue)]),
  );
const ms = (nanos: string | number) => Number(BigInt(nanos) / 1_000_000n);

export async function startCollector(): Promise<
  AsyncDisposable & { readonly url: string; readonly spans: CollectedSpan[] }
> {
  const spans: CollectedSpan[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const { resourceSpans = [] } = JSON.parse(Buffer.concat(parts).toString('utf8'));
      for (const { resource, scopeSpans } of resourceSpans) {
        for (const { spans: made } of scopeSpans) {
          for (const span of made) {
            spans.push({
              ...span,
              startMs: ms(span.startTimeUnixNano),
              endMs: ms(span.endTimeUnixNano),
              attributes: valuesOf(span.attributes),
              resource: valuesOf(resource.attributes),
            });
          }
        }
      }
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
