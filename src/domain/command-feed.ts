/**
 * What a stream of events over a whole conversation asks for: which commands there are, and where their logs end. A port
 * of its own, because only the doors that follow conversations need it. Reads only; each call is bounded.
 */
import type { CommandId, Tag } from '../protocol/ids.js';

/** Whose commands: those of one principal, or, for a delegate, everybody's in the conversation. */
export interface FeedScope {
  readonly tag: Tag;
  readonly principal?: string;
}

export interface FeedItem {
  readonly commandId: CommandId;
  /** Its place in the order of the conversation; unique there, and it only grows. */
  readonly mark: number;
  /** Redis `TIME` of its end, ms; absent while it is not over. */
  readonly endedAt?: number;
}

export interface FeedHead {
  readonly headSeq: number;
  readonly ended: boolean;
}

/** Every call has a bounded wait and rejects with AppError REDIS_UNAVAILABLE. */
export interface CommandFeed {
  /** Redis `TIME`, ms: what `endedAt` is to be compared with. */
  nowMs(): Promise<number>;
  /**
   * Commands after a mark, oldest first. Looks at `limit` of the conversation's commands, whosever they are; go on after
   * `nextMark`. `more`: there may be further ones now.
   */
  after(
    scope: FeedScope,
    mark: number,
    limit: number,
  ): Promise<{ readonly items: readonly FeedItem[]; readonly nextMark: number; readonly more: boolean }>;
  /** In the order of the ids; undefined for a command that is no longer there. */
  heads(ids: readonly CommandId[]): Promise<readonly (FeedHead | undefined)[]>;
}
