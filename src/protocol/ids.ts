/**
 * Ids carry the hash tag of their conversation and 128 bits, so any id finds its slot without an index.
 * Ids are not secrets: knowing one gives nothing (IS1). Pure: bytes of chance and digests come from the caller.
 */

declare const brand: unique symbol;
type Branded<T, B> = T & { readonly [brand]: B };

/** 16 base32 characters of SHA-256 over the length-prefixed tenant and conversation. */
export type Tag = Branded<string, 'tag'>;
/** `ses_<tag>_<26 base32 characters>` */
export type SessionId = Branded<string, 'session'>;
/** `cmd_<tag>_<26 base32 characters>` */
export type CommandId = Branded<string, 'command'>;
/** One start of a gateway process: `node_<26 base32 characters>`. */
export type NodeId = Branded<string, 'node'>;
/** One start of a worker process: `wrk_<26 base32 characters>`. */
export type WorkerId = Branded<string, 'worker'>;
/** The bond of a session to one connection on one node; compared by equality only. */
export type AttachmentId = Branded<string, 'attachment'>;
/** The right to execute a command, held by one attempt; compared by equality only. */
export type ClaimId = Branded<string, 'claim'>;

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
const TAG = '[a-z2-7]{16}';
const RANDOM = '[a-z2-7]{26}';
const SESSION = new RegExp(`^ses_(${TAG})_${RANDOM}$`);
const COMMAND = new RegExp(`^cmd_(${TAG})_${RANDOM}$`);
const NODE = new RegExp(`^node_${RANDOM}$`);
const WORKER = new RegExp(`^wrk_${RANDOM}$`);

/** RFC 4648 base32, lower case, no padding. */
export function base32(bytes: Uint8Array): string {
  let out = '';
  let held = 0;
  let bits = 0;
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xffff;
    bits += 8;
    while (bits >= 5) {
      out += ALPHABET[(held >>> (bits - 5)) & 31];
      bits -= 5;
    }
  }
  if (bits > 0) out += ALPHABET[(held << (5 - bits)) & 31];
  return out;
}

/** What the tag is the digest of. Length prefixes keep ("ab","c") and ("a","bc") apart. */
export function tagSource(tenant: string, conversation: string): string {
  return `${tenant.length}:${tenant}${conversation.length}:${conversation}`;
}

/** @param digest SHA-256 of `tagSource` */
export const tagFromDigest = (digest: Uint8Array): Tag => base32(digest).slice(0, 16) as Tag;

/** @param random 16 bytes */
export const makeSessionId = (tag: Tag, random: Uint8Array): SessionId =>
  `ses_${tag}_${base32(random.subarray(0, 16))}` as SessionId;

/** @param random 16 bytes, of chance or derived from an idempotency key */
export const makeCommandId = (tag: Tag, random: Uint8Array): CommandId =>
  `cmd_${tag}_${base32(random.subarray(0, 16))}` as CommandId;

export const parseSessionId = (value: unknown): SessionId | undefined =>
  typeof value === 'string' && SESSION.test(value) ? (value as SessionId) : undefined;

export const parseCommandId = (value: unknown): CommandId | undefined =>
  typeof value === 'string' && COMMAND.test(value) ? (value as CommandId) : undefined;

export const parseNodeId = (value: unknown): NodeId | undefined =>
  typeof value === 'string' && NODE.test(value) ? (value as NodeId) : undefined;

export const parseWorkerId = (value: unknown): WorkerId | undefined =>
  typeof value === 'string' && WORKER.test(value) ? (value as WorkerId) : undefined;

/** The hash tag inside a session or command id. */
export const tagOf = (id: SessionId | CommandId): Tag => id.slice(4, 20) as Tag;

export const makeNodeId = (random: Uint8Array): NodeId => `node_${base32(random.subarray(0, 16))}` as NodeId;
export const makeWorkerId = (random: Uint8Array): WorkerId => `wrk_${base32(random.subarray(0, 16))}` as WorkerId;
export const makeAttachmentId = (random: Uint8Array): AttachmentId => base32(random.subarray(0, 16)) as AttachmentId;
export const makeClaimId = (random: Uint8Array): ClaimId => base32(random.subarray(0, 16)) as ClaimId;
