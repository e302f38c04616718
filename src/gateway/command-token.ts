/**
 * The token inside a command: `<commandId>.<128 random bits>` (PROTOCOL section 5). It is as good as its command runs: it
 * starts further commands with this command as their parent, and reads, writes to and ends what came of them.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { CommandRecord, CommandStore } from '../domain/ports.js';
import { AppError } from '../errors.js';
import { type CommandId, parseCommandId } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import type { Claims, Scope } from '../protocol/token.js';

const SCOPES: ReadonlySet<Scope> = new Set<Scope>(['read', 'run', 'kill']);

/** The command that a token names; undefined for a token of another kind. */
export function commandInToken(token: string | undefined): CommandId | undefined {
  const at = token?.indexOf('.') ?? -1;
  return at < 0 ? undefined : parseCommandId(token?.slice(0, at));
}

/** @throws AppError UNAUTHENTICATED for a wrong token, and for that of a command that is over */
export async function verifyCommandToken(
  commands: Pick<CommandStore, 'get'>,
  commandId: CommandId,
  token: string,
): Promise<Claims> {
  const record = await commands.get(commandId);
  const hash = createHash('sha256').update(token).digest('hex');
  if (record === undefined || record.snapshot.state !== 'running' || !equal(hash, record.tokenHash)) {
    throw new AppError('UNAUTHENTICATED', 'the token is missing or not valid here');
  }
  return {
    insideCommandId: commandId,
    principal: record.principal,
    tenant: record.tenant,
    conversations: [record.conversation],
    scopes: SCOPES,
    pools: [record.snapshot.pool],
    expiresAtMs: Number.POSITIVE_INFINITY,
  };
}

const equal = (a: string, b: string): boolean =>
  a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));

/** Whether the command was started by this one, directly or by one that it started. */
export async function isDescendant(
  commands: Pick<CommandStore, 'get'>,
  record: CommandRecord,
  ancestor: CommandId,
): Promise<boolean> {
  let parent = record.snapshot.parentCommandId;
  for (let depth = 0; parent !== undefined && depth <= LIMITS.maxDepth; depth += 1) {
    if (parent === ancestor) return true;
    const id = parseCommandId(parent);
    parent = id === undefined ? undefined : (await commands.get(id))?.snapshot.parentCommandId;
  }
  return false;
}
