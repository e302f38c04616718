/**
 * What travels on a session's channel. A message is text: a header line, then (for entries) one ready notification a line.
 * The header is all a node reads; the notifications are forwarded as they are.
 *
 *   e <sessionId> <attachmentId> <commandId> <fromSeq> <toSeq> <endOffset>\n<text>\n<text>…   entries were appended
 *   m <attachmentId>                                                                        the attachment is now this one
 *   r <rev>                                                                                 what the session owns changed
 *   x                                                                                       the session is closing
 */
import type { AttachmentId, CommandId, SessionId } from './ids.js';

export type LiveMessage =
  | {
      readonly type: 'entries';
      readonly sessionId: SessionId;
      /** Empty while the session is away. */
      readonly attachmentId: AttachmentId | '';
      readonly commandId: CommandId;
      readonly fromSeq: number;
      readonly toSeq: number;
      readonly endOffset: number;
      /** The notifications, joined by line breaks. */
      readonly texts: string;
    }
  | { readonly type: 'moved'; readonly attachmentId: AttachmentId }
  | { readonly type: 'rev'; readonly rev: number }
  | { readonly type: 'closing' };

/** Parses a message of a session channel; undefined for what a newer version may send. */
export function parseLiveMessage(message: string): LiveMessage | undefined {
  const lineEnd = message.indexOf('\n');
  const header = (lineEnd < 0 ? message : message.slice(0, lineEnd)).split(' ');
  switch (header[0]) {
    case 'e': {
      const [, sessionId, attachmentId, commandId, fromSeq, toSeq, endOffset] = header;
      if (lineEnd < 0 || endOffset === undefined) return undefined;
      return {
        type: 'entries',
        sessionId: sessionId as SessionId,
        attachmentId: attachmentId as AttachmentId | '',
        commandId: commandId as CommandId,
        fromSeq: Number(fromSeq),
        toSeq: Number(toSeq),
        endOffset: Number(endOffset),
        texts: message.slice(lineEnd + 1),
      };
    }
    case 'm':
      return { type: 'moved', attachmentId: header[1] as AttachmentId };
    case 'r':
      return { type: 'rev', rev: Number(header[1]) };
    case 'x':
      return { type: 'closing' };
    default:
      return undefined;
  }
}
