/**
 * What a page keeps across a reload: who its session is and how far it has consumed each command. The page nonce is not
 * among it, so that a duplicated tab is told apart (SE4).
 */

/** `sessionStorage` fits. Not `localStorage`: tabs would share one session and take it from each other. */
export interface SessionStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export interface Identity {
  readonly sessionId: string;
  readonly resumeToken: string;
}

export interface Memory {
  identity(): Identity | undefined;
  /** Consumed seqs that a former page of this session left. */
  cursors(): Readonly<Record<string, number>>;
  setIdentity(identity: Identity): void;
  setCursor(commandId: string, seq: number): void;
  dropCursor(commandId: string): void;
  /** Writes what changed to the storage. */
  save(): void;
  /** Forgets the session and its cursors. */
  clear(): void;
}

interface Stored {
  readonly v: 1;
  readonly sessionId: string;
  readonly resumeToken: string;
  readonly cursors: Record<string, number>;
}

function parseStored(text: string | null): Stored | undefined {
  if (text === null) return undefined;
  try {
    const value = JSON.parse(text) as Partial<Stored> | null;
    if (value?.v !== 1 || typeof value.sessionId !== 'string' || typeof value.resumeToken !== 'string')
      return undefined;
    const cursors = Object.entries(value.cursors ?? {}).filter(([, seq]) => Number.isSafeInteger(seq) && seq >= 0);
    return { v: 1, sessionId: value.sessionId, resumeToken: value.resumeToken, cursors: Object.fromEntries(cursors) };
  } catch {
    return undefined; // Another program's text under our key: as good as nothing.
  }
}

/** @param key names the server and the conversation, so that two of them on one page keep apart */
export function createMemory(storage: SessionStorage | undefined, key: string): Memory {
  const stored = parseStored(storage?.getItem(key) ?? null);
  let identity: Identity | undefined = stored && { sessionId: stored.sessionId, resumeToken: stored.resumeToken };
  let cursors = new Map(Object.entries(stored?.cursors ?? {}));
  let dirty = false;

  return {
    identity: () => identity,
    cursors: () => Object.fromEntries(cursors),
    setIdentity(next) {
      if (next.sessionId !== identity?.sessionId) cursors = new Map();
      identity = next;
      dirty = true;
    },
    setCursor(commandId, seq) {
      cursors.set(commandId, seq);
      dirty = true;
    },
    dropCursor(commandId) {
      dirty = cursors.delete(commandId) || dirty;
    },
    save() {
      if (!dirty || storage === undefined || identity === undefined) return;
      dirty = false;
      const value: Stored = { v: 1, ...identity, cursors: Object.fromEntries(cursors) };
      try {
        storage.setItem(key, JSON.stringify(value));
      } catch {
        // Full or forbidden: a reload then starts from the acknowledged seqs, which loses nothing.
      }
    },
    clear() {
      identity = undefined;
      cursors = new Map();
      dirty = false;
      storage?.removeItem(key);
    },
  };
}
