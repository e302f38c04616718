/**
 * `session.open` and `session.resume`. The order is the promise: the subscription is acknowledged and the intent noted
 * before the record changes; what is parked is adopted and what is owned is read before the answer; entries come after it.
 */
import { createHash } from 'node:crypto';
import type { OwnedCommand, Place } from '../../domain/ports.js';
import { AppError } from '../../errors.js';
import {
  type AttachmentId,
  type CommandId,
  makeAttachmentId,
  makeSessionId,
  parseSessionId,
  type SessionId,
} from '../../protocol/ids.js';
import { LIMITS } from '../../protocol/limits.js';
import { type Claims, coversConversation } from '../../protocol/token.js';
import { placeFor, requireScope } from '../access.js';
import { type AttachedSession, createAttachedSession } from '../attached-session.js';
import { withPositions } from '../position.js';
import type { Holding } from '../session-table.js';
import type { Answer, Caller, Node, SessionlessHandler } from './context.js';

/** Probing goes round again when the session moved meanwhile (S6); more often than this, someone is at play. */
const MAX_PROBES = 3;

const hashOf = (resumeToken: string) => createHash('sha256').update(resumeToken).digest('hex');

/** The token of the request wins over the one of the upgrade. */
async function claimsOf(node: Node, caller: Caller, token: string | undefined): Promise<Claims> {
  const claims = token === undefined ? (caller.claims() ?? (await node.verifier.verify(undefined))) : undefined;
  return claims ?? node.verifier.verify(token);
}

function holdingFor(node: Node, caller: Caller, place: Place, sessionId: SessionId): Holding {
  const attachmentId = makeAttachmentId(node.ports.chance.bytes(16));
  const { leaseMs } = node.options;
  const session = createAttachedSession(node.attachedPorts, {
    place,
    sessionId,
    attachmentId,
    delivery: caller.delivery,
    leaseMs,
  });
  return { session, connection: caller };
}

/** Runs the steps; whatever fails on the way, the half-made session is left in good order. */
async function enter(
  node: Node,
  caller: Caller,
  holding: Holding,
  record: () => Promise<{ readonly generation: number }>,
): Promise<{ readonly generation: number; readonly owned: Awaited<ReturnType<Node['ports']['sessions']['owned']>> }> {
  const { sessions } = node.ports;
  const { sessionId } = holding.session;
  try {
    await node.table.prepare(holding);
    const { generation } = await record();
    await sessions.adoptParked(sessionId);
    const owned = await ownedWithPositions(node, holding.session);
    if (caller.isGone() || holding.session.isOver()) throw new AppError('SESSION_IN_USE', 'the session moved on');
    return { generation, owned };
  } catch (error) {
    node.table.leave(holding);
    node.meter.count('homing_attaches_refused_total', { reason: error instanceof AppError ? error.code : 'INTERNAL' });
    throw error;
  }
}

async function ownedWithPositions({ ports }: Node, { sessionId, place }: AttachedSession) {
  const owned = await ports.sessions.owned(sessionId, LIMITS.maxSnapshots);
  const shown = owned.commands.map(({ snapshot }) => snapshot);
  const snapshots = await withPositions(ports, place.tenant, shown);
  const commands = owned.commands.map((command, i) => ({ ...command, snapshot: snapshots[i] ?? command.snapshot }));
  return { ...owned, commands };
}

/** What the node keeps so that it can say again what it holds (FAULTS R2). */
const identityOf = (node: Node, generation: number, resumeToken: string, pageNonce: string | undefined) => ({
  nodeId: node.nodeId,
  generation,
  resumeTokenHash: hashOf(resumeToken),
  pageNonce: pageNonce ?? '',
});

function answerFor(
  node: Node,
  caller: Caller,
  holding: Holding,
  facts: {
    readonly kind: 'open' | 'resume';
    readonly resumeToken: string;
    readonly generation: number;
    readonly more: boolean;
    readonly commands: readonly object[];
  },
): Answer {
  const { heartbeatMs, graceMs, outboxBytes, maxFrameBytes } = node.options;
  node.table.hold(holding);
  caller.bind(holding);
  node.meter.count('homing_attaches_total', { kind: facts.kind });
  const { sessionId, place } = holding.session;
  node.log.info(
    { sessionId, conversation: place.conversation, generation: facts.generation, owned: facts.commands.length },
    facts.kind === 'open' ? 'a session was opened' : 'a session was resumed',
  );
  return {
    result: {
      sessionId: holding.session.sessionId,
      resumeToken: facts.resumeToken,
      generation: facts.generation,
      nodeId: node.nodeId,
      graceMs,
      heartbeatMs,
      limits: {
        maxFrameBytes,
        outboxBytes,
        maxBatch: LIMITS.maxBatch,
        maxInFlightRequests: LIMITS.maxInFlightRequests,
      },
      commands: facts.commands,
      more: facts.more,
    },
    afterwards: () => holding.session.release(facts.more),
  };
}

export const openSession: SessionlessHandler<'session.open'> = async (node, caller, params) => {
  const { chance, sessions } = node.ports;
  const claims = await claimsOf(node, caller, params.token);
  requireScope(claims, 'read');
  caller.takeSeat(claims);
  const place = placeFor(claims, params.conversation);
  const resumeToken = Buffer.from(chance.bytes(32)).toString('base64url');
  const holding = holdingFor(node, caller, place, makeSessionId(place.tag, chance.bytes(16)));
  const { sessionId, attachmentId } = holding.session;

  const { generation, owned } = await enter(node, caller, holding, async () => {
    const opened = await sessions.open({
      ...place,
      sessionId,
      attachmentId,
      nodeId: node.nodeId,
      resumeTokenHash: hashOf(resumeToken),
      pageNonce: params.pageNonce ?? '',
    });
    if (opened.type === 'refused') throw new AppError('FORBIDDEN', 'this conversation can not be opened');
    return opened;
  });
  caller.setClaims(claims);
  if (params.batch) caller.useBatches();
  const identity = identityOf(node, generation, resumeToken, params.pageNonce);
  holding.session.begin({ ...owned, fresh: true, identity });
  const commands = owned.commands.map(({ snapshot }) => snapshot);
  return answerFor(node, caller, holding, { kind: 'open', resumeToken, generation, more: owned.more, commands });
};

export const resumeSession: SessionlessHandler<'session.resume'> = async (node, caller, params) => {
  const { sessions } = node.ports;
  const claims = await claimsOf(node, caller, params.token);
  requireScope(claims, 'read');
  caller.takeSeat(claims);
  const denied = () => new AppError('RESUME_DENIED', 'there is no such session, or the resume token is not its own');
  const strange = () => {
    node.meter.count('homing_attaches_refused_total', { reason: 'RESUME_DENIED' });
    return denied();
  };
  const sessionId = parseSessionId(params.sessionId);
  const place = sessionId === undefined ? undefined : await sessions.place(sessionId);
  if (sessionId === undefined || place === undefined) throw strange();
  // Another's session answers like one that is not there (IS1).
  const { principal, tenant } = claims;
  if (place.tenant !== tenant || place.principal !== principal) throw strange();
  if (!coversConversation(claims, place.conversation)) throw strange();

  const holding = holdingFor(node, caller, place, sessionId);
  const { generation, owned } = await enter(node, caller, holding, async () => {
    let probedAttachmentId: AttachmentId | '' = '';
    for (let probes = 0; ; probes++) {
      const attached = await sessions.attach({
        sessionId,
        attachmentId: holding.session.attachmentId,
        nodeId: node.nodeId,
        principal,
        resumeTokenHash: hashOf(params.resumeToken),
        pageNonce: params.pageNonce ?? '',
        probedAttachmentId,
      });
      if (attached.type === 'attached') return attached;
      if (attached.type === 'denied') throw denied();
      if (attached.type === 'gone') throw new AppError('SESSION_GONE', 'the session was closed');
      const inUse = new AppError('SESSION_IN_USE', 'another page holds this session');
      if (attached.type === 'superseded' || probes === MAX_PROBES) throw inUse;
      if (await node.asker.probe(attached.nodeId, sessionId, attached.attachmentId)) throw inUse;
      probedAttachmentId = attached.attachmentId;
    }
  });
  caller.setClaims(claims);
  if (params.batch) caller.useBatches();
  const cursors = new Map(Object.entries(params.cursors)) as Map<CommandId, number>;
  const identity = identityOf(node, generation, params.resumeToken, params.pageNonce);
  holding.session.begin({ ...owned, fresh: false, identity }, cursors);
  const commands = owned.commands.map((command) => resumedSnapshot(command, cursors));
  const { resumeToken } = params;
  return answerFor(node, caller, holding, { kind: 'resume', resumeToken, generation, more: owned.more, commands });
};

/** `recovered` is false only where Redis is behind the client; gaps inside of a log are told where they are. */
function resumedSnapshot({ snapshot, fromSeq }: OwnedCommand, cursors: ReadonlyMap<CommandId, number>) {
  const cursor = cursors.get(snapshot.commandId as CommandId);
  return {
    ...snapshot,
    recovered: (cursor ?? 0) <= snapshot.headSeq,
    fromSeq: cursor === undefined ? fromSeq : cursor + 1,
  };
}
