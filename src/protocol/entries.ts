/**
 * The entries of a command's log, and their one text form.
 *
 * A worker serialises an entry once, as a complete JSON-RPC notification; the same text is stored in the log, published
 * and sent to the owner's socket without being parsed again. Only doors that need the parts (HTTP, viewers) parse it.
 */
import type { CommandId } from './ids.js';

export type EndReason =
  | 'exited'
  | 'signaled'
  | 'cancelled'
  | 'timed_out'
  | 'idle_timeout'
  | 'expired'
  | 'spawn_failed'
  | 'output_limit'
  | 'out_of_memory'
  | 'resource_limit'
  | 'owner_gone'
  | 'worker_drained'
  | 'lost'
  | 'kill_failed'
  | 'refused';

export type GapReason = 'flood' | 'spool' | 'trimmed' | 'expired' | 'redis_lost';
export type OutputStream = 'out' | 'err' | 'pty';
export type Containment = 'pidns' | 'group';

export interface Outcome {
  readonly reason: EndReason;
  readonly code: number | null;
  readonly signal: string | null;
  readonly durationMs: number;
  readonly outputBytes: number;
  /** The last 2,000 characters of output. */
  readonly tail: string;
  /** Processes of the command that were still there when it ended. */
  readonly leftovers: number;
  /** A sentence. */
  readonly error?: string;
}

interface EntryBase {
  readonly commandId: CommandId;
  readonly seq: number;
  /** Worker's clock, ms since 1970. */
  readonly ts: number;
}

export type Entry =
  | (EntryBase & {
      readonly type: 'started';
      readonly pid: number;
      readonly workerId: string;
      readonly containment: Containment;
      readonly originClosed?: boolean;
      /** W3C traceparent, where the operator traces. */
      readonly trace?: string;
    })
  | (EntryBase & {
      readonly type: 'output';
      /** Offset of the first byte in the whole masked output of all streams. */
      readonly at: number;
      readonly stream: OutputStream;
      readonly data?: string;
      readonly base64?: string;
    })
  | (EntryBase & {
      readonly type: 'gap';
      readonly fromSeq: number;
      readonly toSeq: number;
      readonly bytes?: number;
      readonly reason: GapReason;
    })
  | (EntryBase & {
      readonly type: 'watch';
      readonly pattern?: string;
      readonly text?: string;
      readonly suppressed?: number;
      readonly disabled?: boolean;
      readonly why?: string;
    })
  | (EntryBase & { readonly type: 'heartbeat'; readonly elapsedMs: number; readonly bytesSinceLast: number })
  | (EntryBase & { readonly type: 'ended'; readonly outcome: Outcome; readonly trace?: string });

export type EntryType = Entry['type'];

/** One letter for each type in the log and on the channel. */
export const ENTRY_LETTER = {
  started: 's',
  output: 'o',
  gap: 'g',
  watch: 'w',
  heartbeat: 'h',
  ended: 'e',
} as const satisfies Record<EntryType, string>;

export type EntryLetter = (typeof ENTRY_LETTER)[EntryType];

/** An entry as it is stored and sent: its place in the log and its ready text. */
export interface StoredEntry {
  readonly letter: EntryLetter;
  /** Differs from `seq` only for a gap, which occupies the range it replaces. */
  readonly fromSeq: number;
  readonly seq: number;
  /** Masked output bytes of the command up to and including this entry. */
  readonly endOffset: number;
  /** A complete JSON-RPC notification without line breaks. */
  readonly text: string;
}

/** The text of an entry: `{"jsonrpc":"2.0","method":"command.<type>","params":{…}}`, one line. */
export function serializeEntry(entry: Entry): string {
  const { type, ...params } = entry;
  return `{"jsonrpc":"2.0","method":"command.${type}","params":${JSON.stringify(params)}}`;
}

/** The same notification marked as sent to a viewer (`view: true`), made without parsing. */
export function markAsView(text: string): string {
  const at = text.indexOf('"params":{') + '"params":{'.length;
  return `${text.slice(0, at)}"view":true,${text.slice(at)}`;
}

/** The notification's method and params; the text was made by `serializeEntry` or by the end-without-worker script. */
export function parseEntryText(text: string): { method: string; params: Record<string, unknown> & { seq: number } } {
  return JSON.parse(text) as { method: string; params: Record<string, unknown> & { seq: number } };
}
