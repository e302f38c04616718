/**
 * One attempt to tell an address that a command has ended. Bounded in time, follows no redirect (it could lead to where the
 * operator allows nothing), and reads nothing of the answer but its status.
 */
import type { CommandStore, Log, Meter } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { CommandId } from '../protocol/ids.js';
import { type AllowedTarget, isAllowed, webhookBody, webhookId } from '../protocol/webhook.js';
import { signedHeaders } from './sign.js';

const TIMEOUT_MS = 10_000;
/** The receiver is gone for good. */
const GONE = 410;

/** `refused`: no further attempt can go better. */
export type Delivery = { readonly type: 'done' } | { readonly type: 'failed' | 'refused'; readonly why: string };

export function createDelivery(
  ports: { readonly commands: Pick<CommandStore, 'get'>; readonly log: Log; readonly meter: Meter; now(): number },
  options: { readonly allowed: readonly AllowedTarget[]; readonly secret: string; readonly version: string },
): (commandId: CommandId) => Promise<Delivery> {
  const { commands, log, meter, now } = ports;
  const { allowed, secret, version } = options;

  async function attempt(commandId: CommandId): Promise<Delivery> {
    const record = await commands.get(commandId);
    if (record?.webhook === undefined) return { type: 'refused', why: 'the command or its webhook is gone' };
    // Also where it was allowed when the command was submitted: the operator's word of today counts.
    if (!isAllowed(allowed, record.webhook)) return { type: 'refused', why: 'the address is not allowed' };
    const body = webhookBody(record.snapshot);
    let response: Response;
    try {
      response = await fetch(record.webhook, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'user-agent': `homing/${version}`,
          ...signedHeaders(secret, webhookId(commandId), body, now()),
        },
        body,
        redirect: 'manual',
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
    } catch (error) {
      return {
        type: 'failed',
        why: `no answer: ${messageOf(error instanceof Error ? (error.cause ?? error) : error)}`,
      };
    }
    // Nothing of it is wanted; a large answer is not taken.
    await response.body?.cancel().catch(() => undefined);
    const { status } = response;
    if (status >= 200 && status < 300) return { type: 'done' };
    if (status === GONE) return { type: 'refused', why: 'the receiver answered 410, gone' };
    if (status >= 300 && status < 400) return { type: 'failed', why: `redirects are not followed (${status})` };
    return { type: 'failed', why: `the receiver answered ${status}` };
  }

  return async (commandId) => {
    const delivery = await attempt(commandId);
    meter.count('homing_webhooks_total', { result: delivery.type });
    if (delivery.type !== 'done') log.warn({ commandId, ...delivery }, 'a webhook was not delivered');
    return delivery;
  };
}
