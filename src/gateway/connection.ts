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
import type { AttachedSession, Delivery } from './attached-session.js';
import type { Caller, Node } from './handlers/context.js';
import { createHeartbeat, type Heartbeat, type HeartbeatHost, type HeartbeatPorts } from './heartbeat.js';
import { type Address, createOutbox, type Outbox, type OutboxHost } from './outbox.js';
import { type Answered, createRequests, type Requests } from './requests.js';
import type { Seat } from './seats.js';
import type { Holding } from './session-table.js';
import { createTokenClock, type TokenClock, type TokenClockPorts } from './token-clock.js';
import { createViewers, type Viewers } from './viewers.js';

/** A peer that does not answer a close is cut off after this. */
const CLOSE_WITHIN_MS = 1_500;

export interface Connection {
  /** Sends the code, and cuts the socket off when the peer does not answer. */
  end(code: number, reason: string): void;
  notify(method: string, params: unknown): void;
  /** Resolves when the socket is gone. */
  gone(): Promise<void>;
  /** Bytes that wait for the peer. */
  waitingBytes(): number;
  /** Whether entries are not pushed until the peer has taken some. */
  isSlow(): boolean;
}

/** What all connections of a node have in common. */
export interface ConnectionPorts {
  readonly node: Node;
  readonly beats: HeartbeatPorts & TokenClockPorts;
  /** The socket of this one is gone. */
  gone(connection: Connection): void;
}

/** Who was let in. */
export interface Guest {
  /** Of the upgrade's header, where it had a token. */
  readonly claims: Claims | undefined;
  readonly address: string;
  readonly seat: Seat;
}

/** One for each tab, which costs a node memory even if nothing happens: what is seldom needed is made when it is. */
class SocketConnection implements Connection, Caller, Delivery, OutboxHost, HeartbeatHost {
  readonly id: string;
  readonly address: string;
  readonly #ports: ConnectionPorts;
  readonly #socket: WebSocket;
  readonly #seat: Seat;
  readonly #outbox: Outbox;
  readonly #requests: Requests;
  readonly #clock: TokenClock;
  readonly #heartbeat: Heartbeat;
  #claims: Claims | undefined;
  #holding: Holding | undefined;
  /** Made with the first command that is looked at without being owned. */
  #viewers: Viewers | undefined;
  /** Until a session was opened. */
  #openTimer: NodeJS.Timeout | undefined;
  #batches = false;
  #inFlight = 0;
  #ending = false;
  /** Frames that came although reading had stopped: a chunk from the socket may hold hundreds of small ones. */
  #readAhead: Buffer[] | undefined;
  /** Those who wait for the end. */
  #whenGone: (() => void)[] | undefined;

  constructor(ports: ConnectionPorts, socket: WebSocket, stream: Socket, { claims, address, seat }: Guest) {
    const { node, beats } = ports;
    this.id = Buffer.from(node.ports.chance.bytes(9)).toString('base64url');
    this.address = address;
    this.#ports = ports;
    this.#socket = socket;
    this.#seat = seat;
    this.#claims = claims;
    this.#outbox = createOutbox({
      ...{ socket, stream, limitBytes: node.options.outboxBytes, meter: node.meter },
      host: this,
    });
    this.#requests = createRequests(node, this);
    this.#clock = createTokenClock(beats, this);
    this.#heartbeat = createHeartbeat(beats, this);
    this.#openTimer = setTimeout(() => this.#notOpened(), LIMITS.openWithinMs);
    socket.on('pong', () => this.#heartbeat.alive());
    socket.on('message', (data: Buffer, isBinary: boolean) => this.#onMessage(data, isBinary));
    socket.on('close', (code: number) => this.#onClose(code));
  }

  // -------------------------------------------------------------------------------------------------------- sending

  entries(texts: readonly string[], address: Address, live?: boolean): void {
    this.#outbox.entries(texts, address, live);
  }

  notify(method: string, params: unknown): void {
    this.#outbox.notice(notificationText(method, params));
  }

  room(): boolean {
    return this.#outbox.room();
  }

  onRoom(): void {
    this.session()?.wake();
    this.#regulate();
  }

  waitingBytes(): number {
    return this.#outbox.waitingBytes();
  }

  takenBytes(): number {
    return this.#outbox.takenBytes();
  }

  isSlow(): boolean {
    return this.#outbox.isSlow();
  }

  useBatches(): void {
    this.#batches = true;
    this.#outbox.useBatches();
  }

  /** The last check before the socket (IS2). What is in flight when a session ends is no mistake and not sent. */
  permits(address: Address): boolean {
    if (this.#ending) return false;
    const session = this.session();
    const fits =
      address.type === 'view'
        ? address.connectionId === this.id
        : address.sessionId === session?.sessionId && address.attachmentId === session.attachmentId;
    if (!fits) {
      const { meter, log } = this.#ports.node;
      meter.count('homing_misdelivered_total');
      log.error({ connectionId: this.id }, 'an entry was about to be sent to the wrong socket');
    }
    return fits;
  }

  // -------------------------------------------------------------------------------------------------------- who it is

  claims(): Claims | undefined {
    return this.#claims;
  }

  setClaims(given: Claims): void {
    this.#claims = given;
    this.#clock.set(given.expiresAtMs);
  }

  takeSeat(claims: Claims): void {
    this.#seat.take(claims);
  }

  bind(holding: Holding): void {
    this.#holding = holding;
    clearTimeout(this.#openTimer);
    this.#openTimer = undefined;
  }

  session(): AttachedSession | undefined {
    return this.#holding?.session;
  }

  get delivery(): Delivery {
    return this;
  }

  get viewers(): Viewers {
    const { commands, now, chance } = this.#ports.node.ports;
    this.#viewers ??= createViewers({
      ...{ commands, log: this.#ports.node.log, delivery: this, connectionId: this.id, now },
      random: () => chance.random(),
    });
    return this.#viewers;
  }

  // -------------------------------------------------------------------------------------------------------- the end

  end(code: number, reason: string): void {
    if (this.#ending) return;
    // What was answered before leaves in this turn; entries that wait are refused by `permits`.
    this.#ending = true;
    const socket = this.#socket;
    setImmediate(() => {
      this.#outbox.close();
      socket.close(code, reason);
      const timer = setTimeout(() => socket.terminate(), CLOSE_WITHIN_MS);
      socket.once('close', () => clearTimeout(timer));
    });
  }

  #notOpened(): void {
    if (this.#holding !== undefined) return;
    // Who asked in time is not to blame for a slow answer, and must not be told to stay away.
    if (this.#requests.redisFailed() || this.#requests.isOpening()) {
      this.end(CLOSE.TRY_LATER, 'Redis does not answer');
    } else this.end(CLOSE.UNAUTHENTICATED, `no session was opened within ${LIMITS.openWithinMs} ms`);
  }

  isGone(): boolean {
    return this.#ending || this.#socket.readyState !== this.#socket.OPEN;
  }

  gone(): Promise<void> {
    if (this.#socket.readyState === this.#socket.CLOSED) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenGone ??= [];
      this.#whenGone.push(resolve);
    });
  }

  #onClose(code: number): void {
    const { node } = this.#ports;
    const session = this.session();
    // What we closed ourselves says nothing about what its client could read.
    if (!this.#ending && session !== undefined) node.attachedPorts.careful.closed(session.sessionId, code);
    this.#ending = true;
    this.#seat.leave();
    clearTimeout(this.#openTimer);
    this.#outbox.close();
    this.#viewers?.close();
    this.#heartbeat.close();
    this.#clock.close();
    if (this.#holding !== undefined) node.table.leave(this.#holding);
    this.#ports.gone(this);
    for (const resolve of this.#whenGone ?? []) resolve();
  }

  // -------------------------------------------------------------------------------------------------------- signs of life

  ping(): void {
    this.#socket.ping();
  }

  onBeat(): void {
    this.#clock.onBeat();
  }

  answersPing(timeoutMs: number): Promise<boolean> {
    const socket = this.#socket;
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
      if (this.isGone()) onClose();
      else socket.ping();
    });
  }

  // -------------------------------------------------------------------------------------------------------- receiving

  #isBusy(): boolean {
    const tooMuchWaits = this.#outbox.waitingBytes() > 2 * this.#ports.node.options.outboxBytes;
    // Nothing may come any more that would look again: asked for room, it tells when there is some.
    if (tooMuchWaits) this.#outbox.room();
    return tooMuchWaits || this.#inFlight >= LIMITS.maxInFlightRequests;
  }

  #onMessage(data: Buffer, isBinary: boolean): void {
    this.#heartbeat.alive();
    if (this.#ending) return;
    if (isBinary) {
      this.end(CLOSE.PROTOCOL_ERROR, 'binary frames are not used');
      return;
    }
    this.#readAhead ??= [];
    this.#readAhead.push(data);
    this.#regulate();
  }

  /** Reading stops while too much is being worked on, or too many answers wait for a slow reader (DE5). */
  #regulate(): void {
    const ahead = this.#readAhead ?? [];
    while (!this.#ending && ahead.length > 0 && !this.#isBusy()) this.#take(ahead.shift() as Buffer);
    if (ahead.length === 0) this.#readAhead = undefined;
    const wait = ahead.length > 0 || this.#isBusy();
    if (wait && !this.#socket.isPaused) this.#socket.pause();
    else if (!wait && this.#socket.isPaused) this.#socket.resume();
  }

  #take(data: Buffer): void {
    const frame = parseFrame(data.toString('utf8'));
    const served =
      frame.type === 'batch'
        ? this.#serveBatch(frame.messages)
        : this.#serve(frame.message).then((answered) => this.#reply(answered));
    void served.then(() => this.#regulate());
  }

  #onNotification(method: string, params: unknown): void {
    if (method !== 'output.ack') return;
    const parsed = outputAck.safeParse(params);
    if (parsed.success) this.session()?.ack(parsed.data.cursors);
  }

  async #serve(message: Incoming): Promise<Answered | undefined> {
    switch (message.type) {
      case 'request': {
        this.#inFlight += 1;
        const answered = await this.#requests.answer(message);
        this.#inFlight -= 1;
        return answered;
      }
      case 'invalid':
        return { text: errorText(message.id, message.error) };
      case 'notification':
        this.#onNotification(message.method, message.params);
        return undefined;
      case 'response':
        return undefined;
    }
  }

  #reply(answered: Answered | undefined): void {
    if (answered === undefined) return;
    this.#outbox.answer(answered.text);
    answered.afterwards?.();
  }

  async #serveBatch(messages: readonly Incoming[]): Promise<void> {
    if (!this.#batches) {
      await Promise.all(messages.map(async (message) => this.#reply(await this.#serve(message))));
      return;
    }
    const answers = (await Promise.all(messages.map((message) => this.#serve(message)))).filter(
      (one) => one !== undefined,
    );
    if (answers.length > 0) this.#outbox.answer(`[${answers.map(({ text }) => text).join(',')}]`);
    for (const { afterwards } of answers) afterwards?.();
  }
}

export const createConnection = (ports: ConnectionPorts, socket: WebSocket, stream: Socket, guest: Guest): Connection =>
  new SocketConnection(ports, socket, stream, guest);
