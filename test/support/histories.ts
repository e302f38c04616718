/**
 * Random histories on the model (domain/ownership.ts) and on the real scripts in Redis: after every step both must give
 * the same answer and hold the same state.
 */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect } from 'vitest';
import { createOwnershipModel, type OwnershipModel } from '../../src/domain/ownership.js';
import type { Place } from '../../src/domain/ports.js';
import { serializeEntry } from '../../src/protocol/entries.js';
import {
  type AttachmentId,
  base32,
  type ClaimId,
  type CommandId,
  makeCommandId,
  makeSessionId,
  type NodeId,
  type SessionId,
} from '../../src/protocol/ids.js';
import { commandSpec } from '../../src/protocol/methods.js';
import { newWorkerId, outputEntry, placeOf, type Stores } from './stores.js';

const PRINCIPALS = ['ann', 'bob'] as const;
const POLICIES = ['adopt', 'adopt', 'park', 'kill'] as const;

/** Deterministic ids, so that a history means the same on every run. */
const bytesOf = (name: string) => createHash('sha256').update(name).digest();
const text26 = (name: string) => base32(bytesOf(name).subarray(0, 16));

const index = fc.nat({ max: 5 });
const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('open' as const), who: fc.nat({ max: 1 }), repeat: fc.boolean() }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('attach' as const),
      session: index,
      token: fc.constantFrom('right' as const, 'right' as const, 'right' as const, 'wrong' as const),
      asOther: fc.constantFrom(false, false, false, true),
      page: fc.nat({ max: 2 }),
      probed: fc.boolean(),
      /** 0: a fresh attachment, else a repeat of one used before. */
      reuse: fc.nat({ max: 3 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('detach' as const),
      session: index,
      stale: fc.constantFrom(false, false, true),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('touch' as const), session: index, stale: fc.boolean() }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('close' as const),
      session: index,
      condition: fc.constantFrom('attachment' as const, 'grace' as const, 'continue' as const),
      /** Batches before it is interrupted; 9: to the end. */
      batches: fc.constantFrom(1, 2, 9),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('submit' as const),
      who: fc.nat({ max: 1 }),
      session: index,
      origin: fc.constantFrom(
        'connection' as const,
        'connection' as const,
        'named' as const,
        'none' as const,
        'inherited' as const,
      ),
      parent: index,
      stale: fc.constantFrom(false, false, false, true),
      policy: fc.constantFrom(...POLICIES),
      repeat: fc.nat({ max: 4 }),
      otherBody: fc.boolean(),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('claim' as const), command: index, attempt: fc.nat({ max: 2 }) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('append' as const),
      command: index,
      attempt: fc.constantFrom(0, 0, 0, 1),
      count: fc.integer({ min: 1, max: 3 }),
      /** 0: at head + 1; below: a repeat; above: a hole. */
      shift: fc.constantFrom(0, 0, 0, 0, -1, 1),
      owner: fc.constantFrom('right' as const, 'right' as const, 'none' as const),
      end: fc.constantFrom(false, false, false, true),
      twice: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('lose' as const),
      command: index,
      right: fc.constantFrom(true, true, false),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('ack' as const),
      command: index,
      session: index,
      byOwner: fc.boolean(),
      stale: fc.constantFrom(false, false, true),
      seq: fc.nat({ max: 8 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('adopt' as const),
      command: index,
      session: index,
      stale: fc.constantFrom(false, false, true),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('adoptParked' as const), session: index }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('write' as const),
      command: index,
      session: index,
      byOwner: fc.boolean(),
      stale: fc.constantFrom(false, false, true),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('read' as const),
      command: index,
      session: index,
      byOwner: fc.boolean(),
      stale: fc.constantFrom(false, false, true),
      after: fc.nat({ max: 6 }),
    }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** One history on both sides. */
class Run {
  readonly model: OwnershipModel = createOwnershipModel();
  readonly sessions: string[] = [];
  readonly commands: string[] = [];
  readonly attachments = new Map<string, string[]>();
  /** Closes under way: the heir each has chosen. */
  readonly heirs = new Map<string, string | null>();
  made = 0;

  constructor(
    readonly stores: Stores,
    readonly place: Place,
  ) {}

  placeFor(who: number): Place {
    return { ...this.place, principal: PRINCIPALS[who] ?? 'ann' };
  }
  fresh(kind: string): string {
    this.made += 1;
    return text26(`${this.place.conversation}/${kind}/${this.made}`);
  }
  session(n: number) {
    const id = this.sessions[n % Math.max(1, this.sessions.length)];
    return id === undefined ? undefined : this.model.sessions.get(id);
  }
  command(n: number) {
    const id = this.commands[n % Math.max(1, this.commands.length)];
    return id === undefined ? undefined : this.model.commands.get(id);
  }

  async apply(step: Step): Promise<void> {
    const { model } = this;
    switch (step.do) {
      case 'open': {
        const again = step.repeat ? this.session(0) : undefined;
        const id = again?.id ?? makeSessionId(this.place.tag, bytesOf(this.fresh('session')));
        const principal = again?.principal ?? PRINCIPALS[step.who] ?? 'ann';
        const attachment = again === undefined ? this.fresh('attachment') : (this.attachments.get(id)?.[0] ?? '');
        const expected = model.open(id, principal, `hash-${id}`, attachment, 'page-0', 'node_a');
        const got = await this.stores.sessions.open({
          ...this.place,
          principal,
          sessionId: id as SessionId,
          attachmentId: attachment as AttachmentId,
          nodeId: 'node_a' as NodeId,
          resumeTokenHash: `hash-${id}`,
          pageNonce: 'page-0',
        });
        expect(got).toEqual(expected);
        if (again === undefined) {
          this.sessions.push(id);
          this.attachments.set(id, [attachment]);
        }
        break;
      }
      case 'attach': {
        const session = this.session(step.session);
        if (session === undefined) return;
        const used = this.attachments.get(session.id) ?? [];
        const attachment =
          step.reuse === 0 ? this.fresh('attachment') : (used[used.length - step.reuse] ?? this.fresh('attachment'));
        const principal = step.asOther ? PRINCIPALS[session.principal === 'ann' ? 1 : 0] : session.principal;
        const hash = step.token === 'right' ? session.hash : 'wrong';
        const nonce = step.page === 0 ? '' : `page-${step.page}`;
        const probed = step.probed ? session.attachment : '';
        const expected = model.attach(session.id, principal, hash, attachment, nonce, 'node_b', probed);
        const got = await this.stores.sessions.attach({
          sessionId: session.id as SessionId,
          attachmentId: attachment as AttachmentId,
          nodeId: 'node_b' as NodeId,
          principal,
          resumeTokenHash: hash,
          pageNonce: nonce,
          probedAttachmentId: probed as AttachmentId | '',
        });
        expect(got).toEqual(expected);
        if (expected.type === 'attached' && !used.includes(attachment)) used.push(attachment);
        break;
      }
      case 'detach': {
        const session = this.session(step.session);
        if (session === undefined) return;
        const attachment = step.stale || session.attachment === '' ? 'stale' : session.attachment;
        model.detach(session.id, attachment);
        await this.stores.sessions.detach(session.id as SessionId, attachment as AttachmentId);
        break;
      }
      case 'touch': {
        const session = this.session(step.session);
        if (session === undefined) return;
        const attachment = step.stale || session.attachment === '' ? 'stale' : session.attachment;
        model.touch(session.id, attachment);
        await this.stores.sessions.touch(session.id as SessionId, attachment as AttachmentId);
        break;
      }
      case 'close':
        await this.close(step);
        break;
      case 'submit':
        await this.submit(step);
        break;
      case 'claim': {
        const command = this.command(step.command);
        if (command === undefined) return;
        const claim = `${command.id}-${step.attempt}`;
        const expected = model.claim(command.id, claim);
        const got = await this.stores.commands.claim(command.id as CommandId, claim as ClaimId, newWorkerId(), 'group');
        expect(got.type === 'claimed' ? 'claimed' : got.state).toBe(expected);
        if (got.type === 'claimed') expect(got.kill !== undefined).toBe(command.killed);
        break;
      }
      case 'append': {
        const command = this.command(step.command);
        if (command === undefined) return;
        const held = command.claim !== '' && !command.claim.startsWith('lost-');
        const claim = step.attempt === 0 && held ? command.claim : 'other';
        const owner = step.owner === 'right' ? command.owner : null;
        const fromSeq = Math.max(1, command.head + 1 + step.shift);
        const toSeq = fromSeq + step.count - 1;
        const outcome = {
          reason: 'exited',
          code: 0,
          signal: null,
          durationMs: 1,
          outputBytes: 0,
          tail: '',
          leftovers: 0,
        } as const;
        const entries = Array.from({ length: step.count }, (_, i) =>
          outputEntry(command.id as CommandId, fromSeq + i, 'x', fromSeq + i - 1),
        );
        if (step.end) {
          const ended = serializeEntry({
            type: 'ended',
            commandId: command.id as CommandId,
            seq: toSeq,
            ts: 1,
            outcome,
          });
          entries[entries.length - 1] = { letter: 'e', fromSeq: toSeq, seq: toSeq, endOffset: toSeq - 1, text: ended };
        }
        for (let times = 0; times < (step.twice ? 2 : 1); times += 1) {
          const expected = model.append(command.id, claim, owner, fromSeq, toSeq, step.end);
          const got = await this.stores.commands.append({
            commandId: command.id as CommandId,
            claimId: claim as ClaimId,
            ownerSessionId: owner as SessionId | null,
            entries,
            ...(step.end ? { outcome } : {}),
          });
          expect(got).toEqual(expected);
        }
        break;
      }
      case 'lose': {
        const command = this.command(step.command);
        if (command === undefined) return;
        const expectedClaim = step.right ? command.claim : 'other';
        const expected = model.endWithoutWorker(command.id, expectedClaim, `lost-${command.id}`);
        const got = await this.stores.commands.endWithoutWorker(
          command.id as CommandId,
          expectedClaim as ClaimId | '',
          'lost',
          'gone',
        );
        expect(got.type).toBe(expected);
        break;
      }
      case 'ack': {
        const command = this.command(step.command);
        const session = step.byOwner ? this.model.sessions.get(command?.owner ?? '') : this.session(step.session);
        if (command === undefined || session === undefined) return;
        const attachment = step.stale || session.attachment === '' ? 'stale' : session.attachment;
        model.ack(command.id, session.id, attachment, step.seq);
        await this.stores.commands.ack(
          session.id as SessionId,
          attachment as AttachmentId,
          new Map([[command.id as CommandId, step.seq]]),
        );
        break;
      }
      case 'adopt': {
        const [command, session] = [this.command(step.command), this.session(step.session)];
        if (command === undefined || session === undefined || session.attachment === '') return;
        const attachment = step.stale ? 'stale' : session.attachment;
        const expected = model.adopt(command.id, session.id, attachment);
        const got = await this.stores.commands.adopt(
          command.id as CommandId,
          session.id as SessionId,
          attachment as AttachmentId,
        );
        expect(got.type).toBe(expected);
        break;
      }
      case 'adoptParked': {
        const session = this.session(step.session);
        if (session === undefined) return;
        const expected = model.adoptParked(session.id);
        expect(await this.stores.sessions.adoptParked(session.id as SessionId)).toBe(expected);
        break;
      }
      case 'write': {
        const command = this.command(step.command);
        const session = step.byOwner ? this.model.sessions.get(command?.owner ?? '') : this.session(step.session);
        if (command === undefined || session === undefined) return;
        const attachment = step.stale || session.attachment === '' ? 'stale' : session.attachment;
        const expected = model.write(command.id, session.id, attachment);
        const got = await this.stores.commands.write({
          commandId: command.id as CommandId,
          writer: {
            type: 'owner',
            sessionId: session.id as SessionId,
            attachmentId: attachment as AttachmentId,
          },
          offset: 0,
          bytes: new Uint8Array([1]),
          eof: false,
        });
        expect(got.type).toBe(expected);
        break;
      }
      case 'read': {
        const command = this.command(step.command);
        const session = step.byOwner ? this.model.sessions.get(command?.owner ?? '') : this.session(step.session);
        if (command === undefined || session === undefined) return;
        const attachment = step.stale || session.attachment === '' ? 'stale' : session.attachment;
        const expected = model.read(command.id, session.id, attachment, step.after);
        const reader = {
          type: 'owner',
          sessionId: session.id as SessionId,
          attachmentId: attachment as AttachmentId,
        } as const;
        const got = await this.stores.commands.readLog(command.id as CommandId, reader, step.after, 1e6);
        expect(got.type === 'page' ? got.entries.map((entry) => entry.seq) : got.type).toEqual(expected);
        break;
      }
    }
  }

  /** Two commands a batch, as a close that is cut off anywhere; what moved is read from Redis and must be legal. */
  async close(step: Extract<Step, { do: 'close' }>): Promise<void> {
    const session = this.session(step.session);
    if (session === undefined) return;
    const { keys, scripts } = this.stores;
    let condition: string = step.condition;
    for (let batch = 0; batch < step.batches; batch += 1) {
      const wasClosed = session.state === 'closed';
      const attachment = session.attachment || 'stale';
      const allowed = this.model.beginClose(
        session.id,
        condition === 'attachment' ? { attachment } : (condition as 'grace' | 'continue'),
      );
      const heirState = this.model.sessions.get(this.heirs.get(session.id) ?? '')?.state;
      // It is chosen when a close begins, and not by one that is refused.
      if (allowed && heirState !== 'live' && heirState !== 'away')
        this.heirs.set(session.id, this.model.heirOf(session.principal));
      const answer = (await scripts.run(
        'close',
        [keys.session(session.id as SessionId), keys.owned(session.id as SessionId)],
        [keys.tagPrefix(this.place.tag), session.id, condition, attachment, 2, 60_000, 0],
      )) as [string, number, ...string[]];
      expect(answer[0] !== 'refused').toBe(allowed);
      if (!allowed || wasClosed) return;
      const left = new Set(await this.stores.redis.smembers(keys.owned(session.id as SessionId)));
      const moved = [...session.owned].filter((id) => !left.has(id));
      expect(moved.length).toBe(Math.min(2, session.owned.size));
      const { killed } = this.model.moveOnClose(session.id, moved, this.heirs.get(session.id) ?? null);
      expect(answer.slice(2).sort()).toEqual([...killed].sort());
      expect(answer[0]).toBe(session.state === 'closed' ? 'closed' : 'more');
      if (answer[0] === 'closed') return;
      condition = 'continue';
    }
  }

  async submit(step: Extract<Step, { do: 'submit' }>): Promise<void> {
    const session = this.session(step.session);
    const known = step.repeat === 0 ? this.command(step.session) : undefined;
    const principal =
      step.origin === 'connection' && session !== undefined ? session.principal : (PRINCIPALS[step.who] ?? 'ann');
    if (known !== undefined && known.principal !== principal) return;
    const id = known?.id ?? makeCommandId(this.place.tag, bytesOf(this.fresh('command')));
    const policy = known?.policy ?? step.policy;
    const specHash = step.otherBody && known !== undefined ? 'other' : (known?.specHash ?? 'body');
    const attachment = session === undefined || step.stale || session.attachment === '' ? 'stale' : session.attachment;
    const parent = this.command(step.parent);
    if (step.origin === 'inherited' ? parent === undefined : step.origin !== 'none' && session === undefined) return;
    const origin =
      step.origin === 'none'
        ? ({ type: 'none' } as const)
        : step.origin === 'inherited'
          ? ({ type: 'inherited', parentCommandId: parent!.id as CommandId } as const)
          : step.origin === 'named'
            ? ({ type: 'named', sessionId: session!.id as SessionId } as const)
            : ({
                type: 'connection',
                sessionId: session!.id as SessionId,
                attachmentId: attachment as AttachmentId,
              } as const);
    const expected = this.model.submit(
      id,
      principal,
      specHash,
      policy,
      step.origin === 'none'
        ? { type: 'none' }
        : step.origin === 'inherited'
          ? { type: 'inherited', parent: parent!.id }
          : { type: step.origin, session: session!.id, attachment },
    );
    const got = await this.stores.commands.submit({
      ...this.place,
      principal,
      commandId: id as CommandId,
      spec: commandSpec.parse({ argv: ['true'], onOwnerGone: policy }),
      specHash,
      origin,
    });
    expect(got.type).toBe(expected.type);
    if (got.type === 'accepted' && expected.type === 'accepted') {
      expect([got.ownerSessionId, got.repeated]).toEqual([expected.owner, expected.repeated]);
      if (!expected.repeated) this.commands.push(id);
    }
  }

  /** Everything the model holds, as Redis holds it. */
  async compare(): Promise<void> {
    const { redis: client, keys } = this.stores;
    const held = await Promise.all([
      ...[...this.model.sessions.values()].map(async (session) => {
        const [fields, owned] = await Promise.all([
          client.hmget(keys.session(session.id as SessionId), 'state', 'att', 'gen', 'rev', 'old', 'nonce', 'node'),
          client.smembers(keys.owned(session.id as SessionId)),
        ]);
        const { state, attachment, generation, rev, superseded, nonce, node } = session;
        expect([fields, owned.sort()], `session ${session.id}`).toEqual([
          [state, attachment, String(generation), String(rev), superseded.join(' '), nonce, node],
          [...session.owned].sort(),
        ]);
      }),
      ...[...this.model.commands.values()].map(async (command) => {
        const fields = await client.hmget(
          keys.command(command.id as CommandId),
          'owner',
          'why',
          'state',
          'head',
          'acked',
          'oclosed',
          'origin',
        );
        const { owner, why, state, head, acked, originClosed, origin } = command;
        expect(fields, `command ${command.id}`).toEqual([
          owner ?? '',
          why,
          state,
          String(head),
          String(acked),
          originClosed ? '1' : '0',
          origin,
        ]);
      }),
      ...PRINCIPALS.map(async (principal) => {
        const [order, parked, kept] = await Promise.all([
          client.zrange(keys.sessions(this.place.tag, principal), '0', '-1'),
          client.smembers(keys.parked(this.place.tag, principal)),
          client.smembers(keys.kept(this.place.tag, principal)),
        ]);
        const mine = [...this.model.sessions.values()].filter(
          (s) => s.principal === principal && (s.state === 'live' || s.state === 'away'),
        );
        const aside = (where: string) =>
          [...this.model.commands.values()]
            .filter((c) => c.principal === principal && c.aside === where)
            .map((c) => c.id)
            .sort();
        expect([order, parked.sort(), kept.sort()], principal).toEqual([
          mine.sort((a, b) => a.active - b.active).map((s) => s.id),
          aside('parked'),
          aside('kept'),
        ]);
      }),
    ]);
    expect(held.length).toBeGreaterThan(0);
  }
}

/** One history, given. @throws what differs */
export async function replay(stores: Stores, steps: readonly Step[]): Promise<void> {
  const run = new Run(stores, placeOf('ann', 'replayed'));
  for (const one of steps) {
    await run.apply(one);
    await run.compare();
  }
}

/**
 * Runs random histories; each has a conversation of its own.
 * @returns undefined when model and scripts agree in all, else the shrunk history and what differs
 */
export async function findDisagreement(stores: Stores, count: number, seed?: number): Promise<string | undefined> {
  let conversations = 0;
  const property = fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
    conversations += 1;
    const run = new Run(stores, placeOf('ann', `history-${conversations}`));
    await run.apply({ do: 'open', who: 0, repeat: false });
    await run.apply({ do: 'open', who: 0, repeat: false });
    for (const one of steps) {
      await run.apply(one);
      await run.compare();
    }
  });
  const details = await fc.check(property, {
    numRuns: count,
    ...(seed === undefined ? {} : { seed, endOnFailure: true }),
  });
  // What did not agree is in the error alone.
  const { errorInstance: error } = details;
  const why = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return details.failed ? `${fc.defaultReportMessage(details)}\n${why}` : undefined;
}
