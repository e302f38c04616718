/** Spans where they are asked for. Without, nothing is loaded: the library is in `tracing`, which this alone imports. */
import { type Settings, tracesUrl } from '../config.js';
import type { TracePort } from '../domain/ports.js';

/** @returns undefined where nobody asked for traces; else the caller closes it, which sends what waits for 2 s at most */
export async function openTraces(
  settings: Settings,
  process: { readonly program: 'gateway' | 'worker'; readonly id: string; readonly version: string },
): Promise<{ readonly traces: TracePort; close(): Promise<void> } | undefined> {
  const url = tracesUrl(settings);
  if (url === undefined) return undefined;
  const { openTracing } = await import('./tracing.js');
  return openTracing(url, process);
}
