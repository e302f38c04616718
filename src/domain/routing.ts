/**
 * What a node does with a message of a session's channel. Pure: the whole of who gets what, in one place (OW9, SE1, IS2).
 * A message is for exactly one session under exactly one attachment; everything else is dropped and counted.
 */
import type { AttachmentId, CommandId, SessionId } from '../protocol/ids.js';
import type { LiveMessage } from '../protocol/live-message.js';
import { decideEntries, type StreamState, type StreamStep } from './stream.js';

/** The session as this connection holds it. */
export interface HeldSession {
  readonly sessionId: SessionId;
  readonly attachmentId: AttachmentId;
  readonly rev: number;
  readonly streamOf: (commandId: CommandId) => StreamState | undefined;
  /** Whether entries may be pushed now: the socket keeps up and the bus is to be trusted. */
  readonly room: boolean;
}

export type LiveDecision =
  | { readonly type: 'ignore' }
  /** Another session's or another attachment's: caught by the fence. */
  | { readonly type: 'stale' }
  /** Another connection holds the session now: send nothing more, close with 4500. */
  | { readonly type: 'superseded' }
  /** The session is being closed: close with 4504. */
  | { readonly type: 'closing' }
  /** What the session owns changed. */
  | { readonly type: 'refresh'; readonly rev: number }
  /** Entries of a command this connection does not know it owns yet. */
  | { readonly type: 'unknown_command'; readonly commandId: CommandId; readonly toSeq: number }
  | { readonly type: 'stream'; readonly commandId: CommandId; readonly step: StreamStep };

const ENDED = '{"jsonrpc":"2.0","method":"command.ended"';

/** Whether the last of these notifications is `command.ended`; found without parsing. */
export const endsWithEnded = (texts: string): boolean => texts.startsWith(ENDED, texts.lastIndexOf('\n') + 1);

export function decideLive(session: HeldSession, message: LiveMessage): LiveDecision {
  switch (message.type) {
    case 'moved':
      return { type: message.attachmentId === session.attachmentId ? 'ignore' : 'superseded' };
    case 'closing':
      return { type: 'closing' };
    case 'rev':
      return message.rev > session.rev ? { type: 'refresh', rev: message.rev } : { type: 'ignore' };
    case 'entries': {
      if (message.sessionId !== session.sessionId || message.attachmentId !== session.attachmentId) {
        return { type: 'stale' };
      }
      const { commandId, fromSeq, toSeq, endOffset } = message;
      const state = session.streamOf(commandId);
      if (state === undefined) return { type: 'unknown_command', commandId, toSeq };
      const ends = endsWithEnded(message.texts);
      return {
        type: 'stream',
        commandId,
        step: decideEntries(state, { fromSeq, toSeq, endOffset, ends }, session.room),
      };
    }
  }
}
