/**
 * Limits on how many commands are on their way at the same time: who waits has no job until its turn.
 *
 * - First a place of the origin session, then one of the tenant: so a session that waits for itself takes no place from others.
 * - Places of a session are given in the scripts that store and end commands, exactly. Places of a tenant are in another slot: one
 *   is taken before the job is added and given back after the end, so it can only be held too long, never by too many.
 * - Whoever stores or ends a command adds the jobs of those whose turn has come. If it dies in between, or a note is lost, the
 *   reconciler asks for each command that waits, at least once a lease.
 */
import type { CommandId } from '../protocol/ids.js';
import { jobOf } from './job.js';
import type { CommandRecord, CommandStore, Left, Log, QueueProducer, TenantPlaces, Turn } from './ports.js';

export interface TurnsPorts {
  readonly store: Pick<CommandStore, 'get' | 'turn'>;
  readonly places: TenantPlaces;
  readonly queue: Pick<QueueProducer, 'add'>;
  readonly log: Log;
}

export interface Turns {
  /** Adds the jobs of these; true when `mine` is one of them: its job is left to the caller. */
  take(turns: readonly Turn[], mine?: CommandId): Promise<boolean>;
  /** The command is over: others take its places. */
  left(commandId: CommandId, left: Left): Promise<void>;
  /** Whether its turn has come, and if not, when to ask again at the latest. */
  ask(commandId: CommandId): Promise<{ readonly ready: true } | { readonly ready: false; readonly waitMs?: number }>;
}

/** A tenant's line, and whose job is left to the caller. */
interface Line {
  readonly tenant: string;
  readonly tenantLimit: number;
  readonly mine?: CommandId | undefined;
}

export function createTurns({ store, places, queue, log }: TurnsPorts): Turns {
  /** Nothing holds it back any more. An exact repeat adds no second job. Returns whether it is the caller's own. */
  async function begin(record: CommandRecord, mine: CommandId | undefined): Promise<boolean> {
    const commandId = record.snapshot.commandId as CommandId;
    if (commandId === mine) return true;
    await queue.add(record.snapshot.pool, jobOf(record, record.snapshot), { priority: record.priority, delayMs: 0 });
    log.debug({ commandId }, 'the turn of a command has come');
    return false;
  }

  /** The command has a place of its tenant; where it needs none, the place goes to others. */
  async function give(line: Line, id: CommandId): Promise<boolean> {
    const { tenant, tenantLimit, mine } = line;
    const { state, held } = await store.turn(id, 'place');
    if (state === 'running') return false;
    const record = state === 'queued' && held === undefined ? await store.get(id) : undefined;
    if (record !== undefined) return begin(record, mine);
    return giveAll(line, await places.free(tenant, id, tenantLimit));
  }

  async function giveAll(line: Line, ids: readonly CommandId[]): Promise<boolean> {
    let isMine = false;
    for (const id of ids) isMine = (await give(line, id)) || isMine;
    return isMine;
  }

  async function takeOne({ commandId, held }: Turn, mine: CommandId | undefined): Promise<boolean> {
    const record = await store.get(commandId);
    if (record?.snapshot.state !== 'queued') return false;
    const { tenant, line } = record;
    if (held === undefined || line?.tenantLimit === undefined) return begin(record, mine);
    const { order, tenantLimit } = line;
    const { given, stale } = await places.take(tenant, commandId, { order, tenantLimit });
    let isMine = await giveAll({ tenant, tenantLimit, mine }, given);
    // Somebody waits, and nobody has looked at these for long: their ends may have been lost.
    for (const id of stale) {
      await places.seen(tenant, id);
      isMine = (await give({ tenant, tenantLimit, mine }, id)) || isMine;
    }
    return isMine;
  }

  async function take(turns: readonly Turn[], mine?: CommandId): Promise<boolean> {
    let isMine = false;
    for (const turn of turns) isMine = (await takeOne(turn, mine)) || isMine;
    return isMine;
  }

  return {
    take,
    async left(commandId, { tenant, tenantLimit, turns }) {
      await take(turns);
      if (tenantLimit === undefined) return;
      await giveAll({ tenant, tenantLimit }, await places.free(tenant, commandId, tenantLimit));
    },
    async ask(commandId) {
      const { state, held, waitMs, turns } = await store.turn(commandId, 'ask');
      if (await take(turns, commandId)) return { ready: true };
      if (state === 'queued' && held === undefined) return { ready: true };
      if (held === 'tenant' && (await take([{ commandId, held }], commandId))) return { ready: true };
      return { ready: false, ...(waitMs > 0 ? { waitMs } : {}) };
    },
  };
}

/** The same store, of which commands take their turns. */
export function withTurns(store: CommandStore, turns: Turns, log: Log): CommandStore {
  const later = (commandId: CommandId, what: Promise<unknown>) =>
    void what.catch((error: unknown) => {
      // Asked for again by the reconciler.
      log.debug({ commandId, error: String(error) }, 'the next turn could not be given yet');
    });

  return {
    ...store,
    async submit(request) {
      const result = await store.submit(request);
      if (result.type !== 'accepted' || result.state !== 'queued') return result;
      const { turns: given = [], ...rest } = result;
      const { commandId } = request;
      const asked: readonly Turn[] =
        result.repeated && result.held === 'tenant' ? [{ commandId, held: 'tenant' }] : given;
      if (asked.length === 0) return rest;
      // Stored is queued: what fails from here on is made good by the reconciler (Q2).
      const mine = await turns.take(asked, commandId).catch((error: unknown) => {
        later(commandId, Promise.reject(error));
        return false;
      });
      if (!mine) return rest;
      const { held: _, ...ready } = rest;
      return ready;
    },
    async append(request) {
      const result = await store.append(request);
      if (result.type === 'appended' && result.left)
        later(request.commandId, turns.left(request.commandId, result.left));
      return result;
    },
    async endWithoutWorker(...args) {
      const result = await store.endWithoutWorker(...args);
      if (result.type === 'ended' && result.left) later(args[0], turns.left(args[0], result.left));
      return result;
    },
  };
}
