/**
 * The last part of a trace: from the worker to the socket. Only `started` and `ended` carry a context, and only while traces are
 * on; nothing else is looked at, so that a flood costs as much as without.
 */
import type { TracePort } from '../domain/ports.js';
import type { SessionId } from '../protocol/ids.js';

const STARTED = '{"jsonrpc":"2.0","method":"command.started"';
const ENDED = '{"jsonrpc":"2.0","method":"command.ended"';

/** @param texts notifications of one command, in order, about to be sent to their owner */
export function traceDelivery(traces: TracePort, sessionId: SessionId, texts: readonly string[], nowMs: number): void {
  const [first = ''] = texts;
  const last = texts.at(-1) ?? '';
  if (first.startsWith(STARTED)) span(traces, sessionId, 'started', first, nowMs);
  if (last.startsWith(ENDED)) span(traces, sessionId, 'ended', last, nowMs);
}

function span(traces: TracePort, sessionId: SessionId, entry: string, text: string, nowMs: number): void {
  const parent = /"trace":"([0-9a-f-]{55})"/.exec(text)?.[1];
  const at = Number(/"ts":(\d+)/.exec(text)?.[1]);
  if (parent === undefined || !Number.isFinite(at)) return;
  const attributes = { 'homing.session.id': sessionId, 'homing.entry': entry };
  // Two clocks: a worker's may be ahead of this one.
  traces
    .begin('homing deliver', { parent, kind: 'consumer', startMs: Math.min(at, nowMs), attributes })
    .end({ endMs: nowMs });
}
