/**
 * Tells a client that its token is about to end, and ends the connection when it has (4005). Most tokens last for hours, so a
 * timer is set only for what comes before the connection's heart has beaten again.
 */

import { CLOSE } from '../protocol/close-codes.js';
import type { Delivery } from './attached-session.js';

const WARN_MS = 60_000;
/** Timers hold 31 bits of milliseconds; a longer wait is taken in turns. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** A beat may be late by a wait of the process. */
const BEATS_AHEAD = 2;

export interface TokenClockPorts {
  readonly heartbeatMs: number;
  now(): number;
}

export interface TokenClock {
  /** The token that counts from now on ends then. */
  set(expiresAtMs: number): void;
  /** Called with each beat of the connection's heart. */
  onBeat(): void;
  close(): void;
}

class BeatingTokenClock implements TokenClock {
  readonly #ports: TokenClockPorts;
  readonly #host: Pick<Delivery, 'notify' | 'end'>;
  #expiresAtMs = Number.POSITIVE_INFINITY;
  #warned = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(ports: TokenClockPorts, host: Pick<Delivery, 'notify' | 'end'>) {
    this.#ports = ports;
    this.#host = host;
  }

  set(expiresAtMs: number): void {
    this.close();
    this.#expiresAtMs = expiresAtMs;
    this.#warned = false;
    // The answer that carries the new session comes first.
    if (expiresAtMs !== Number.POSITIVE_INFINITY) this.#lookIn(1);
  }

  onBeat(): void {
    if (this.#timer === undefined && this.#expiresAtMs !== Number.POSITIVE_INFINITY) this.#look();
  }

  #lookIn(waitMs: number): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#look();
    }, waitMs);
    this.#timer.unref();
  }

  #look(): void {
    const leftMs = this.#expiresAtMs - this.#ports.now();
    if (leftMs <= 0) {
      this.#host.end(CLOSE.TOKEN_EXPIRED, 'the token has expired');
      return;
    }
    if (!this.#warned && leftMs <= WARN_MS) {
      this.#warned = true;
      this.#host.notify('session.expiring', { expiresInMs: leftMs });
    }
    const toGo = this.#warned ? leftMs : leftMs - WARN_MS;
    if (toGo <= BEATS_AHEAD * this.#ports.heartbeatMs) this.#lookIn(Math.min(toGo, LONGEST_TIMER_MS));
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#expiresAtMs = Number.POSITIVE_INFINITY;
  }
}

export const createTokenClock = (ports: TokenClockPorts, host: Pick<Delivery, 'notify' | 'end'>): TokenClock =>
  new BeatingTokenClock(ports, host);
