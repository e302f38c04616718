/**
 * What waits for one socket, bounded and counted in bytes (DE5). Answers and notices are always taken, since a client
 * can only cause a bounded number of them; entries are taken by those who asked `room()` first. What is sent in one turn
 * of the event loop leaves in one write, and as one JSON array where the client asked for batches.
 */
import type { Socket } from 'node:net';
import type { WebSocket } from 'ws';
import type { Meter } from '../domain/ports.js';

/** Whose an entry is: checked once more at the moment it is sent (IS2). */
export type Address =
  | { readonly type: 'owner'; readonly sessionId: string; readonly attachmentId: string }
  | { readonly type: 'view'; readonly connectionId: string };

export interface Outbox {
  /** An answer: its own frame. */
  answer(text: string): void;
  /** A notification about the session. */
  notice(text: string): void;
  /** Ready notifications, one or more. `live`: they come from their worker at this moment, not from the log. */
  entries(texts: readonly string[], address: Address, live?: boolean): void;
  /** Whether entries may be pushed. When it was false, `onRoom` is called once it is worth asking again. */
  room(): boolean;
  /** Bytes that wait here or in the socket. */
  waitingBytes(): number;
  /** Whether entries are not pushed until the socket has taken some. */
  isSlow(): boolean;
  /** Bytes the peer's side has taken so far. */
  takenBytes(): number;
  useBatches(): void;
  /** Sends nothing more; what waits here is dropped. */
  close(): void;
}

export interface OutboxHost {
  /** The last check: false for an entry that must not be sent here. */
  permits(address: Address): boolean;
  onRoom(): void;
}

export interface OutboxOptions {
  readonly socket: WebSocket;
  readonly stream: Socket;
  readonly limitBytes: number;
  readonly meter: Meter;
  readonly host: OutboxHost;
}

/** One array frame holds at most about this. */
const MAX_BATCH_FRAME_BYTES = 256 * 1024;
/** Half a bound of hysteresis, or a slow socket would flip between pushing and pulling with every write. */
const LOW_SHARE = 0.5;
const MEASURE_EVERY_MS = 10;

type Item =
  | { readonly kind: 'frame'; readonly data: Buffer; readonly mayJoin: boolean }
  | { readonly kind: 'entries'; readonly frames: readonly Buffer[]; readonly address: Address; readonly live: boolean };

class SocketOutbox implements Outbox {
  readonly #socket: WebSocket;
  readonly #stream: Socket;
  readonly #limitBytes: number;
  readonly #meter: Meter;
  readonly #host: OutboxHost;
  #items: Item[] = [];
  #waiting = 0;
  #taken = 0;
  #batches = false;
  #full = false;
  #closed = false;
  #scheduled = false;
  #measuredAtMs = 0;

  constructor({ socket, stream, limitBytes, meter, host }: OutboxOptions) {
    this.#socket = socket;
    this.#stream = stream;
    this.#limitBytes = limitBytes;
    this.#meter = meter;
    this.#host = host;
  }

  answer(text: string): void {
    this.#frame(text, false);
  }

  notice(text: string): void {
    this.#frame(text, true);
  }

  entries(texts: readonly string[], address: Address, live = false): void {
    const frames = texts.map((text) => Buffer.from(text));
    this.#add(
      { kind: 'entries', frames, address, live },
      frames.reduce((sum, data) => sum + data.length, 0),
    );
  }

  #frame(text: string, mayJoin: boolean): void {
    const data = Buffer.from(text);
    this.#add({ kind: 'frame', data, mayJoin }, data.length);
  }

  #add(item: Item, bytes: number): void {
    if (this.#closed) return;
    this.#items.push(item);
    this.#waiting += bytes;
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#scheduled = false;
    if (this.#closed) return;
    const sending = this.#items;
    this.#items = [];
    this.#stream.cork();
    let entries = 0;
    let entryBytes = 0;
    let joined: Buffer[] = [];
    let joinedBytes = 0;
    let firstLive: Buffer | undefined;
    const leave = () => {
      if (joined.length > 0) this.#sendJoined(joined);
      joined = [];
      joinedBytes = 0;
    };
    for (const item of sending) {
      const frames = item.kind === 'entries' ? item.frames : [item.data];
      if (item.kind === 'entries' && !this.#host.permits(item.address)) {
        for (const data of frames) this.#waiting -= data.length;
        continue;
      }
      if (item.kind === 'entries') {
        entries += frames.length;
        if (item.live) firstLive ??= frames[0];
        for (const data of frames) entryBytes += data.length;
      }
      for (const data of frames) {
        if (!this.#batches || (item.kind === 'frame' && !item.mayJoin)) {
          leave();
          this.#send(data, data.length);
          continue;
        }
        if (joinedBytes + data.length > MAX_BATCH_FRAME_BYTES) leave();
        joined.push(data);
        joinedBytes += data.length;
      }
    }
    leave();
    this.#stream.uncork();
    if (entries === 0) return;
    // Once a write, not once an entry: counting must not be what delivery costs.
    this.#meter.count('homing_delivered_entries_total', {}, entries);
    this.#meter.count('homing_delivered_bytes_total', {}, entryBytes);
    if (firstLive !== undefined) this.#measure(firstLive);
  }

  /** A sample of what is live: a hundred a second of each connection tell as much as all. */
  #measure(entry: Buffer): void {
    const nowMs = Date.now();
    if (Math.abs(nowMs - this.#measuredAtMs) < MEASURE_EVERY_MS) return;
    this.#measuredAtMs = nowMs;
    const readAtMs = timeOf(entry);
    // Two clocks: a worker's may be ahead of this one.
    if (readAtMs === undefined) return;
    this.#meter.observe('homing_delivery_seconds', Math.max(0, nowMs - readAtMs) / 1_000);
  }

  #sendJoined(parts: readonly Buffer[]): void {
    const [only] = parts;
    if (only !== undefined && parts.length === 1) {
      this.#send(only, only.length);
      return;
    }
    const pieces: Buffer[] = [];
    let bytes = 0;
    for (const part of parts) {
      pieces.push(pieces.length === 0 ? OPEN : COMMA, part);
      bytes += part.length;
    }
    pieces.push(CLOSE);
    this.#send(Buffer.concat(pieces), bytes);
  }

  #send(data: Buffer, countedBytes: number): void {
    this.#socket.send(data, { binary: false }, () => {
      // Called too when the socket is gone; then nobody asks any more.
      this.#waiting -= countedBytes;
      this.#taken += countedBytes;
      if (!this.#full || this.#closed || this.#waiting > this.#limitBytes * LOW_SHARE) return;
      this.#full = false;
      this.#host.onRoom();
    });
  }

  room(): boolean {
    if (this.#waiting >= this.#limitBytes) this.#full = true;
    return !this.#full;
  }

  waitingBytes(): number {
    return this.#waiting;
  }

  isSlow(): boolean {
    return this.#full;
  }

  takenBytes(): number {
    return this.#taken;
  }

  useBatches(): void {
    this.#batches = true;
  }

  close(): void {
    this.#closed = true;
    this.#items = [];
  }
}

export const createOutbox = (options: OutboxOptions): Outbox => new SocketOutbox(options);

const TIME = Buffer.from('"ts":');
const MAX_DIGITS = 16;
const ZERO = 0x30;

/** The worker's time in an entry, found without parsing it: it stands before anything that a command wrote. */
export function timeOf(entry: Buffer): number | undefined {
  const start = entry.indexOf(TIME) + TIME.length;
  if (start < TIME.length) return undefined;
  let value = 0;
  let at = start;
  for (; at < start + MAX_DIGITS; at++) {
    const digit = (entry[at] ?? 0) - ZERO;
    if (digit < 0 || digit > 9) break;
    value = value * 10 + digit;
  }
  return at === start ? undefined : value;
}

const OPEN = Buffer.from('[');
const COMMA = Buffer.from(',');
const CLOSE = Buffer.from(']');
