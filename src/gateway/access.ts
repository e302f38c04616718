/** The rules of who may do what, applied to requests: scopes are named, but what one may not see does not exist (IS1). */
import { createHash } from 'node:crypto';
import type { CommandRecord, CommandStore, Place } from '../domain/ports.js';
import { AppError } from '../errors.js';
import { type CommandId, parseCommandId, type Tag, tagFromDigest, tagSource } from '../protocol/ids.js';
import { type Claims, coversConversation, hasScope, mayKnow, mayRead, type Scope } from '../protocol/token.js';
import { isDescendant } from './command-token.js';

/** @throws AppError FORBIDDEN */
export function requireScope(claims: Claims, scope: Scope): void {
  if (!hasScope(claims, scope)) throw new AppError('FORBIDDEN', `the token does not have the scope "${scope}"`);
}

export const tagFor = (tenant: string, conversation: string): Tag =>
  tagFromDigest(createHash('sha256').update(tagSource(tenant, conversation)).digest());

/** The conversation as the holder of the token may act in it. @throws AppError FORBIDDEN */
export function placeFor(claims: Claims, conversation: string, principal = claims.principal): Place {
  if (claims.insideCommandId !== undefined) {
    throw new AppError('FORBIDDEN', "a command's own token reaches only the commands that it started");
  }
  if (!coversConversation(claims, conversation)) {
    throw new AppError('FORBIDDEN', 'the token does not cover this conversation', { field: 'conversation' });
  }
  return { tag: tagFor(claims.tenant, conversation), tenant: claims.tenant, conversation, principal };
}

export const unknownCommand = () => new AppError('UNKNOWN_COMMAND', 'there is no such command', { field: 'commandId' });

interface Found {
  readonly id: CommandId;
  readonly record: CommandRecord;
}

async function find(
  commands: Pick<CommandStore, 'get'>,
  claims: Claims,
  rawId: string,
  mayFind: typeof mayKnow,
): Promise<Found> {
  const id = parseCommandId(rawId);
  const record = id === undefined ? undefined : await commands.get(id);
  if (id === undefined || record === undefined || !mayFind(claims, record)) throw unknownCommand();
  const { insideCommandId } = claims;
  if (insideCommandId !== undefined && !(await isDescendant(commands, record, insideCommandId))) throw unknownCommand();
  if (record.principal !== claims.principal) claims.actsFor?.(record.principal);
  return { id, record };
}

/** One's own command. @throws AppError UNKNOWN_COMMAND for what is not there, and alike for what is another's */
export const findCommand = (commands: Pick<CommandStore, 'get'>, claims: Claims, rawId: string): Promise<Found> =>
  find(commands, claims, rawId, mayKnow);

/** One's own, or another's for a delegate: to read, to follow, to end. @throws AppError UNKNOWN_COMMAND */
export const findReadable = (commands: Pick<CommandStore, 'get'>, claims: Claims, rawId: string): Promise<Found> =>
  find(commands, claims, rawId, mayRead);
