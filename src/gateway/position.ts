/** Where a queued command stands in line; only ever a hint, so a queue that does not answer, or not soon, is no failure. */
import type { Lines, Log, Queued } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { CommandId } from '../protocol/ids.js';

/** Nobody waits longer for a hint. */
const WITHIN_MS = 300;

export interface PositionPorts {
  readonly lines: Lines;
  readonly log: Log;
}

type Positioned<T> = T & { readonly position?: number };
/** What is known of a command where it is shown. */
type Shown = Omit<Queued, 'commandId' | 'tenant'> & { readonly commandId: string; readonly state: string };

export async function withPosition<T extends Shown>(
  { lines, log }: PositionPorts,
  tenant: string,
  shown: T,
): Promise<Positioned<T>> {
  if (shown.state !== 'queued') return shown;
  const { pool, originSessionId, held } = shown;
  const commandId = shown.commandId as CommandId;
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, WITHIN_MS, undefined);
  });
  try {
    const asked = lines.position({ commandId, tenant, pool, originSessionId, held });
    const position = await Promise.race([asked, tooLate]);
    return position === undefined ? shown : { ...shown, position };
  } catch (error) {
    log.debug({ commandId, fault: messageOf(error) }, 'no position');
    return shown;
  } finally {
    clearTimeout(timer);
  }
}

/** The same for a page of them: asked for together. */
export const withPositions = <T extends Shown>(
  ports: PositionPorts,
  tenant: string,
  shown: readonly T[],
): Promise<Positioned<T>[]> => Promise.all(shown.map((one) => withPosition(ports, tenant, one)));
