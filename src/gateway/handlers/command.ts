/** Requests about commands over a connection. */
import type { CommandStore } from '../../domain/ports.js';
import { AppError } from '../../errors.js';
import type { CommandId } from '../../protocol/ids.js';
import { findCommand, findReadable, placeFor, requireScope, unknownCommand } from '../access.js';
import type { AttachedSession } from '../attached-session.js';
import { notOwner, resizeTerminal, writeTo } from '../input.js';
import { killCommand } from '../kill.js';
import { beginView, entryOf, readView } from '../log-pages.js';
import { requireRate } from '../rates.js';
import { show, showAll } from '../shown.js';
import { answerTo, checkSpec, commandIdFor, submitCommand } from '../submit.js';
import type { Handler } from './context.js';

export const runCommand: Handler<'command.run'> = async (node, { claims, session }, spec) => {
  checkSpec(claims, spec);
  await requireRate(node.rates, claims, 'runs');
  const { place, sessionId, attachmentId } = session;
  const commandId = commandIdFor(place, spec.idempotencyKey, node.ports.chance);
  session.expect(commandId);
  try {
    const origin = { type: 'connection', sessionId, attachmentId } as const;
    const accepted = await submitCommand(node.ports, { place, commandId, spec, origin });
    const { ownerSessionId, repeated, rev, createdAt } = accepted;
    session.submitted(commandId, { mine: ownerSessionId === sessionId, repeated, rev, createdAt });
    const result = await answerTo(node.ports, place, commandId, spec, accepted);
    return { result, afterwards: () => session.releaseCommand(commandId) };
  } catch (error) {
    session.submitted(commandId, undefined);
    throw error;
  }
};

export const listCommands: Handler<'command.list'> = async (node, { claims, session }, params) => {
  requireScope(claims, 'read');
  const { cursor, limit, state, label } = params;
  const filter = {
    limit,
    ...(cursor === undefined ? {} : { cursor }),
    ...(state === undefined ? {} : { state }),
    ...(label === undefined ? {} : { label }),
  };
  const place = placeFor(claims, session.place.conversation);
  const { commands, next } = await node.ports.commands.list(place, filter);
  const result = { commands: await showAll(node.ports, place.tenant, commands), ...(next ? { next } : {}) };
  return { result };
};

export const getCommand: Handler<'command.get'> = async (node, { claims }, params) => {
  requireScope(claims, 'read');
  const { record } = await findReadable(node.ports.commands, claims, params.commandId);
  return { result: await show(node.ports, record.tenant, record.snapshot) };
};

export const readCommandLog: Handler<'command.log'> = async (node, { claims }, params) => {
  requireScope(claims, 'read');
  const { commands, now } = node.ports;
  const { id } = await findReadable(commands, claims, params.commandId);
  const { fromSeq, tailBytes, limitBytes } = params;
  const tail = fromSeq === undefined && tailBytes !== undefined ? await commands.tailSeq(id, tailBytes) : 0;
  const afterSeq = Math.max(0, fromSeq === undefined ? tail : fromSeq - 1);
  const page = await readView(commands, id, beginView(afterSeq), limitBytes, now());
  const entries = (page?.texts ?? []).map(entryOf);
  return { result: { entries, headSeq: page?.headSeq ?? 0, nextSeq: (page?.state.sentSeq ?? afterSeq) + 1 } };
};

export const killByRequest: Handler<'command.kill'> = async (node, { claims, session }, params) => {
  requireScope(claims, 'kill');
  await requireRate(node.rates, claims, 'kills');
  const { id, record } = await findReadable(node.ports.commands, claims, params.commandId);
  const { signal, graceMs } = killParams(params, node.options.killGraceMs);
  const result = await killCommand(node.ports, id, record.snapshot.pool, { signal, graceMs, reason: 'cancelled' });
  session.noteActivity();
  await node.ports.sessions.touch(session.sessionId, session.attachmentId);
  return { result };
};

/** A kill as the worker wants it: `SIGTERM` unless another is named, with or without `SIG`. */
export function killParams(
  params: { readonly signal?: string | undefined; readonly graceMs?: number | undefined },
  killGraceMs: number,
): { signal: string; graceMs: number } {
  const name = params.signal ?? 'SIGTERM';
  return { signal: name.startsWith('SIG') ? name : `SIG${name}`, graceMs: params.graceMs ?? killGraceMs };
}

export const writeStdin: Handler<'command.write'> = async (node, { claims, session }, params) => {
  requireScope(claims, 'run');
  await requireRate(node.rates, claims, 'writes');
  const { id } = await findCommand(node.ports.commands, claims, params.commandId);
  return { result: await writeTo(node.ports.commands, id, ownerOf(session), params) };
};

export const resizePty: Handler<'command.resize'> = async (node, { claims, session }, params) => {
  requireScope(claims, 'run');
  const { id } = await findCommand(node.ports.commands, claims, params.commandId);
  await resizeTerminal(node.ports.commands, id, ownerOf(session), params);
  return { result: {} };
};

const ownerOf = ({ sessionId, attachmentId }: AttachedSession) => ({ type: 'owner', sessionId, attachmentId }) as const;

export const adoptCommand: Handler<'command.adopt'> = async (node, { claims, session }, params) => {
  requireScope(claims, 'run');
  const { commands } = node.ports;
  const { id, record } = await findCommand(commands, claims, params.commandId);
  // Ownership never crosses conversations: a session adopts only in its own.
  if (record.conversation !== session.place.conversation) {
    throw new AppError('NOT_OWNER', 'the command belongs to another conversation');
  }
  session.beginChange();
  try {
    await adopt(commands, id, session);
    const { record: adopted } = await findCommand(commands, claims, params.commandId);
    const result = await show(node.ports, adopted.tenant, adopted.snapshot);
    return { result, afterwards: () => session.endChange() };
  } catch (error) {
    session.endChange();
    throw error;
  }
};

async function adopt(
  commands: Pick<CommandStore, 'adopt'>,
  id: CommandId,
  session: Pick<AttachedSession, 'sessionId' | 'attachmentId'>,
): Promise<void> {
  const { type } = await commands.adopt(id, session.sessionId, session.attachmentId);
  if (type === 'not_parked') throw notOwner();
  if (type === 'unknown') throw unknownCommand();
  if (type === 'superseded') throw new AppError('SESSION_IN_USE', 'another connection holds this session now');
}

export const attachViewer: Handler<'command.attach'> = async (node, { caller, claims }, params) => {
  requireScope(claims, 'read');
  const { id, record } = await findReadable(node.ports.commands, claims, params.commandId);
  // Without a cursor a viewer sees everything from the beginning.
  caller.viewers.attach(id, Math.max(0, (params.fromSeq ?? 1) - 1));
  return { result: await show(node.ports, record.tenant, record.snapshot) };
};

export const detachViewer: Handler<'command.detach'> = async (node, { caller, claims }, params) => {
  requireScope(claims, 'read');
  const { id } = await findReadable(node.ports.commands, claims, params.commandId);
  caller.viewers.detach(id);
  return { result: {} };
};
