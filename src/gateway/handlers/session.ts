/** Requests about the session itself, once it is open. */
import type { CloseResult } from '../../domain/ports.js';
import { AppError } from '../../errors.js';
import { CLOSE } from '../../protocol/close-codes.js';
import { coversConversation } from '../../protocol/token.js';
import { requireScope } from '../access.js';
import { killOwnerless } from '../kill.js';
import type { Handler } from './context.js';

export const closeSession: Handler<'session.close'> = async (node, { caller, claims, session }) => {
  requireScope(claims, 'read');
  const { sessionId, attachmentId } = session;
  session.closing(true);
  await session.settleAcks();
  let result: CloseResult;
  try {
    result = await node.ports.sessions.close(sessionId, { type: 'attachment', attachmentId });
  } catch (error) {
    // It may have happened: then the sweep says so.
    session.closing(false);
    throw error;
  }
  if (result.type === 'refused') {
    session.closing(false);
    throw new AppError('SESSION_IN_USE', 'another connection holds this session now');
  }
  node.meter.count('homing_sessions_closed_total', { cause: 'request' });
  const held = session.held();
  if (held !== undefined) node.reasserter.closed(held);
  // Nobody waits for their end: the wish is in the record of each.
  void killOwnerless(node.ports, result.toKill, node.options.killGraceMs);
  return { result: {}, afterwards: () => caller.delivery.end(CLOSE.SESSION_CLOSED, 'the session was closed') };
};

export const touchSession: Handler<'session.touch'> = async (node, { claims, session }) => {
  requireScope(claims, 'read');
  session.noteActivity();
  await node.ports.sessions.touch(session.sessionId, session.attachmentId);
  return { result: {} };
};

export const refreshToken: Handler<'session.refresh'> = async (node, { caller, session }, params) => {
  const claims = await node.attempts.guard(caller.address, params.token, () => node.verifier.verify(params.token));
  requireScope(claims, 'read');
  const { tenant, principal, conversation } = session.place;
  const same = claims.tenant === tenant && claims.principal === principal;
  if (!same || !coversConversation(claims, conversation)) {
    throw new AppError('FORBIDDEN', 'the token is for another tenant, principal or conversation', { field: 'token' });
  }
  caller.setClaims(claims);
  return { result: {} };
};
