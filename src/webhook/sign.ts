/**
 * Signs what is sent, the way "Standard Webhooks" does, so that its libraries verify it: HMAC-SHA-256 over
 * `<id>.<seconds>.<body>`, base64, as `v1,<signature>`. The time is signed, so an old message can not be sent again later.
 */
import { createHmac } from 'node:crypto';

const PREFIX = 'whsec_';

/** A secret may be text, or bytes in base64 after `whsec_`. */
const keyOf = (secret: string): Buffer =>
  secret.startsWith(PREFIX) ? Buffer.from(secret.slice(PREFIX.length), 'base64') : Buffer.from(secret, 'utf8');

export function signedHeaders(secret: string, id: string, body: string, nowMs: number): Record<string, string> {
  const seconds = String(Math.floor(nowMs / 1_000));
  const signature = createHmac('sha256', keyOf(secret)).update(`${id}.${seconds}.${body}`).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': seconds, 'webhook-signature': `v1,${signature}` };
}
