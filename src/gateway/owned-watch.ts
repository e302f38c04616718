/**
 * Notices when what a session owns has changed, by its rev, and reads it anew (S4). Changes the session itself asked for
 * raise the rev too; their answers tell by how much, so that they cost no reading.
 */
import type { Log, OwnedCommand, SessionDirectory } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { SessionId } from '../protocol/ids.js';

/** Most commands looked at; those beyond are found when others are done. */
const MAX_OWNED = 2_000;

export interface OwnedPorts {
  readonly sessions: Pick<SessionDirectory, 'owned'>;
  readonly log: Log;
}

/** The session whose commands they are. */
export interface OwnedHost {
  readonly sessionId: SessionId;
  /** Called before a reading: what is returned is handed to `ownsNow`. */
  followed(): readonly string[];
  /** @param gone of those before, what is no longer owned */
  ownsNow(owned: readonly OwnedCommand[], gone: readonly string[]): void;
}

class OwnedWatch {
  readonly #ports: OwnedPorts;
  readonly #host: OwnedHost;
  #state: 'idle' | 'watching' | 'stopped' = 'idle';
  #rev = 0;
  /** Highest rev heard of since the last reading was asked for. */
  #heardRev = 0;
  #wanted = false;
  #reading = false;
  /** Requests of the session itself that are changing what it owns; they are answered before what they cause. */
  #changing = 0;
  /** Revs that own submits made, whose answers came out of order. */
  #ownRevs: Set<number> | undefined;

  constructor(ports: OwnedPorts, host: OwnedHost) {
    this.#ports = ports;
    this.#host = host;
  }

  rev(): number {
    return this.#rev;
  }

  isBehind(): boolean {
    return this.#heardRev > this.#rev || this.#wanted;
  }

  look(): void {
    if (this.#state === 'watching' && this.#changing === 0 && !this.#reading && this.isBehind()) void this.#read();
  }

  async #read(): Promise<void> {
    const { sessionId } = this.#host;
    this.#reading = true;
    try {
      do {
        const known = this.#host.followed();
        const revBefore = this.#rev;
        // What was heard before this reading is in it, unless Redis went back; waiting for more would never end.
        this.#heardRev = 0;
        this.#wanted = false;
        this.#ownRevs = undefined;
        const owned = await this.#ports.sessions.owned(sessionId, MAX_OWNED);
        if (this.#state === 'stopped') return;
        this.#rev = this.#rev === revBefore ? owned.rev : Math.max(this.#rev, owned.rev);
        const present = new Set(owned.commands.map(({ snapshot }) => snapshot.commandId));
        this.#host.ownsNow(owned.commands, owned.more ? [] : known.filter((id) => !present.has(id)));
      } while (this.isBehind() && this.#changing === 0);
    } catch (error) {
      // The next sweep looks again.
      this.#wanted = true;
      this.#ports.log.debug({ sessionId, fault: messageOf(error) }, 'could not read what a session owns');
    } finally {
      this.#reading = false;
    }
  }

  /** What was read with this rev is known. */
  start(knownRev: number): void {
    this.#rev = knownRev;
  }

  /** From now on readings are made; those asked for before are made at once. */
  watch(): void {
    if (this.#state === 'idle') this.#state = 'watching';
    this.look();
  }

  heard(heard: number): void {
    this.#heardRev = Math.max(this.#heardRev, heard);
    this.look();
  }

  /** The sweep found this rev. A lower one means that Redis went back to older data. */
  compare(found: number): void {
    if (found < this.#rev) this.#wanted = true;
    this.#heardRev = Math.max(this.#heardRev, found);
    this.look();
  }

  want(): void {
    this.#wanted = true;
    this.look();
  }

  beginChange(): void {
    this.#changing += 1;
  }

  /** A submit of its own made this rev. */
  madeRev(made: number): void {
    if (made <= this.#rev) return;
    this.#ownRevs ??= new Set();
    this.#ownRevs.add(made);
    while (this.#ownRevs.delete(this.#rev + 1)) this.#rev += 1;
    if (this.#ownRevs.size === 0) this.#ownRevs = undefined;
    this.#heardRev = Math.max(this.#heardRev, made);
  }

  endChange(): void {
    this.#changing -= 1;
  }

  stop(): void {
    this.#state = 'stopped';
  }
}

export type { OwnedWatch };

export const createOwnedWatch = (ports: OwnedPorts, host: OwnedHost) => new OwnedWatch(ports, host);
