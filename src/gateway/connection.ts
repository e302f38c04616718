/**
 * One WebSocket: decode, ask, send. It knows no rules; what a request means is decided by its handler. Requests that
 * come while the session is being opened wait for it, so a client need not.
 */
import type { Socket } from 'node:net';
import type { WebSocket } from 'ws';
import { AppError, messageOf } from '../errors.js';
import { CLOSE } from '../protocol/close-codes.js';
import {
  errorText,
  type Incoming,
  notificationText,
  parseFrame,
  RPC,
  type RpcId,
  resultText,
  rpcError,
} from '../protocol/codec.js';
import { LIMITS } from '../protocol/limits.js';
import { describeIssue, type MethodName, type MethodParams, methods, outputAck } from '../protocol/methods.js';
import type { Claims } from '../protocol/token.js';
import type { Answer, Caller, Node } from './handlers/context.js';
import { handlers, type OpeningMethod, openingHandlers } from './handlers/index.js';
import { createHeartbeat } from './heartbeat.js';
import { type Address, createOutbox } from './outbox.js';
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
}

const isOpening = (method: string): method is OpeningMethod => method in openingHandlers;
const isMethod = (method: string): method is MethodName => Object.hasOwn(methods, method);

/** @param claims of the upgrade's header, where it had a token */
export function createConnection(
  node: Node,
  socket: WebSocket,
  stream: Socket,
  claims: Claims | undefined,
): Connection {
  const { ports, options, log, meter } = node;
  const id = Buffer.from(ports.chance.bytes(9)).toString('base64url');
  const random = () => ports.chance.random();
  let holding: Holding | undefined;
  let opening: Promise<unknown> | undefined;
  let batches = false;
  let inFlight = 0;
  let ending = false;
  let redisFailed = false;

  // -------------------------------------------------------------------------------------------------------- sending

  const outbox = createOutbox({
    socket,
    stream,
    limitBytes: options.outboxBytes,
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
    delivery,
    outbox,
    session: () => holding?.session,
    busDown: node.attachedPorts.busDown,
    random,
  });
  const openTimer = setTimeout(() => {
    if (holding !== undefined) return;
    if (redisFailed) end(CLOSE.TRY_LATER, 'Redis does not answer');
    else end(CLOSE.UNAUTHENTICATED, `no session was opened within ${LIMITS.openWithinMs} ms`);
  }, LIMITS.openWithinMs);

  const caller: Caller = {
    id,
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

  /** Reading stops while too much is being worked on, or too many answers wait for a slow reader (DE5). */
  function regulate(): void {
    const busy = inFlight >= LIMITS.maxInFlightRequests || outbox.waitingBytes() > 2 * options.outboxBytes;
    if (busy && !socket.isPaused) socket.pause();
    else if (!busy && socket.isPaused) socket.resume();
  }

  async function ask(method: string, params: unknown): Promise<Answer> {
    if (!isMethod(method)) throw new MethodNotFound(method);
    if (isOpening(method)) {
      if (holding !== undefined || opening !== undefined) throw new AlreadyOpen();
      const opened = openingHandlers[method](node, caller, parseParams(method, params) as never);
      opening = opened;
      return opened.finally(() => {
        opening = undefined;
      });
    }
    // A failed opening is answered to its own request.
    await opening?.catch(() => undefined);
    if (holding === undefined || claims === undefined || ending) {
      throw new AppError('UNAUTHENTICATED', 'open or resume a session first');
    }
    const parsed = parseParams(method, params);
    return handlers[method](node, { caller, claims, session: holding.session }, parsed as never);
  }

  /** @returns the text of the answer, and what follows when it has left */
  async function answer(message: Incoming & { type: 'request' }): Promise<{ text: string; afterwards?: () => void }> {
    try {
      const { result, afterwards } = await ask(message.method, message.params);
      const text = resultText(message.id, result);
      return afterwards === undefined ? { text } : { text, afterwards };
    } catch (error) {
      return { text: errorText(message.id, describe(error, message.method, message.id)) };
    }
  }

  function describe(error: unknown, method: string, requestId: RpcId) {
    if (error instanceof MethodNotFound) return { code: RPC.METHOD_NOT_FOUND, message: error.message };
    if (error instanceof AlreadyOpen) return { code: RPC.INVALID_REQUEST, message: error.message };
    if (error instanceof AppError) {
      redisFailed = error.code === 'REDIS_UNAVAILABLE';
      meter.count('homing_requests_refused_total', { code: error.code });
      return rpcError(error);
    }
    meter.count('homing_internal_errors_total');
    log.error({ connectionId: id, method, requestId, fault: messageOf(error) }, 'a request failed by our own fault');
    return { code: RPC.INTERNAL, message: 'internal error' };
  }

  function onNotification(method: string, params: unknown): void {
    if (method !== 'output.ack') return;
    const parsed = outputAck.safeParse(params);
    if (parsed.success) holding?.session.ack(parsed.data.cursors);
  }

  async function serve(message: Incoming): Promise<{ text: string; afterwards?: () => void } | undefined> {
    switch (message.type) {
      case 'request': {
        inFlight += 1;
        const answered = await answer(message);
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

  function reply(answered: { text: string; afterwards?: () => void } | undefined): void {
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
    const frame = parseFrame(data.toString('utf8'));
    const served = frame.type === 'batch' ? serveBatch(frame.messages) : serve(frame.message).then(reply);
    regulate();
    void served.then(regulate);
  });

  const gone = new Promise<void>((resolve) => {
    socket.once('close', () => {
      ending = true;
      clearTimeout(openTimer);
      outbox.close();
      viewers.close();
      heartbeat.close();
      clock.close();
      if (holding !== undefined) node.table.leave(holding);
      resolve();
    });
  });

  return { end, notify, gone };
}

class MethodNotFound extends Error {
  constructor(method: string) {
    super(`there is no method "${method.slice(0, 64)}"`);
  }
}

class AlreadyOpen extends Error {
  constructor() {
    super('this connection has opened its session already');
  }
}

/** @throws AppError INVALID_PARAMS naming the field */
function parseParams<M extends MethodName>(method: M, params: unknown) {
  const parsed = methods[method].safeParse(params);
  if (parsed.success) return parsed.data as MethodParams<M>;
  const { message, field } = describeIssue(parsed.error);
  throw new AppError('INVALID_PARAMS', message, field === undefined ? {} : { field });
}
