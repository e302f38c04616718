/**
 * What a page knows of one conversation, as a pure reducer: its session and connection, its commands, its notices.
 * It knows no socket, no clock and no terminal; `session-driver.ts` feeds it.
 */
import type { CommandSnapshot, Entry, OwnerWhy, ReplacedWhy, SessionState } from '../../client/index.js';
import { type ConnectionView, connectionViewOf } from './connection.js';
import { addNotice, type Notice, type NoticeDraft, noticeOfEnd, noticeOfMove, noticeOfWatch } from './notices.js';

/** How far a wish to end a command has come. */
export type KillStage =
  | { readonly stage: 'asking'; readonly signal: string; readonly graceMs: number }
  /** The cluster took the wish; SIGKILL follows at `killAtMs` if the command is still there. */
  | { readonly stage: 'signalled'; readonly signal: string; readonly sentAtMs: number; readonly killAtMs: number }
  | { readonly stage: 'refused'; readonly message: string };

export interface Command {
  readonly commandId: string;
  readonly state: CommandSnapshot['state'];
  readonly snapshot: Partial<CommandSnapshot>;
  /** Last seq that this page has consumed; 0 where it follows none. */
  readonly seenSeq: number;
  readonly outputBytes: number;
  readonly kill?: KillStage;
  /** Set while entries up to this seq are missing after a reconnect. */
  readonly catchUpTo?: number;
  /** Why its entries can not be had. */
  readonly failure?: string;
}

/** A tab of the conversation, as the node lists it. */
export interface SessionFacts {
  readonly sessionId: string;
  readonly state: string;
  readonly lastActiveAt: number;
  readonly owned: number;
}

export interface ConversationState {
  readonly name: string;
  readonly sessionId: string;
  /** Sessions this very tab had before. */
  readonly formerSessionIds: readonly string[];
  readonly connection: ConnectionView;
  /** Newest first. */
  readonly commands: readonly Command[];
  readonly list: { readonly state: 'loading' | 'ready' | 'failed'; readonly message?: string; readonly next?: string };
  readonly sessions: readonly SessionFacts[];
  readonly notices: readonly Notice[];
  readonly selectedId: string | undefined;
  /** Set after the session could not be resumed and a new one took its place. */
  readonly replaced?: ReplacedWhy;
}

export type ConversationEvent =
  | { readonly type: 'status'; readonly status: SessionState; readonly sessionId: string; readonly nowMs: number }
  | { readonly type: 'attached'; readonly heads: ReadonlyMap<string, number> }
  | { readonly type: 'replaced'; readonly why: ReplacedWhy; readonly formerSessionId: string; readonly nowMs: number }
  | { readonly type: 'draining'; readonly byMs: number }
  | {
      readonly type: 'listed';
      readonly snapshots: readonly CommandSnapshot[];
      readonly next?: string;
      readonly first: boolean;
    }
  | { readonly type: 'list_failed'; readonly message: string }
  | { readonly type: 'snapshot'; readonly snapshot: Partial<CommandSnapshot> & { readonly commandId: string } }
  | { readonly type: 'moved'; readonly commandId: string; readonly why: OwnerWhy; readonly nowMs: number }
  | { readonly type: 'progress'; readonly seen: ReadonlyMap<string, { readonly seq: number; readonly bytes: number }> }
  | { readonly type: 'entry'; readonly entry: Entry; readonly nowMs: number }
  | { readonly type: 'failed'; readonly commandId: string; readonly message: string }
  | { readonly type: 'kill'; readonly commandId: string; readonly kill: KillStage }
  | { readonly type: 'select'; readonly commandId: string | undefined }
  | { readonly type: 'sessions'; readonly sessions: readonly SessionFacts[] }
  | { readonly type: 'notices_seen'; readonly commandId?: string }
  | { readonly type: 'notice_dismissed'; readonly id: number }
  | { readonly type: 'replaced_seen' };

export interface RestoredConversation {
  readonly selectedId?: string;
  readonly notices?: readonly Notice[];
  readonly formerSessionIds?: readonly string[];
}

export function emptyConversation(name: string, restored: RestoredConversation = {}): ConversationState {
  return {
    name,
    sessionId: '',
    formerSessionIds: restored.formerSessionIds ?? [],
    connection: { state: 'connecting', attempt: 0 },
    commands: [],
    list: { state: 'loading' },
    sessions: [],
    notices: restored.notices ?? [],
    selectedId: restored.selectedId,
  };
}

export const commandOf = (state: ConversationState, commandId: string | undefined): Command | undefined =>
  commandId === undefined ? undefined : state.commands.find((command) => command.commandId === commandId);

export const isMine = (state: ConversationState, command: Command): boolean =>
  command.snapshot.ownerSessionId === state.sessionId && state.sessionId !== '';

/** Without an owner and not over: it waits for somebody to adopt it (OW4, OW11). */
export const isUnowned = (command: Command): boolean =>
  command.state !== 'ended' && command.snapshot.ownerSessionId === null;

/** Entries that are still missing after a reconnect, and of how many commands. */
export function backlogOf(state: ConversationState): { readonly commands: number; readonly entries: number } {
  let commands = 0;
  let entries = 0;
  for (const { catchUpTo, seenSeq } of state.commands) {
    if (catchUpTo === undefined) continue;
    commands += 1;
    entries += catchUpTo - seenSeq;
  }
  return { commands, entries };
}

export function reduceConversation(state: ConversationState, event: ConversationEvent): ConversationState {
  switch (event.type) {
    case 'status':
      return withStatus(state, event);
    case 'attached':
      return mapCommands(state, (command) => {
        const head = event.heads.get(command.commandId) ?? 0;
        return head > command.seenSeq ? { ...command, catchUpTo: head } : withoutCatchUp(command);
      });
    case 'replaced':
      return {
        ...state,
        replaced: event.why,
        // The tab that a duplicate was made from is not this one's past.
        formerSessionIds:
          event.why === 'SESSION_IN_USE' ? state.formerSessionIds : remembered(state, event.formerSessionId),
      };
    case 'draining':
      return state.connection.state === 'live'
        ? { ...state, connection: { state: 'live', leavingByMs: event.byMs } }
        : state;
    case 'listed':
      return listed(state, event);
    case 'list_failed':
      return { ...state, list: { ...state.list, state: 'failed', message: event.message } };
    case 'snapshot':
      return { ...state, commands: merge(state.commands, [event.snapshot]) };
    case 'moved':
      return moved(state, event);
    case 'progress':
      return mapCommands(state, (command) => {
        const seen = event.seen.get(command.commandId);
        if (seen === undefined) return command;
        const next = {
          ...command,
          seenSeq: Math.max(command.seenSeq, seen.seq),
          outputBytes: Math.max(command.outputBytes, seen.bytes),
        };
        return next.catchUpTo !== undefined && next.seenSeq >= next.catchUpTo ? withoutCatchUp(next) : next;
      });
    case 'entry':
      return entered(state, event.entry, event.nowMs);
    case 'failed':
      return mapCommand(state, event.commandId, (command) => withoutCatchUp({ ...command, failure: event.message }));
    case 'kill':
      return mapCommand(state, event.commandId, (command) =>
        command.state === 'ended' ? command : { ...command, kill: event.kill },
      );
    case 'select':
      return { ...state, selectedId: event.commandId, notices: seen(state.notices, event.commandId) };
    case 'sessions':
      return { ...state, sessions: event.sessions };
    case 'notices_seen':
      return { ...state, notices: seen(state.notices, event.commandId) };
    case 'notice_dismissed':
      return { ...state, notices: state.notices.filter(({ id }) => id !== event.id) };
    case 'replaced_seen': {
      const { replaced: _, ...rest } = state;
      return rest;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------- steps

function withStatus(
  state: ConversationState,
  { status, sessionId, nowMs }: Extract<ConversationEvent, { type: 'status' }>,
): ConversationState {
  const connection = connectionViewOf(status, nowMs);
  const next = { ...state, connection, sessionId: sessionId === '' ? state.sessionId : sessionId };
  const lost = connection.state === 'over' && (connection.cause === 'closed' || connection.cause === 'superseded');
  // Nothing comes to it any more; what it had is not this page's now.
  return lost ? { ...next, sessionId: '', formerSessionIds: remembered(state, state.sessionId) } : next;
}

const remembered = (state: ConversationState, sessionId: string): readonly string[] =>
  sessionId === '' || state.formerSessionIds.includes(sessionId)
    ? state.formerSessionIds
    : [...state.formerSessionIds, sessionId].slice(-20);

function listed(
  state: ConversationState,
  { snapshots, next, first }: Extract<ConversationEvent, { type: 'listed' }>,
): ConversationState {
  let commands = merge(state.commands, snapshots);
  if (first && next === undefined) {
    // The whole list: what ended and is not in it has expired.
    const there = new Set(snapshots.map(({ commandId }) => commandId));
    commands = commands.filter(({ commandId, state }) => state !== 'ended' || there.has(commandId));
  }
  // A repeated first page must not forget that older pages were loaded.
  const more = first && state.list.state === 'ready' ? state.list.next : next;
  return { ...state, commands, list: more === undefined ? { state: 'ready' } : { state: 'ready', next: more } };
}

function moved(
  state: ConversationState,
  { commandId, why, nowMs }: Extract<ConversationEvent, { type: 'moved' }>,
): ConversationState {
  const snapshot = { commandId, ownerSessionId: state.sessionId, why };
  const next = { ...state, commands: merge(state.commands, [snapshot]) };
  const command = commandOf(next, commandId);
  // What this tab asked for itself is no news to it.
  if (command === undefined || why === 'adopted') return next;
  return withNotice(next, noticeOfMove(command, why, nowMs));
}

function entered(state: ConversationState, entry: Entry, nowMs: number): ConversationState {
  const known = merge(state.commands, [{ commandId: entry.commandId }]);
  const next = mapCommand({ ...state, commands: known }, entry.commandId, (command) => applyEntry(command, entry));
  const command = commandOf(next, entry.commandId);
  if (command === undefined || !isMine(state, command)) return next;
  if (entry.type === 'ended') return withNotice(next, noticeOfEnd(command, entry.outcome, nowMs));
  if (entry.type === 'watch') return withNotice(next, noticeOfWatch(command, entry, nowMs));
  return next;
}

function applyEntry(command: Command, entry: Entry): Command {
  if (entry.type === 'started') {
    const { workerId, containment, ts } = entry;
    const snapshot = { startedAt: ts, ...command.snapshot, workerId, containment };
    return { ...command, state: later(command.state, 'running'), snapshot };
  }
  if (entry.type !== 'ended') return command;
  const { kill: _, ...rest } = withoutCatchUp(command);
  return {
    ...rest,
    state: 'ended',
    seenSeq: Math.max(command.seenSeq, entry.seq),
    outputBytes: Math.max(command.outputBytes, entry.outcome.outputBytes),
    snapshot: { ...command.snapshot, endedAt: entry.ts, outcome: entry.outcome },
  };
}

// ------------------------------------------------------------------------------------------------------------ common

type Known = Partial<CommandSnapshot> & { readonly commandId: string };

const ORDER = { queued: 0, running: 1, ended: 2 } as const;

/** States only move forward: a list that was made a moment ago does not undo an entry. */
const later = (a: Command['state'], b: Command['state']): Command['state'] => (ORDER[b] > ORDER[a] ? b : a);

function merge(commands: readonly Command[], snapshots: readonly Known[]): readonly Command[] {
  const byId = new Map(commands.map((command) => [command.commandId, command]));
  let added = false;
  for (const snapshot of snapshots) {
    const { commandId } = snapshot;
    const known = byId.get(commandId);
    added ||= known === undefined || known.snapshot.createdAt !== (snapshot.createdAt ?? known.snapshot.createdAt);
    byId.set(
      commandId,
      mergeOne(known === undefined || isOther(known, snapshot) ? newCommand(commandId) : known, snapshot),
    );
  }
  const all = [...byId.values()];
  return added ? all.sort(newestFirst) : all;
}

/** Made after the known one ended: its key was used again when that had expired (CO1). */
const isOther = ({ state, snapshot }: Command, { createdAt = 0 }: Known): boolean =>
  state === 'ended' && createdAt > Math.max(snapshot.createdAt ?? 0, snapshot.endedAt ?? Number.POSITIVE_INFINITY);

const newCommand = (commandId: string): Command => ({
  commandId,
  state: 'queued',
  snapshot: { commandId },
  seenSeq: 0,
  outputBytes: 0,
});

/** Where it stands in line is as the newest whole snapshot says, also when that says nothing. */
function forgetLine({ position, held, ...rest }: Partial<CommandSnapshot>, newer: Known): Partial<CommandSnapshot> {
  const whole = newer.createdAt !== undefined;
  return {
    ...rest,
    ...(whole || position === undefined ? {} : { position }),
    ...(whole || held === undefined ? {} : { held }),
  };
}

function mergeOne(command: Command, snapshot: Known): Command {
  const state = later(command.state, snapshot.state ?? command.state);
  const next = {
    ...command,
    state,
    snapshot: { ...forgetLine(command.snapshot, snapshot), ...snapshot },
    outputBytes: Math.max(command.outputBytes, snapshot.outputBytes ?? 0),
  };
  if (state !== 'ended' || next.kill === undefined) return next;
  const { kill: _, ...rest } = next;
  return rest;
}

/** What was just asked for has no time yet, and is the newest. */
const createdAt = ({ snapshot }: Command): number => snapshot.createdAt ?? Number.MAX_SAFE_INTEGER;

const newestFirst = (a: Command, b: Command): number => createdAt(b) - createdAt(a);

function withoutCatchUp(command: Command): Command {
  if (command.catchUpTo === undefined) return command;
  const { catchUpTo: _, ...rest } = command;
  return rest;
}

function mapCommands(state: ConversationState, change: (command: Command) => Command): ConversationState {
  let changed = false;
  const commands = state.commands.map((command) => {
    const next = change(command);
    changed ||= next !== command;
    return next;
  });
  return changed ? { ...state, commands } : state;
}

const mapCommand = (state: ConversationState, commandId: string, change: (command: Command) => Command) =>
  mapCommands(state, (command) => (command.commandId === commandId ? change(command) : command));

function withNotice(state: ConversationState, draft: NoticeDraft): ConversationState {
  return { ...state, notices: addNotice(state.notices, draft) };
}

/** Marks notices as seen: those of one command, or all. */
function seen(notices: readonly Notice[], commandId: string | undefined): readonly Notice[] {
  return notices.map((notice) =>
    !notice.seen && (commandId === undefined || notice.commandId === commandId) ? { ...notice, seen: true } : notice,
  );
}
