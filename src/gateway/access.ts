/** The rules of who may do what, applied to requests: scopes are named, but what one may not see does not exist (IS1). */
import { createHash } from 'node:crypto';
import type { CommandRecord, CommandStore, Place } from '../domain/ports.js';
import { AppError } from '../errors.js';
import { type CommandId, parseCommandId, type Tag, tagFromDigest, tagSource } from '../protocol/ids.js';
import { type Claims, coversConversation, hasScope, mayKnow, type Scope } from '../protocol/token.js';

/** @throws AppError FORBIDDEN */
export function requireScope(claims: Claims, scope: Scope): void {
  if (!hasScope(claims, scope)) throw new AppError('FORBIDDEN', `the token does not have the scope "${scope}"`);
}

export const tagFor = (tenant: string, conversation: string): Tag =>
  tagFromDigest(createHash('sha256').update(tagSource(tenant, conversation)).digest());

/** The conversation as the holder of the token may act in it. @throws AppError FORBIDDEN */
export function placeFor(claims: Claims, conversation: string, principal = claims.principal): Place {
  if (!coversConversation(claims, conversation)) {
    throw new AppError('FORBIDDEN', 'the token does not cover this conversation', { field: 'conversation' });
  }
  return { tag: tagFor(claims.tenant, conversation), tenant: claims.tenant, conversation, principal };
}

export const unknownCommand = () => new AppError('UNKNOWN_COMMAND', 'there is no such command', { field: 'commandId' });

/** @throws AppError UNKNOWN_COMMAND for what is not there, and alike for what is another's */
export async function findCommand(
  commands: Pick<CommandStore, 'get'>,
  claims: Claims,
  rawId: string,
): Promise<{ readonly id: CommandId; readonly record: CommandRecord }> {
  const id = parseCommandId(rawId);
  const record = id === undefined ? undefined : await commands.get(id);
  if (id === undefined || record === undefined || !mayKnow(claims, record)) throw unknownCommand();
  return { id, record };
}
