/** Where a queued command stands in its pool; only ever a hint, so a queue that does not answer is no failure. */
import type { Log, QueueProducer } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { CommandId } from '../protocol/ids.js';

export async function withPosition<T extends { readonly state: string }>(
  { queue, log }: { readonly queue: Pick<QueueProducer, 'position'>; readonly log: Log },
  commandId: CommandId,
  pool: string,
  shown: T,
): Promise<T & { readonly position?: number }> {
  if (shown.state !== 'queued') return shown;
  try {
    const position = await queue.position(pool, commandId);
    return position === undefined ? shown : { ...shown, position };
  } catch (error) {
    log.debug({ commandId, fault: messageOf(error) }, 'no position');
    return shown;
  }
}
