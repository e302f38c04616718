/**
 * Watches the claims of all running commands of a worker: is it still ours, does someone want it killed?
 *
 * One batched look every 2 s, jittered, and at once for a command that is nudged. A lost nudge costs one interval; while
 * Redis is away nothing is concluded (CO9).
 */
import type {
  ClaimCheck,
  CommandRestored,
  CommandStore,
  EventBus,
  KillRequest,
  Log,
  Subscription,
} from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { ClaimId, CommandId } from '../protocol/ids.js';

export const POLL_MS = 2_000;
const BATCH = 256;

export interface ClaimHandlers {
  /** May be told the same wish more than once. */
  onKill(request: KillRequest): void;
  onLost(): void;
  /** Before a claim is taken for lost, it is said again: Redis may have gone back to older data (R2). */
  sayAgain(): Promise<CommandRestored>;
  /** What is stored for a command with a stdin or a terminal; after every look, changed or not. */
  onInput?(check: Pick<ClaimCheck, 'input' | 'size'>): void;
  /** After every look, also at commands that nothing happened to. */
  onTick(): void;
  /** The server behind the connection is another one: what it holds may have gone back. */
  onServerChanged(): void;
}

export interface Claims {
  /** Watches from now on, until the returned handle is closed. */
  watch(commandId: CommandId, claimId: ClaimId, handlers: ClaimHandlers): { close(): void };
  /** Looks at every claim now, as after a reconnect. Never rejects. */
  check(): Promise<void>;
  /** Tells every command to compare its log with what is stored. */
  recheckLogs(): void;
  close(): void;
}

interface Watched extends ClaimHandlers {
  readonly commandId: CommandId;
  readonly claimId: ClaimId;
}

export function createClaims(ports: {
  readonly store: Pick<CommandStore, 'checkClaims'>;
  readonly bus: Pick<EventBus, 'subscribeControl'>;
  readonly log: Log;
  readonly random: () => number;
}): Claims {
  const watched = new Map<CommandId, Watched>();
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  async function look(batch: readonly Watched[]): Promise<void> {
    if (batch.length === 0) return;
    try {
      const checks = await ports.store.checkClaims(batch);
      for (const [i, one] of batch.entries()) {
        const check = checks[i];
        if (check === undefined || watched.get(one.commandId) !== one) continue;
        if (!check.held) await sayAgain(one);
        else {
          if (check.kill !== undefined) one.onKill(check.kill);
          one.onInput?.(check);
        }
      }
    } catch (error) {
      ports.log.debug({ error: messageOf(error) }, 'claims could not be checked');
    }
  }

  async function sayAgain(one: Watched): Promise<void> {
    const { type } = await one.sayAgain();
    if (watched.get(one.commandId) !== one) return;
    if (type === 'lost') one.onLost();
    else if (type === 'restored') {
      ports.log.warn({ commandId: one.commandId }, 'the claim was lost by Redis and is held again');
      one.onServerChanged();
    }
  }

  async function check(): Promise<void> {
    const all = [...watched.values()];
    for (let at = 0; at < all.length; at += BATCH) await look(all.slice(at, at + BATCH));
    for (const one of all) one.onTick();
  }

  function schedule(): void {
    if (closed || timer !== undefined || watched.size === 0) return;
    const delayMs = POLL_MS * (0.75 + 0.25 * ports.random());
    timer = setTimeout(async () => {
      await check();
      timer = undefined;
      schedule();
    }, delayMs);
    timer.unref();
  }

  return {
    watch(commandId, claimId, handlers) {
      const one: Watched = { commandId, claimId, ...handlers };
      watched.set(commandId, one);
      schedule();
      const nudges = subscribe(() => void look([one]));
      return {
        close() {
          if (watched.get(commandId) === one) watched.delete(commandId);
          void nudges.then((subscription) => subscription?.close()).catch(() => {});
        },
      };

      /** Best effort: without the channel a wish is found by the next poll. */
      async function subscribe(onNudge: () => void): Promise<Subscription | undefined> {
        try {
          const subscription = await ports.bus.subscribeControl(commandId, onNudge);
          // A wish from between the claim and the subscription was nudged to nobody.
          onNudge();
          return subscription;
        } catch (error) {
          ports.log.debug({ commandId, error: messageOf(error) }, 'no nudges for this command');
          return undefined;
        }
      }
    },
    check,
    recheckLogs() {
      for (const one of watched.values()) one.onServerChanged();
    },
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}
