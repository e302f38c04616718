/** Figures of a node that are looked at when they are asked for, so that nothing on the way of an entry keeps them. */
import type { Meter } from '../domain/ports.js';
import type { Connection } from './connection.js';
import type { Holding } from './session-table.js';

export interface Waiting {
  /** Of all sockets together, and of the one with the most. */
  readonly bytes: number;
  readonly largestBytes: number;
  readonly slow: number;
}

export function waitingOf(connections: Iterable<Pick<Connection, 'waitingBytes' | 'isSlow'>>): Waiting {
  let bytes = 0;
  let largestBytes = 0;
  let slow = 0;
  for (const connection of connections) {
    const waiting = connection.waitingBytes();
    bytes += waiting;
    largestBytes = Math.max(largestBytes, waiting);
    if (connection.isSlow()) slow += 1;
  }
  return { bytes, largestBytes, slow };
}

export function measureNode(
  meter: Meter,
  connections: Iterable<Pick<Connection, 'waitingBytes' | 'isSlow'>>,
  holdings: Iterable<Pick<Holding, 'session'>>,
): void {
  const waiting = waitingOf(connections);
  meter.gauge('homing_outbox_bytes', waiting.bytes);
  meter.gauge('homing_outbox_largest_bytes', waiting.largestBytes);
  meter.gauge('homing_slow_connections', waiting.slow);
  let entries = 0;
  let largest = 0;
  for (const { session } of holdings) {
    const count = session.unacknowledged();
    entries += count;
    largest = Math.max(largest, count);
  }
  meter.gauge('homing_unacknowledged_entries', entries);
  meter.gauge('homing_unacknowledged_largest', largest);
}
