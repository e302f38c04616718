/**
 * Encrypts the secrets of commands for their way through Redis: AES-256-GCM, a fresh nonce each time, bound to the command.
 * What is sealed names its key, so that a key may be changed while commands wait that were sealed with the one before.
 */
import { createCipheriv, createDecipheriv, createHash, createHmac } from 'node:crypto';
import type { Chance, SecretBox } from '../domain/ports.js';

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_ID_CHARS = 8;

/** @param keys base64 of 32 bytes, the present one first; undefined without any */
export function createSecretBox(keys: readonly string[], chance: Pick<Chance, 'bytes'>): SecretBox | undefined {
  const known = keys.map((text) => Buffer.from(text, 'base64')).map((key) => ({ key, id: keyId(key) }));
  const [present] = known;
  if (present === undefined) return undefined;
  return {
    seal(commandId, secrets) {
      const nonce = chance.bytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', present.key, nonce).setAAD(Buffer.from(commandId));
      const sealed = [cipher.update(JSON.stringify(secrets), 'utf8'), cipher.final()];
      return `${present.id}.${Buffer.concat([nonce, ...sealed, cipher.getAuthTag()]).toString('base64')}`;
    },
    open(commandId, text) {
      const [id, data = ''] = text.split('.');
      const key = known.find((one) => one.id === id)?.key;
      if (key === undefined) throw new Error(`they were sealed with a key (${id}) that is not known here`);
      const bytes = Buffer.from(data, 'base64');
      const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, NONCE_BYTES))
        .setAAD(Buffer.from(commandId))
        .setAuthTag(bytes.subarray(-TAG_BYTES));
      try {
        const plain = [decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()];
        return JSON.parse(Buffer.concat(plain).toString('utf8')) as Record<string, string>;
      } catch (cause) {
        throw new Error('they were changed, or are of another command', { cause });
      }
    },
    fingerprint(secrets) {
      const sorted = Object.entries(secrets).sort(([a], [b]) => (a < b ? -1 : 1));
      return createHmac('sha256', present.key).update(JSON.stringify(sorted)).digest('hex');
    },
  };
}

/** Tells keys apart without telling anything of them. */
const keyId = (key: Uint8Array): string =>
  createHash('sha256').update('homing key id').update(key).digest('hex').slice(0, KEY_ID_CHARS);
