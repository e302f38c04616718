/**
 * What only the command itself may know: the secrets it was given, and the token with which it starts further commands. None
 * of it may be seen in what it prints (CO10).
 */
import { createHash } from 'node:crypto';
import { createMask, type Mask } from '../domain/mask.js';
import type { Chance, SecretBox } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import { base32, type CommandId } from '../protocol/ids.js';

export interface CommandToken {
  /** `<commandId>.<26 base32 characters>` */
  readonly text: string;
  /** SHA-256, hex: what the record holds. */
  readonly hash: string;
}

/** Good while the command runs; made anew for each attempt. */
export function makeCommandToken(commandId: CommandId, chance: Pick<Chance, 'bytes'>): CommandToken {
  const text = `${commandId}.${base32(chance.bytes(16))}`;
  return { text, hash: createHash('sha256').update(text).digest('hex') };
}

export type Confidential =
  | { readonly type: 'known'; readonly secrets: Readonly<Record<string, string>>; readonly mask: Mask }
  /** The command can not be started as it was asked for. `error`: a sentence. */
  | { readonly type: 'refused'; readonly error: string; readonly mask: Mask };

export function openConfidential(
  box: Pick<SecretBox, 'open'> | undefined,
  commandId: CommandId,
  token: CommandToken,
  sealed: string | undefined,
): Confidential {
  const tokens = [token.text, token.text.slice(commandId.length + 1)];
  try {
    if (sealed !== undefined && box === undefined) throw new Error('HOMING_SECRET_KEY is not set on this worker');
    const secrets = sealed === undefined ? {} : (box?.open(commandId, sealed) ?? {});
    return { type: 'known', secrets, mask: createMask([...tokens, ...Object.values(secrets)]) };
  } catch (error) {
    return { type: 'refused', error: `secrets: ${messageOf(error)}`, mask: createMask(tokens) };
  }
}
