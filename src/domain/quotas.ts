/**
 * How much a tenant or a session may have at the same time: open sessions, queued commands, bytes of logs of what is over (CO12).
 * Beyond the first two a request is refused; beyond the last the oldest logs go, and readers are told by a gap.
 */
import { AppError } from '../errors.js';
import type { CommandId, SessionId } from '../protocol/ids.js';
import type { CommandStore, Log, OpenRequest, SessionDirectory, SubmitRequest } from './ports.js';

/** 0: no limit. */
export interface QuotaLimits {
  readonly sessions: number;
  readonly queued: number;
  readonly queuedPerSession: number;
  readonly retainedBytes: number;
  readonly retainedBytesPerSession: number;
}

export type RetainedLimits = Pick<QuotaLimits, 'retainedBytes' | 'retainedBytesPerSession'>;

export interface Quotas {
  /** Whether the tenant has room for this session, which may have been counted before. @throws AppError REDIS_UNAVAILABLE */
  roomForSession(tenant: string, sessionId: SessionId, most: number): Promise<boolean>;
  /** The same for a queued command: of a tenant, or of its origin session. @throws AppError REDIS_UNAVAILABLE */
  roomForCommand(
    whose: { readonly tenant: string } | { readonly session: SessionId },
    commandId: CommandId,
    most: number,
  ): Promise<boolean>;
  /**
   * The command is over: its log is counted, and the oldest of its origin session and of its tenant are let go. Returns how many.
   * @throws AppError REDIS_UNAVAILABLE
   */
  retain(commandId: CommandId, most: RetainedLimits): Promise<number>;
}

const RETRY_MS = 1_000;
const over = (message: string) => new AppError('LIMIT_EXCEEDED', message, { retryAfterMs: RETRY_MS });

/** Why a command may not be queued now; undefined when it may. */
export async function refusalOf(
  quotas: Quotas,
  limits: QuotaLimits,
  request: SubmitRequest,
): Promise<AppError | undefined> {
  const { tenant, commandId, origin } = request;
  const { queued, queuedPerSession } = limits;
  if (queuedPerSession > 0 && 'sessionId' in origin) {
    const whose = { session: origin.sessionId };
    if (!(await quotas.roomForCommand(whose, commandId, queuedPerSession))) {
      return over(`at most ${queuedPerSession} commands of one session may be queued`);
    }
  }
  if (queued > 0 && !(await quotas.roomForCommand({ tenant }, commandId, queued))) {
    return over(`at most ${queued} commands of one tenant may be queued`);
  }
  return undefined;
}

/** The same directory, in which a tenant has at most so many open sessions. */
export function withSessionQuota(
  sessions: SessionDirectory,
  quotas: Quotas,
  { sessions: most }: QuotaLimits,
): SessionDirectory {
  if (most === 0) return sessions;
  return {
    ...sessions,
    async open(request: OpenRequest) {
      if (await quotas.roomForSession(request.tenant, request.sessionId, most)) return sessions.open(request);
      throw over(`at most ${most} sessions of one tenant may be open`);
    },
  };
}

/** The same store, which lets go of the oldest logs of a session or a tenant that has too many. What fails is made good by the next end. */
export function withRetainedQuota(store: CommandStore, quotas: Quotas, limits: QuotaLimits, log: Log): CommandStore {
  if (limits.retainedBytes === 0 && limits.retainedBytesPerSession === 0) return store;
  const ended = (commandId: CommandId) =>
    void quotas.retain(commandId, limits).then(
      (trimmed) => trimmed > 0 && log.debug({ commandId, trimmed }, 'logs of a session or a tenant were let go'),
      (error: unknown) => log.debug({ commandId, error: String(error) }, 'a log could not be counted'),
    );
  return {
    ...store,
    async append(request) {
      const result = await store.append(request);
      if (result.type === 'appended' && request.outcome !== undefined) ended(request.commandId);
      return result;
    },
    async endWithoutWorker(...args) {
      const result = await store.endWithoutWorker(...args);
      if (result.type === 'ended') ended(args[0]);
      return result;
    },
  };
}
