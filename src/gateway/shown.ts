/** Snapshots as doors show them: with their place in line, and without an owner that is closed. */
import type { Lines, Log, SessionDirectory } from '../domain/ports.js';
import { parseSessionId } from '../protocol/ids.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import { withPositions } from './position.js';

export interface ShownPorts {
  readonly lines: Lines;
  readonly sessions: Pick<SessionDirectory, 'check'>;
  readonly log: Log;
}

/** @throws AppError REDIS_UNAVAILABLE */
export async function showAll<T extends CommandSnapshot>(
  ports: ShownPorts,
  tenant: string,
  snapshots: readonly T[],
): Promise<T[]> {
  const [positioned, closed] = await Promise.all([
    withPositions(ports, tenant, snapshots),
    closedAmong(ports.sessions, snapshots.filter(isSettled)),
  ]);
  return positioned.map((snapshot) =>
    isSettled(snapshot) && closed.has(snapshot.ownerSessionId) ? withoutOwner(snapshot) : snapshot,
  );
}

export async function show<T extends CommandSnapshot>(ports: ShownPorts, tenant: string, snapshot: T): Promise<T> {
  const [shown = snapshot] = await showAll(ports, tenant, [snapshot]);
  return shown;
}

/**
 * Over, and everything of it acknowledged: such a command is with nobody's close any more, so its record keeps the name of who
 * had it last, for operators. A closed session owns nothing, though (OW6).
 */
const isSettled = (snapshot: CommandSnapshot): boolean =>
  snapshot.state === 'ended' && snapshot.ackedSeq >= snapshot.headSeq && snapshot.ownerSessionId !== null;

async function closedAmong(
  sessions: ShownPorts['sessions'],
  settled: readonly CommandSnapshot[],
): Promise<ReadonlySet<string | null>> {
  const owners = new Set(settled.map(({ ownerSessionId }) => ownerSessionId));
  const closed = new Set<string | null>();
  await Promise.all(
    [...owners].map(async (owner) => {
      const sessionId = parseSessionId(owner ?? '');
      if (sessionId === undefined) return;
      const { state } = await sessions.check(sessionId, []);
      // Its record goes some time after its close.
      if (state === 'closed' || state === 'closing' || state === 'missing') closed.add(owner);
    }),
  );
  return closed;
}

function withoutOwner<T extends CommandSnapshot>({ why: _, ...snapshot }: T): T {
  return { ...snapshot, ownerSessionId: null } as T;
}
