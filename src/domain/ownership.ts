/**
 * The rules of ownership and sessions (OW, SE1–SE4, DE6, CO1–CO3) as a model in plain memory: what the scripts in Redis
 * must decide, written for reading. One model is one conversation. No clock, no chance: activity is an order, a grace
 * is over when the caller says so. A property test runs random histories on the model and on the scripts and compares.
 */
import type { OwnerWhy } from '../protocol/methods.js';

export interface SessionFacts {
  readonly id: string;
  readonly principal: string;
  readonly hash: string;
  state: 'live' | 'away' | 'closing' | 'closed';
  /** '' while no connection holds it. */
  attachment: string;
  /** Superseded ids, newest first, the last 8. */
  superseded: string[];
  generation: number;
  nonce: string;
  node: string;
  rev: number;
  /** Order of user activity; higher is later. */
  active: number;
  readonly owned: Set<string>;
}

export interface CommandFacts {
  readonly id: string;
  readonly principal: string;
  readonly specHash: string;
  readonly policy: 'adopt' | 'park' | 'kill';
  /** '' without one. */
  readonly origin: string;
  readonly originClosed: boolean;
  owner: string | null;
  /** Where it waits while nobody owns it. */
  aside: 'parked' | 'kept' | null;
  why: OwnerWhy | '';
  state: 'queued' | 'running' | 'ended';
  claim: string;
  head: number;
  acked: number;
  killed: boolean;
}

export type Origin =
  | { readonly type: 'connection'; readonly session: string; readonly attachment: string }
  | { readonly type: 'named'; readonly session: string }
  | { readonly type: 'none' }
  | { readonly type: 'inherited'; readonly parent: string };

const SUPERSEDED_KEPT = 8;

export function createOwnershipModel() {
  const sessions = new Map<string, SessionFacts>();
  const commands = new Map<string, CommandFacts>();
  let activity = 0;

  const isOpen = (session: SessionFacts | undefined): session is SessionFacts =>
    session?.state === 'live' || session?.state === 'away';

  /** OW2: latest user activity among the open sessions of the principal, live before away. */
  function heirOf(principal: string): SessionFacts | undefined {
    const open = [...sessions.values()].filter((session) => session.principal === principal && isOpen(session));
    const rank = (session: SessionFacts) => (session.state === 'live' ? 1 : 0);
    return open.sort((a, b) => rank(b) - rank(a) || b.active - a.active)[0];
  }

  function give(command: CommandFacts, session: SessionFacts, why: OwnerWhy | ''): void {
    command.owner = session.id;
    command.aside = null;
    command.why = why;
    session.owned.add(command.id);
  }

  function setAside(command: CommandFacts, where: 'parked' | 'kept'): void {
    command.owner = null;
    command.aside = where;
    command.why = '';
  }

  function supersede(session: SessionFacts): void {
    if (session.attachment !== '') session.superseded.unshift(session.attachment);
    session.superseded.length = Math.min(session.superseded.length, SUPERSEDED_KEPT);
  }

  return {
    sessions: sessions as ReadonlyMap<string, SessionFacts>,
    commands: commands as ReadonlyMap<string, CommandFacts>,
    heirOf: (principal: string) => heirOf(principal)?.id ?? null,

    open(id: string, principal: string, hash: string, attachment: string, nonce: string, node: string) {
      const known = sessions.get(id);
      if (known !== undefined) {
        return known.hash === hash && known.principal === principal
          ? { type: 'opened' as const, generation: known.generation, rev: known.rev }
          : { type: 'refused' as const };
      }
      activity += 1;
      const session: SessionFacts = {
        id,
        principal,
        hash,
        attachment,
        nonce,
        node,
        state: 'live',
        superseded: [],
        generation: 1,
        rev: 0,
        active: activity,
        owned: new Set(),
      };
      sessions.set(id, session);
      return { type: 'opened' as const, generation: 1, rev: 0 };
    },

    /** SE1, SE2, SE4, OW6. */
    attach(
      id: string,
      principal: string,
      hash: string,
      attachment: string,
      nonce: string,
      node: string,
      probed: string,
    ) {
      const session = sessions.get(id);
      if (session === undefined || session.hash !== hash || session.principal !== principal)
        return { type: 'denied' as const };
      if (!isOpen(session)) return { type: 'gone' as const };
      const answer = () => ({ type: 'attached' as const, generation: session.generation, rev: session.rev });
      if (session.attachment === attachment) return answer();
      if (session.superseded.includes(attachment)) return { type: 'superseded' as const };
      const otherPage = nonce !== '' && session.nonce !== '' && nonce !== session.nonce;
      if (session.state === 'live' && otherPage && probed !== session.attachment) {
        return { type: 'probe' as const, nodeId: session.node, attachmentId: session.attachment };
      }
      supersede(session);
      Object.assign(session, { attachment, nonce, node, state: 'live', generation: session.generation + 1 });
      return answer();
    },

    /** OW7. */
    detach(id: string, attachment: string): void {
      const session = sessions.get(id);
      if (session?.state !== 'live' || session.attachment !== attachment) return;
      supersede(session);
      session.state = 'away';
      session.attachment = '';
    },

    touch(id: string, attachment: string): void {
      const session = sessions.get(id);
      if (session?.state !== 'live' || session.attachment !== attachment) return;
      activity += 1;
      session.active = activity;
    },

    /** Whether a close may begin or go on (OW6, S3). */
    beginClose(id: string, condition: 'grace' | 'continue' | { readonly attachment: string }): boolean {
      const session = sessions.get(id);
      if (session === undefined) return false;
      if (session.state === 'closing' || session.state === 'closed') return true;
      if (condition === 'continue') return false;
      if (
        condition === 'grace'
          ? session.state !== 'away'
          : session.state !== 'live' || session.attachment !== condition.attachment
      ) {
        return false;
      }
      session.state = 'closing';
      session.attachment = '';
      return true;
    },

    /** One batch of a close: these of its commands move now. `heir` was fixed when the close began, if it is still open. */
    moveOnClose(id: string, moving: readonly string[], heirId: string | null): { killed: string[] } {
      const session = sessions.get(id)!;
      const heir = heirId === null ? undefined : sessions.get(heirId);
      const killed: string[] = [];
      let given = 0;
      for (const commandId of moving) {
        const command = commands.get(commandId)!;
        session.owned.delete(commandId);
        if (command.policy === 'adopt' && heir !== undefined) {
          give(command, heir, 'owner_closed');
          given += 1;
        } else {
          setAside(command, command.policy === 'adopt' ? 'parked' : 'kept');
          if (command.policy === 'kill' && command.state !== 'ended') killed.push(commandId);
        }
      }
      if (given > 0) heir!.rev += 1;
      if (session.owned.size === 0) session.state = 'closed';
      return { killed };
    },

    /** OW4. */
    adoptParked(id: string): number {
      const session = sessions.get(id);
      if (!isOpen(session)) return 0;
      const parked = [...commands.values()].filter((c) => c.aside === 'parked' && c.principal === session.principal);
      for (const command of parked) give(command, session, 'unparked');
      if (parked.length > 0) session.rev += 1;
      return parked.length;
    },

    adopt(commandId: string, id: string, attachment: string) {
      const command = commands.get(commandId);
      const session = sessions.get(id);
      if (command === undefined || session === undefined || command.principal !== session.principal)
        return 'unknown' as const;
      if (!isOpen(session) || session.attachment !== attachment) return 'superseded' as const;
      if (command.owner === id) return 'adopted' as const;
      if (command.owner !== null) return 'not_parked' as const;
      give(command, session, 'adopted');
      session.rev += 1;
      activity += 1;
      session.active = activity;
      return 'adopted' as const;
    },

    /** CO1, OW1, OW3, OW5, OW10, OW11. */
    submit(id: string, principal: string, specHash: string, policy: CommandFacts['policy'], origin: Origin) {
      const known = commands.get(id);
      if (known !== undefined) {
        return known.specHash === specHash
          ? { type: 'accepted' as const, owner: known.owner, repeated: true }
          : { type: 'conflict' as const };
      }
      let owner: SessionFacts | undefined;
      let why: OwnerWhy | '' = '';
      let originClosed = false;
      let aside: CommandFacts['aside'] = null;
      let originId = 'session' in origin ? origin.session : '';
      if (origin.type === 'inherited') {
        const parent = commands.get(origin.parent);
        if (parent?.principal !== principal || parent.state !== 'running') return { type: 'origin_unknown' as const };
        originId = parent.origin;
        const first = sessions.get(originId);
        originClosed = first !== undefined && !isOpen(first);
        owner = sessions.get(parent.owner ?? '');
        aside = parent.aside;
        why = 'inherited';
      } else if (origin.type === 'none') {
        owner = heirOf(principal);
        why = 'no_origin';
      } else {
        const session = sessions.get(origin.session);
        if (session === undefined || session.principal !== principal) return { type: 'origin_unknown' as const };
        if (origin.type === 'connection') {
          if (session.state !== 'live' || session.attachment !== origin.attachment)
            return { type: 'superseded' as const };
          activity += 1;
          session.active = activity;
          owner = session;
        } else if (isOpen(session)) {
          owner = session;
          why = 'inherited';
        } else {
          originClosed = true;
          owner = policy === 'adopt' ? heirOf(principal) : undefined;
          why = 'origin_closed';
        }
      }
      const killed = originClosed && policy === 'kill' && origin.type !== 'inherited';
      const command: CommandFacts = {
        id,
        principal,
        specHash,
        policy,
        origin: originId,
        originClosed,
        owner: null,
        aside: null,
        why: '',
        state: 'queued',
        claim: '',
        head: 0,
        acked: 0,
        killed,
      };
      commands.set(id, command);
      if (owner !== undefined) {
        give(command, owner, why);
        owner.rev += 1;
      } else {
        setAside(command, aside ?? (originClosed && policy !== 'adopt' ? 'kept' : 'parked'));
      }
      return { type: 'accepted' as const, owner: command.owner, repeated: false };
    },

    /** CO2. */
    claim(id: string, claim: string) {
      const command = commands.get(id);
      if (command === undefined) return 'missing' as const;
      if (command.state === 'queued') {
        command.state = 'running';
        command.claim = claim;
        return 'claimed' as const;
      }
      return command.state === 'running' && command.claim === claim ? ('claimed' as const) : command.state;
    },

    /** DE1: entries fromSeq…toSeq, the last one `ended` when `end`. */
    append(id: string, claim: string, owner: string | null, fromSeq: number, toSeq: number, end: boolean) {
      const command = commands.get(id);
      if (command === undefined || command.claim !== claim) return { type: 'claim_lost' as const };
      if (command.head >= toSeq) return { type: 'appended' as const, headSeq: command.head };
      if (command.state !== 'running') return { type: 'claim_lost' as const };
      if (command.owner !== owner) return { type: 'owner' as const, ownerSessionId: command.owner };
      if (command.head + 1 !== fromSeq) return { type: 'behind' as const, headSeq: command.head };
      command.head = toSeq;
      if (end) command.state = 'ended';
      return { type: 'appended' as const, headSeq: toSeq };
    },

    /** CO3. */
    endWithoutWorker(id: string, expectedClaim: string, claim: string) {
      const command = commands.get(id);
      if (command === undefined || command.state === 'ended' || command.claim !== expectedClaim)
        return 'refused' as const;
      command.claim = claim;
      command.head += 1;
      command.state = 'ended';
      return 'ended' as const;
    },

    /** DE6. */
    ack(id: string, sessionId: string, attachment: string, seq: number): void {
      const command = commands.get(id);
      if (command === undefined || command.owner !== sessionId) return;
      if (sessions.get(sessionId)?.attachment !== attachment) return;
      if (seq > command.head || seq <= command.acked) return;
      command.acked = seq;
      if (command.state === 'ended' && seq === command.head) sessions.get(sessionId)!.owned.delete(id);
    },

    /** OW12, IS2: a write to a command that has no stdin: who may not is told nothing else. */
    write(id: string, sessionId: string, attachment: string) {
      const command = commands.get(id);
      if (command === undefined) return 'unknown' as const;
      const session = sessions.get(sessionId);
      if (command.owner !== sessionId) return 'not_owner' as const;
      if (session?.state !== 'live' || session.attachment !== attachment) return 'not_owner' as const;
      activity += 1;
      session.active = activity;
      return command.state === 'ended' ? ('ended' as const) : ('closed' as const);
    },

    /** DE4, IS2: what an owner's read after a cursor gives: the seqs, or refused. */
    read(
      id: string,
      sessionId: string,
      attachment: string,
      after: number,
    ): readonly number[] | 'not_owner' | 'unknown' {
      const command = commands.get(id);
      if (command === undefined) return 'unknown';
      const session = sessions.get(sessionId);
      if (command.owner !== sessionId) return 'not_owner';
      if (session?.state !== 'live' || session.attachment !== attachment) return 'not_owner';
      return Array.from({ length: Math.max(0, command.head - after) }, (_, index) => after + index + 1);
    },
  };
}

export type OwnershipModel = ReturnType<typeof createOwnershipModel>;
