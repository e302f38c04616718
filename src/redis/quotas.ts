/**
 * The port Quotas on Redis. What a tenant has is counted in a slot of its own, so a count and the record it is about can not change
 * together: a member comes before its record, and goes when somebody at the limit finds it gone. So never more are let in than
 * the limit says, and nobody is refused while there is room, but for what was begun in the last seconds and failed.
 *
 * Bounds: as many members as the limit; a refused request looks at 1,000 records at most.
 */
import type { Cluster, Redis } from 'ioredis';
import type { Quotas } from '../domain/quotas.js';
import { type CommandId, parseSessionId, type SessionId } from '../protocol/ids.js';
import type { Keys } from './keys.js';
import { readFields } from './pipelines.js';
import type { Scripts } from './scripts.js';

const PAGE = 200;
const MAX_PAGES = 5;
/** A record may be about to be written; after this it is not. */
const YOUNG_MS = 5_000;

const OPEN = new Set(['live', 'away']);
const QUEUED = new Set(['queued']);

export function createQuotas(options: {
  readonly redis: Redis | Cluster;
  readonly keys: Keys;
  readonly scripts: Scripts;
  readonly retentionMs: number;
}): Quotas {
  const { redis, keys, scripts, retentionMs } = options;

  async function take(
    key: string,
    member: string,
    most: number,
    counts: ReadonlySet<string>,
    keyOf: (member: string) => string,
  ): Promise<boolean> {
    for (let page = 0; ; page += 1) {
      const [taken, now = 0, ...flat] = (await scripts.run('quota', [key], ['take', member, most, PAGE])) as [
        number,
        number?,
        ...string[],
      ];
      if (taken === 1) return true;
      if (page === MAX_PAGES) return false;
      const members = flat.filter((_, i) => i % 2 === 0);
      const states = await readFields(redis, members.map(keyOf), ['state']);
      const gone: string[] = [];
      const there: string[] = [];
      for (const [i, id] of members.entries()) {
        const state = states[i]?.[0] ?? undefined;
        const isYoung = Number(flat[2 * i + 1]) > now - YOUNG_MS;
        const stays = state === undefined ? isYoung : counts.has(state);
        (stays ? there : gone).push(id);
      }
      await scripts.run('quota', [key], ['settle', gone.length, ...gone, ...there]);
      if (gone.length === 0 && members.length < PAGE) return false;
    }
  }

  return {
    roomForSession: (tenant, sessionId, most) =>
      take(keys.tenantSessions(tenant), sessionId, most, OPEN, (id) => keys.session(id as SessionId)),
    roomForCommand: (whose, commandId, most) =>
      take(
        'tenant' in whose ? keys.tenantQueued(whose.tenant) : keys.queued(whose.session),
        commandId,
        most,
        QUEUED,
        (id) => keys.command(id as CommandId),
      ),

    async retain(commandId, most) {
      const [record] = await readFields(redis, [keys.command(commandId)], ['tenant', 'origin', 'fb', 'lb']);
      const [tenant, origin, first, last] = record ?? [];
      if (tenant === undefined || tenant === null) return 0;
      const bytes = Number(first ?? 0) + Number(last ?? 0);
      const count = async (counters: string[], mostBytes: number, gone: readonly CommandId[]) =>
        (await scripts.run('retain', counters, [commandId, bytes, mostBytes, retentionMs, ...gone])) as CommandId[];
      // What the session lets go of is no longer its tenant's either. The other way round needs no word: what the tenant lets go of
      // is the oldest of its session as well, so the session's count drops it before it costs another log.
      const session = most.retainedBytesPerSession === 0 ? undefined : parseSessionId(origin);
      const gone = session ? await count(keys.retained(session), most.retainedBytesPerSession, []) : [];
      if (most.retainedBytes > 0) gone.push(...(await count(keys.tenantRetained(tenant), most.retainedBytes, gone)));
      for (const id of gone) await scripts.run('trim-log', [keys.command(id), keys.first(id), keys.last(id)], []);
      return gone.length;
    },
  };
}
