/**
 * Counted subscriptions to exact sharded channels over one subscriber connection. After a loss every channel is subscribed
 * again and acknowledged before anyone is told (FAULTS R1); nothing here ever rejects unheard.
 *
 * Commands of one connection are carried out in order, so what was issued last for a channel holds. That is why an old
 * subscription's unsubscribe can not end a newer one, without a lock.
 */
import type { Redis } from 'ioredis';
import type { Chance, Log, Meter, Subscription } from '../domain/ports.js';
import { AppError, messageOf } from '../errors.js';

export interface SubscriptionsPorts {
  /** Role `subscriber`, used for nothing else. Stays the caller's to disconnect. */
  readonly subscriber: Redis;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
  /** Of a member of a Cluster, which takes channels of one slot only in a call. */
  readonly oneChannelPerCall?: boolean;
}

export interface Subscriptions {
  /**
   * Resolves when Redis acknowledged. Handlers of a channel are called in the order of its messages.
   * @throws AppError REDIS_UNAVAILABLE when it did not within 3 s
   */
  subscribe(channelName: string, handle: (message: string) => void): Promise<Subscription>;
  /** Wants a channel without waiting for it. */
  keep(channelName: string, handle: (message: string) => void): Subscription;
  /** Called after every channel was subscribed again following a loss. */
  onRestored(handler: () => void): void;
  close(): Promise<void>;
}

interface Handler {
  readonly handle: (message: string) => void;
}

interface Channel {
  readonly name: string;
  /** Nearly always one, and there is a channel for each tab. */
  handlers: readonly Handler[];
  /** What the present connection was told last. */
  told: 'nothing' | 'subscribe' | 'unsubscribe';
  /** Raised by each command, so that a late answer to an earlier one is not taken for the answer to the last. */
  issue: number;
  acknowledged: boolean;
  /** Until it is acknowledged. */
  waiters: Set<() => void> | undefined;
}

/** Redis takes any number; this bounds one command and one stall. */
const BATCH_CHANNELS = 512;
/** Less than the 5 s after which a socket without a session is closed, so that the reason can still be told. */
export const SUBSCRIBE_TIMEOUT_MS = 3_000;
const RETRY_FIRST_MS = 100;
const RETRY_LAST_MS = 2_000;
/**
 * A Cluster ends the subscriptions of a slot that leaves a server, and also where it stays, when its owner is said there once
 * more, as tools do that move slots. Looked at this much later, when it is mostly known where a slot is now, few are asked for
 * in vain.
 */
const TAKEN_AWAY_MS = 300;
/** Refused so often, the connection is given up and made anew. */
const RETRIES_PER_CONNECTION = 5;

export function createSubscriptions(ports: SubscriptionsPorts): Subscriptions {
  const { subscriber, log, meter, chance } = ports;
  const channels = new Map<string, Channel>();
  const restoredHandlers: (() => void)[] = [];
  /** What goes into one call, of channels that are told together. */
  const callsOf = <T>(batch: readonly T[]): readonly (readonly T[])[] =>
    ports.oneChannelPerCall === true ? batch.map((channel) => [channel]) : [batch];
  let closed = false;
  /** Raised by each loss: answers from an older connection mean nothing. */
  let epoch = 0;
  let restoringIn: number | undefined;
  let lossUntold = false;
  let failures = 0;
  let retryTimer: NodeJS.Timeout | undefined;
  let takenTimer: NodeJS.Timeout | undefined;

  async function subscribe(name: string, handle: (message: string) => void): Promise<Subscription> {
    if (closed) throw new AppError('REDIS_UNAVAILABLE', 'The event bus is closed');
    const handler = { handle };
    const channel = join(name, handler);
    let closing: Promise<void> | undefined;
    const subscription: Subscription = {
      close() {
        closing ??= leave(channel, handler);
        return closing;
      },
    };
    if (!(await acknowledgedInTime(channel))) {
      void subscription.close();
      throw new AppError('REDIS_UNAVAILABLE', `Redis did not acknowledge a subscription in ${SUBSCRIBE_TIMEOUT_MS} ms`);
    }
    return subscription;
  }

  function join(name: string, handler: Handler): Channel {
    let channel = channels.get(name);
    if (channel === undefined) {
      channel = { name, handlers: [], told: 'nothing', issue: 0, acknowledged: false, waiters: undefined };
      channels.set(name, channel);
    }
    channel.handlers = [...channel.handlers, handler];
    // A connection that is not ready subscribes to all that is wanted as soon as it is.
    if (channel.told !== 'subscribe' && subscriber.status === 'ready') {
      void tellSubscribe([channel]).then((accepted) => {
        if (!accepted) retryLater();
      });
    }
    return channel;
  }

  async function leave(channel: Channel, handler: Handler): Promise<void> {
    channel.handlers = channel.handlers.filter((other) => other !== handler);
    if (channel.handlers.length > 0 || closed) return;
    if (channel.told === 'subscribe') {
      channel.told = 'unsubscribe';
      channel.acknowledged = false;
      channel.issue += 1;
      const { issue } = channel;
      try {
        await subscriber.sunsubscribe(channel.name);
      } catch {
        // The connection is gone, and the subscription with it; or the answer is late, and the command still holds.
      }
      if (channel.issue !== issue) return;
    }
    forget(channel);
  }

  function forget(channel: Channel): void {
    if (channel.handlers.length === 0 && channels.get(channel.name) === channel) channels.delete(channel.name);
  }

  /** Issues one command for these channels. Never rejects; false: some may not be subscribed. */
  async function tellSubscribe(batch: readonly Channel[]): Promise<boolean> {
    const issuedIn = epoch;
    const issues = batch.map((channel) => {
      channel.told = 'subscribe';
      channel.issue += 1;
      return channel.issue;
    });
    const stillLast = () => batch.filter((channel, index) => issuedIn === epoch && channel.issue === issues[index]);
    try {
      await subscriber.ssubscribe(...batch.map(({ name }) => name));
    } catch (error) {
      for (const channel of stillLast()) {
        channel.told = 'nothing';
        forget(channel);
      }
      if (issuedIn === epoch) {
        log.warn({ channels: batch.length, fault: messageOf(error) }, 'Redis refused a subscription');
      }
      return false;
    }
    for (const channel of stillLast()) {
      channel.acknowledged = true;
      for (const wake of channel.waiters ?? []) wake();
      channel.waiters = undefined;
    }
    return true;
  }

  function acknowledgedInTime(channel: Channel): Promise<boolean> {
    if (channel.acknowledged) return Promise.resolve(true);
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        channel.waiters?.delete(done);
        resolve(channel.acknowledged);
      };
      const timer = setTimeout(done, SUBSCRIBE_TIMEOUT_MS);
      channel.waiters ??= new Set();
      channel.waiters.add(done);
    });
  }

  const onClose = () => {
    epoch += 1;
    lossUntold = true;
    for (const channel of channels.values()) {
      channel.told = 'nothing';
      channel.acknowledged = false;
      forget(channel);
    }
  };

  /** The server has ended a subscription, or has refused one; which, is not said. */
  const onMoved = () => {
    if (closed || takenTimer !== undefined) return;
    takenTimer = setTimeout(
      () => {
        takenTimer = undefined;
        findTaken();
      },
      TAKEN_AWAY_MS * (0.75 + chance.random() / 2),
    );
    takenTimer.unref();
  };

  /** Subscribes again to what was taken away and is still wanted here. A new connection does so anyway. */
  function findTaken(): void {
    if (closed || subscriber.status !== 'ready') return;
    const there = heardBy(subscriber);
    for (const channel of channels.values()) {
      if (!channel.acknowledged || there.has(channel.name)) continue;
      channel.told = 'nothing';
      channel.acknowledged = false;
      channel.issue += 1;
      lossUntold = true;
    }
    if (restoringIn === epoch) onMoved();
    else if ([...channels.values()].some(isMissing)) void restore();
  }

  const isMissing = ({ told, handlers }: Channel) => told === 'nothing' && handlers.length > 0;

  /** Subscribes whatever is wanted and was not told to this connection; then, after a loss, tells everyone. */
  async function restore(): Promise<void> {
    if (closed || restoringIn === epoch) return;
    const startedIn = epoch;
    restoringIn = startedIn;
    const missing = [...channels.values()].filter(isMissing);
    let accepted = true;
    for (let start = 0; start < missing.length; start += BATCH_CHANNELS) {
      // Some were left, or told by a newcomer, since the list was made.
      const batch = missing.slice(start, start + BATCH_CHANNELS).filter(isMissing);
      const told = batch.length === 0 ? [] : await Promise.all(callsOf(batch).map(tellSubscribe));
      if (told.includes(false)) accepted = false;
      // An answer of a lost connection may come late or never; the next `ready` began anew.
      if (closed || startedIn !== epoch) return;
    }
    restoringIn = undefined;
    if (!accepted) {
      retryLater();
      return;
    }
    failures = 0;
    if (!lossUntold) return;
    lossUntold = false;
    meter.count('homing_bus_restored_total');
    log.info({ channels: missing.length }, 'Subscriptions are restored');
    for (const handler of restoredHandlers) guarded(handler, 'restored');
  }

  function retryLater(): void {
    if (closed || retryTimer !== undefined || subscriber.status !== 'ready') return;
    failures += 1;
    if (failures % RETRIES_PER_CONNECTION === 0) {
      subscriber.disconnect(true);
      return;
    }
    const fullMs = Math.min(RETRY_FIRST_MS * 2 ** Math.min(failures - 1, 10), RETRY_LAST_MS);
    const again = () => {
      retryTimer = undefined;
      if (subscriber.status === 'ready') void restore();
    };
    retryTimer = setTimeout(again, fullMs * (0.5 + chance.random() / 2));
    retryTimer.unref();
  }

  const onReady = () => void restore();

  const onMessage = (name: string, message: string) => {
    const channel = channels.get(name);
    if (channel !== undefined) {
      for (const handler of channel.handlers) {
        // One that another of them has ended hears nothing more.
        if (channel.handlers.includes(handler)) guarded(() => handler.handle(message), name);
      }
      return;
    }
    // A subscribe that timed out for us was carried out after all.
    meter.count('homing_bus_orphans_total');
    subscriber.sunsubscribe(name).catch(() => undefined);
  };

  /** A listener that throws harms no other. */
  function guarded(run: () => void, channel: string): void {
    try {
      run();
    } catch (error) {
      meter.count('homing_bus_handler_errors_total');
      log.error({ channel, fault: messageOf(error) }, 'A listener of the event bus failed');
    }
  }

  subscriber.on('close', onClose);
  subscriber.on('ready', onReady);
  subscriber.on('moved', onMoved);
  subscriber.on('smessage', onMessage);

  return {
    subscribe,
    keep(name, handle) {
      const handler = { handle };
      const channel = join(name, handler);
      return { close: () => leave(channel, handler) };
    },
    onRestored(handler) {
      restoredHandlers.push(handler);
    },
    async close() {
      if (closed) return;
      closed = true;
      clearTimeout(retryTimer);
      clearTimeout(takenTimer);
      subscriber.off('close', onClose);
      subscriber.off('ready', onReady);
      subscriber.off('moved', onMoved);
      subscriber.off('smessage', onMessage);
      const names = [...channels.values()].filter(({ told }) => told === 'subscribe').map(({ name }) => name);
      for (const { waiters } of channels.values()) for (const wake of waiters ?? []) wake();
      channels.clear();
      for (let start = 0; start < names.length && subscriber.status === 'ready'; start += BATCH_CHANNELS) {
        const calls = callsOf(names.slice(start, start + BATCH_CHANNELS));
        // Best effort: the caller disconnects next, which ends every subscription too.
        await Promise.all(calls.map((call) => subscriber.sunsubscribe(...call).catch(() => undefined)));
      }
    },
  };
}

/** The sharded channels of a connection by the answers and messages of the server; ioredis keeps them, to subscribe again. */
function heardBy(subscriber: Redis): ReadonlySet<string> {
  const { condition } = subscriber as unknown as {
    readonly condition?: { readonly subscriber?: false | { channels(kind: 'ssubscribe'): readonly string[] } };
  };
  return new Set(condition?.subscriber ? condition.subscriber.channels('ssubscribe') : []);
}
