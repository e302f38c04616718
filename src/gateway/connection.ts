/**
 * One WebSocket: decode, ask, send. It knows no rules; what a request means is decided by its handler.
 */
import type { Socket } from 'node:net';
import type { WebSocket } from 'ws';
import { CLOSE } from '../protocol/close-codes.js';
import { errorText, type Incoming, notificationText, parseFrame } from '../protocol/codec.js';
import { LIMITS } from '../protocol/limits.js';
import { outputAck } from '../protocol/methods.js';
import type { Claims } from '../protocol/token.js';
import type { Caller, Node } from './handlers/context.js';
import { createHeartbeat } from './heartbeat.js';
import { type Address, createOutbox } from './outbox.js';
import { type Answered, createRequests } from './requests.js';
import type { Seat } from './seats.js';
import type { Holding } from './session-table.js';
import { createTokenClock } from './token-clock.js';
import { createViewers } from './viewers.js';

/** A peer that does not answer a close is cut off after this. */
const CLOSE_WITHIN_MS = 1_500;

export interface Connection {
  /** Sends the code, and cuts the socket off when the peer does not answer. */
  end(code: number, reason: string): void;
  notify(method: string, params: unknown): void;
  /** Resolves when the socket is gone. */
  readonly gone: Promise<void>;
  /** Bytes that wait for the peer. */
  waitingBytes(): number;
  /** Whether entries are not pushed until the peer has taken some. */
  isSlow(): boolean;
}

/** Who was let in. */
export interface Guest {
  /** Of the upgrade's header, where it had a token. */
  readonly claims: Claims | undefined;
  readonly address: string;
  readonly seat: Seat;
}

export function createConnection(node: Node, socket: WebSocket, stream: Socket, guest: Guest): Connection {
  let { claims } = guest;
  const { ports, options, log, meter } = node;
  const id = Buffer.from(ports.chance.bytes(9)).toString('base64url');
  const random = () => ports.chance.random();
  let holding: Holding | undefined;
  let batches = false;
  let inFlight = 0;
  let ending = false;

  // -------------------------------------------------------------------------------------------------------- sending

  const outbox = createOutbox({
    socket,
    stream,
    limitBytes: options.outboxBytes,
    meter: node.meter,
    permits,
    onRoom() {
      holding?.session.wake();
      regulate();
    },
  });

  /** The last check before the socket (IS2). What is in flight when a session ends is no mistake and not sent. */
  function permits(address: Address): boolean {
    if (ending) return false;
    const session = holding?.session;
    const fits =
      address.type === 'view'
        ? address.connectionId === id
        : address.sessionId === session?.sessionId && address.attachmentId === session.attachmentId;
    if (!fits) {
      meter.count('homing_misdelivered_total');
      log.error({ connectionId: id }, 'an entry was about to be sent to the wrong socket');
    }
    return fits;
  }

  const notify = (method: string, params: unknown) => outbox.notice(notificationText(method, params));

  function end(code: number, reason: string): void {
    if (ending) return;
    // What was answered before leaves in this turn; entries that wait are refused by `permits`.
    ending = true;
    setImmediate(() => {
      outbox.close();
      socket.close(code, reason);
      const timer = setTimeout(() => socket.terminate(), CLOSE_WITHIN_MS);
      socket.once('close', () => clearTimeout(timer));
    });
  }

  const delivery = { entries: outbox.entries, notify, room: outbox.room, end };
  const viewers = createViewers({ commands: ports.commands, log, delivery, connectionId: id, now: ports.now, random });
  const clock = createTokenClock({ now: ports.now, delivery });
  const heartbeat = createHeartbeat({
    socket,
    heartbeatMs: options.heartbeatMs,
    ticks: node.ticks,
    delivery,
    outbox,
    session: () => holding?.session,
    busDown: node.attachedPorts.busDown,
    random,
  });
  const openTimer = setTimeout(() => {
    if (holding !== undefined) return;
    // Who asked in time is not to blame for a slow answer, and must not be told to stay away.
    if (requests.redisFailed() || requests.isOpening()) end(CLOSE.TRY_LATER, 'Redis does not answer');
    else end(CLOSE.UNAUTHENTICATED, `no session was opened within ${LIMITS.openWithinMs} ms`);
  }, LIMITS.openWithinMs);

  const caller: Caller = {
    id,
    address: guest.address,
    takeSeat: guest.seat.take,
    claims: () => claims,
    setClaims(given) {
      claims = given;
      clock.set(given.expiresAtMs);
    },
    delivery,
    viewers,
    answersPing,
    useBatches() {
      batches = true;
      outbox.useBatches();
    },
    bind(given) {
      holding = given;
      clearTimeout(openTimer);
    },
    isGone: () => ending || socket.readyState !== socket.OPEN,
  };

  const requests = createRequests(node, caller, () => holding?.session);

  function answersPing(timeoutMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const done = (alive: boolean) => {
        clearTimeout(timer);
        socket.off('pong', onPong);
        socket.off('close', onClose);
        resolve(alive);
      };
      const onPong = () => done(true);
      const onClose = () => done(false);
      const timer = setTimeout(onClose, timeoutMs);
      socket.on('pong', onPong);
      socket.on('close', onClose);
      if (caller.isGone()) onClose();
      else socket.ping();
    });
  }

  // -------------------------------------------------------------------------------------------------------- receiving

  /** Frames that came although reading had stopped: a chunk from the socket may hold hundreds of small ones. */
  const readAhead: Buffer[] = [];

  function isBusy(): boolean {
    const tooMuchWaits = outbox.waitingBytes() > 2 * options.outboxBytes;
    // Nothing may come any more that would look again: asked for room, it tells when there is some.
    if (tooMuchWaits) outbox.room();
    return tooMuchWaits || inFlight >= LIMITS.maxInFlightRequests;
  }

  /** Reading stops while too much is being worked on, or too many answers wait for a slow reader (DE5). */
  function regulate(): void {
    while (!ending && readAhead.length > 0 && !isBusy()) take(readAhead.shift() as Buffer);
    const wait = readAhead.length > 0 || isBusy();
    if (wait && !socket.isPaused) socket.pause();
    else if (!wait && socket.isPaused) socket.resume();
  }

  function take(data: Buffer): void {
    const frame = parseFrame(data.toString('utf8'));
    const served = frame.type === 'batch' ? serveBatch(frame.messages) : serve(frame.message).then(reply);
    void served.then(regulate);
  }

  function onNotification(method: string, params: unknown): void {
    if (method !== 'output.ack') return;
    const parsed = outputAck.safeParse(params);
    if (parsed.success) holding?.session.ack(parsed.data.cursors);
  }

  async function serve(message: Incoming): Promise<Answered | undefined> {
    switch (message.type) {
      case 'request': {
        inFlight += 1;
        const answered = await requests.answer(message);
        inFlight -= 1;
        return answered;
      }
      case 'invalid':
        return { text: errorText(message.id, message.error) };
      case 'notification':
        onNotification(message.method, message.params);
        return undefined;
      case 'response':
        return undefined;
    }
  }

  function reply(answered: Answered | undefined): void {
    if (answered === undefined) return;
    outbox.answer(answered.text);
    answered.afterwards?.();
  }

  async function serveBatch(messages: readonly Incoming[]): Promise<void> {
    if (!batches) {
      await Promise.all(messages.map(async (message) => reply(await serve(message))));
      return;
    }
    const answers = (await Promise.all(messages.map(serve))).filter((one) => one !== undefined);
    if (answers.length > 0) outbox.answer(`[${answers.map(({ text }) => text).join(',')}]`);
    for (const { afterwards } of answers) afterwards?.();
  }

  socket.on('message', (data: Buffer, isBinary: boolean) => {
    if (ending) return;
    if (isBinary) {
      end(CLOSE.PROTOCOL_ERROR, 'binary frames are not used');
      return;
    }
    readAhead.push(data);
    regulate();
  });

  const gone = new Promise<void>((resolve) => {
    socket.once('close', (code: number) => {
      // What we closed ourselves says nothing about what its client could read.
      if (!ending && holding !== undefined) node.attachedPorts.careful.closed(holding.session.sessionId, code);
      ending = true;
      guest.seat.leave();
      clearTimeout(openTimer);
      outbox.close();
      viewers.close();
      heartbeat.close();
      clock.close();
      if (holding !== undefined) node.table.leave(holding);
      resolve();
    });
  });

  return { end, notify, gone, waitingBytes: outbox.waitingBytes, isSlow: outbox.isSlow };
}
