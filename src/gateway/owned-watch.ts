/**
 * Notices when what a session owns has changed, by its rev, and reads it anew (S4). Changes the session itself asked for
 * raise the rev too; their answers tell by how much, so that they cost no reading.
 */
import type { Log, OwnedCommand, SessionDirectory } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { SessionId } from '../protocol/ids.js';

/** Most commands looked at; those beyond are found when others are done. */
const MAX_OWNED = 2_000;

export type OwnedWatch = ReturnType<typeof createOwnedWatch>;

export function createOwnedWatch(options: {
  readonly sessions: Pick<SessionDirectory, 'owned'>;
  readonly log: Log;
  readonly sessionId: SessionId;
  /** Called before a reading: what is returned is handed to `apply`. */
  before(): readonly string[];
  /** @param gone of those before, what is no longer owned */
  apply(owned: readonly OwnedCommand[], gone: readonly string[]): void;
}) {
  const { sessions, log, sessionId, before, apply } = options;
  let state: 'idle' | 'watching' | 'stopped' = 'idle';
  let rev = 0;
  /** Highest rev heard of since the last reading was asked for. */
  let heardRev = 0;
  let wanted = false;
  let reading = false;
  /** Requests of the session itself that are changing what it owns; they are answered before what they cause. */
  let changing = 0;
  /** Revs that own submits made, whose answers came out of order. */
  const ownRevs = new Set<number>();

  const isBehind = () => heardRev > rev || wanted;

  function look(): void {
    if (state === 'watching' && changing === 0 && !reading && isBehind()) void read();
  }

  async function read(): Promise<void> {
    reading = true;
    try {
      do {
        const known = before();
        const revBefore = rev;
        // What was heard before this reading is in it, unless Redis went back; waiting for more would never end.
        heardRev = 0;
        wanted = false;
        ownRevs.clear();
        const owned = await sessions.owned(sessionId, MAX_OWNED);
        if ((state as string) === 'stopped') return;
        rev = rev === revBefore ? owned.rev : Math.max(rev, owned.rev);
        const present = new Set(owned.commands.map(({ snapshot }) => snapshot.commandId));
        apply(owned.commands, owned.more ? [] : known.filter((id) => !present.has(id)));
      } while (isBehind() && changing === 0);
    } catch (error) {
      // The next sweep looks again.
      wanted = true;
      log.debug({ sessionId, fault: messageOf(error) }, 'could not read what a session owns');
    } finally {
      reading = false;
    }
  }

  return {
    rev: () => rev,
    isBehind,

    /** What was read with this rev is known. */
    start(knownRev: number): void {
      rev = knownRev;
    },

    /** From now on readings are made; those asked for before are made at once. */
    watch(): void {
      if (state === 'idle') state = 'watching';
      look();
    },

    heard(heard: number): void {
      heardRev = Math.max(heardRev, heard);
      look();
    },

    /** The sweep found this rev. A lower one means that Redis went back to older data. */
    compare(found: number): void {
      if (found < rev) wanted = true;
      heardRev = Math.max(heardRev, found);
      look();
    },

    want(): void {
      wanted = true;
      look();
    },

    beginChange(): void {
      changing += 1;
    },

    /** A submit of its own made this rev. */
    madeRev(made: number): void {
      if (made <= rev) return;
      ownRevs.add(made);
      while (ownRevs.delete(rev + 1)) rev += 1;
      heardRev = Math.max(heardRev, made);
    },

    endChange(): void {
      changing -= 1;
    },

    look,

    stop(): void {
      state = 'stopped';
    },
  };
}
