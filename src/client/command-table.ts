/**
 * The commands a page follows: hands every entry to its command, once, and knows how far each was received and consumed,
 * in this page or, from the storage, in the one before it.
 */
import type { AppError } from '../errors.js';
import type { Entry, EntryType } from '../protocol/entries.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import {
  type CommandHandle,
  type CommandStream,
  type CommandStreamPorts,
  createCommandStream,
} from './command-handle.js';
import type { Memory } from './memory.js';
import type { Behind } from './session-state.js';

export interface CommandTablePorts {
  readonly request: CommandStreamPorts['request'];
  readonly memory: Memory;
  onConsumed(commandId: string, seq: number): void;
  /** A command that is new to this page. */
  onCommand(handle: CommandHandle): void;
  /** A command that was behind has arrived up to where it was. */
  onCaughtUp(): void;
}

export interface CommandTable {
  /** Those not yet consumed to their end. */
  readonly handles: ReadonlyMap<string, CommandHandle>;
  /** The handle of a command, new or known; undefined once its end was consumed. */
  follow(snapshot: Known, source: CommandHandle['source']): CommandHandle | undefined;
  /** The id stands for another command than before: what was known of it does not count (CO1). */
  renew(commandId: string): void;
  /** An entry from the server, as notification `command.<type>`. */
  receive(type: string, params: Record<string, unknown>): void;
  /** The last seq of each command that need not be sent again. */
  cursors(): Record<string, number>;
  /** What the answer to open or resume names and did not arrive yet. @param fresh history is listed, not sent (S5) */
  expect(snapshots: readonly CommandSnapshot[], fresh: boolean): Behind;
  /** What is left of it. */
  behind(): Behind;
  /** The session is attached and owns these (all of them, unless `more`): takes them up and views what it lost. */
  reconcile(snapshots: readonly CommandSnapshot[], more: boolean, source: 'resumed' | 'adopted'): void;
  /** Ends every handle that is not over. */
  fail(error: AppError): void;
}

type Known = Partial<CommandSnapshot> & { readonly commandId: string };

/** Commands that are over, remembered so that a late repeat of their entries is known as one. */
const MAX_FINISHED = 1_000;
/** The protocol's bound for one resume. */
const MAX_CURSORS = 1_000;

export function createCommandTable(ports: CommandTablePorts): CommandTable {
  const { request, memory, onConsumed, onCommand, onCaughtUp } = ports;
  const streams = new Map<string, CommandStream>();
  const handles = new Map<string, CommandHandle>();
  const finished = new Map<string, { readonly seq: number; readonly overAt: number }>();
  /** Up to where each command has to arrive before the session is live. */
  const targets = new Map<string, number>();

  function follow(snapshot: Known, source: CommandHandle['source']): CommandStream | undefined {
    const { commandId } = snapshot;
    if (isAnother(snapshot)) renew(commandId);
    const known = streams.get(commandId);
    known?.update(snapshot);
    if (known !== undefined || finished.has(commandId)) return known;
    const afterSeq = memory.cursors()[commandId] ?? Math.max(0, (snapshot.fromSeq ?? 1) - 1);
    const stream = createCommandStream(commandId, source, afterSeq, {
      request,
      onConsumed(seq) {
        memory.setCursor(commandId, seq);
        onConsumed(commandId, seq);
        if (stream.isOver() && seq >= stream.receivedSeq() && streams.get(commandId) === stream) finish(commandId, seq);
      },
    });
    stream.update(snapshot);
    streams.set(commandId, stream);
    handles.set(commandId, stream.handle);
    onCommand(stream.handle);
    return stream;
  }

  /** Its key was used again after it had expired, by whomever (CO1). */
  function isAnother({ commandId, createdAt = 0 }: Known): boolean {
    const overAt = finished.get(commandId)?.overAt ?? streams.get(commandId)?.overAt();
    return overAt !== undefined && createdAt > overAt;
  }

  function renew(commandId: string): void {
    finished.delete(commandId);
    memory.dropCursor(commandId);
    if (streams.get(commandId)?.isOver() !== true) return;
    streams.delete(commandId);
    handles.delete(commandId);
  }

  /** Nothing more to follow. Its cursor stays for a while: the acknowledgement may get lost. */
  function finish(commandId: string, seq: number): void {
    const overAt = streams.get(commandId)?.overAt() ?? Number.POSITIVE_INFINITY;
    streams.delete(commandId);
    handles.delete(commandId);
    finished.set(commandId, { seq, overAt });
    const [oldest] = finished.keys();
    if (finished.size <= MAX_FINISHED || oldest === undefined) return;
    finished.delete(oldest);
    memory.dropCursor(oldest);
  }

  /** Follows a command from the side that the session does not own (any more), so that its end still arrives. */
  async function view(commandId: string, stream: CommandStream): Promise<void> {
    try {
      await request('command.attach', { commandId, fromSeq: stream.receivedSeq() + 1 }, () => undefined);
    } catch (error) {
      stream.fail(error as Error);
      finish(commandId, stream.receivedSeq());
    }
  }

  const receivedOf = (commandId: string): number =>
    streams.get(commandId)?.receivedSeq() ?? finished.get(commandId)?.seq ?? memory.cursors()[commandId] ?? 0;

  function behind(): Behind {
    let entries = 0;
    for (const [commandId, target] of targets) entries += Math.max(0, target - receivedOf(commandId));
    return { commands: targets.size, entries };
  }

  function arrived(commandId: string, seq: number): void {
    const target = targets.get(commandId);
    if (target === undefined || seq < target) return;
    targets.delete(commandId);
    onCaughtUp();
  }

  return {
    handles,
    behind,
    expect(snapshots, fresh) {
      targets.clear();
      for (const { commandId, headSeq, state, fromSeq = 1 } of snapshots) {
        if (fresh && state === 'ended') continue;
        if (headSeq > Math.max(receivedOf(commandId), fromSeq - 1)) targets.set(commandId, headSeq);
      }
      return behind();
    },
    follow: (snapshot, source) => follow(snapshot, source)?.handle,
    renew,
    receive(type, params) {
      const entry = { type: type as EntryType, ...params } as Entry;
      const { commandId, seq } = entry;
      if (typeof commandId !== 'string' || typeof seq !== 'number' || finished.has(commandId)) return;
      const fromSeq = entry.type === 'gap' ? entry.fromSeq : seq;
      const source = params.view === true ? 'viewed' : 'adopted';
      (streams.get(commandId) ?? follow({ commandId, fromSeq }, source))?.receive(entry);
      arrived(commandId, seq);
    },
    cursors() {
      const cursors = new Map(Object.entries(memory.cursors()));
      for (const [commandId, { seq }] of finished) cursors.set(commandId, seq);
      for (const [commandId, stream] of streams) {
        cursors.delete(commandId); // To the end of the list: if it must be cut, the live ones stay.
        cursors.set(commandId, stream.receivedSeq());
      }
      return Object.fromEntries([...cursors].slice(-MAX_CURSORS));
    },
    reconcile(snapshots, more, source) {
      const listed = new Set<string>();
      for (const snapshot of snapshots) {
        const { commandId } = snapshot;
        listed.add(commandId);
        if (isAnother(snapshot)) renew(commandId);
        const consumedSeq = memory.cursors()[commandId];
        // An acknowledgement that was lost with the former connection, or with the former page.
        if (consumedSeq !== undefined && consumedSeq > snapshot.ackedSeq) onConsumed(commandId, consumedSeq);
        follow(snapshot, source);
      }
      if (more) return;
      for (const commandId of Object.keys(memory.cursors())) {
        if (!listed.has(commandId) && !streams.has(commandId)) memory.dropCursor(commandId);
      }
      for (const [commandId, stream] of streams) {
        if (!listed.has(commandId) && !stream.isOver()) void view(commandId, stream);
      }
    },
    fail(error) {
      for (const stream of streams.values()) stream.fail(error);
    },
  };
}
