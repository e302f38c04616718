/** Tells an outage of Redis from a fault of ours: what may work later becomes REDIS_UNAVAILABLE, the rest stays as it is. */
import { AppError } from '../errors.js';

/** First word of an answer with which a living Redis says "not now" (FAULTS O2, M1). */
const NOT_NOW = new Set([
  'ASK',
  'BUSY',
  'CLUSTERDOWN',
  'LOADING',
  'MASTERDOWN',
  'MISCONF',
  'MOVED',
  'NOAUTH',
  'NOREPLICAS',
  'OOM',
  'READONLY',
  'TRYAGAIN',
  'UNBLOCKED',
  'WRONGPASS',
]);

/** ioredis has no codes for these. */
const CONNECTION_FAULTS = [
  'Connection is closed',
  'Command aborted due to connection close',
  'Command timed out',
  'Socket timeout',
  "Stream isn't writeable",
  "Cluster isn't ready",
  'Failed to refresh slots cache',
  'None of startup nodes is available',
  'Too many Cluster redirections',
  'All sentinels are unreachable',
  'ERR max number of clients reached',
];

/** Node's codes for a peer that can not be reached or went away. */
const SYSTEM_CODES = /^(E[A-Z]{3,}|UND_.*|ERR_SOCKET_.*|ERR_TLS_.*|ERR_STREAM_.*|CERT_.*)$/;
const ERROR_NAMES = new Set(['MaxRetriesPerRequestError', 'ClusterAllFailedError', 'AbortError']);

/**
 * @returns AppError REDIS_UNAVAILABLE for a lost or refused connection, a time-out, a full, loading, failing-over or
 * moving Redis; any other error unchanged, since it is a fault of ours
 */
export function asRedisError(error: unknown): unknown {
  if (error instanceof AppError || !(error instanceof Error)) return error;
  return isOutage(error) ? new AppError('REDIS_UNAVAILABLE', outageSentence(error), { cause: error }) : error;
}

/** Awaits an answer of Redis; an outage rejects as REDIS_UNAVAILABLE. */
export async function answerOf<T>(reply: Promise<T>): Promise<T> {
  try {
    return await reply;
  } catch (error) {
    throw asRedisError(error);
  }
}

/** The same for a plain command; a fault of what the key holds is told with its name, which Redis leaves out. */
export async function answerAt<T>(key: string, reply: Promise<T>): Promise<T> {
  try {
    return await answerOf(reply);
  } catch (error) {
    if (error instanceof AppError || !(error instanceof Error)) throw error;
    throw new Error(`${error.message} (${key})`, { cause: error });
  }
}

/** For one of many reads: a key that holds something else than was expected is like one that is not there. */
export const unlessAnotherType =
  <T>(nothing: T) =>
  (error: unknown): T => {
    if (error instanceof Error && error.message.startsWith('WRONGTYPE')) return nothing;
    throw error;
  };

function isOutage(error: Error): boolean {
  const firstWord = error.message.split(' ', 1)[0] ?? '';
  if (NOT_NOW.has(firstWord)) return true;
  if (ERROR_NAMES.has(error.name)) return true;
  const code = (error as NodeJS.ErrnoException).code;
  if (typeof code === 'string' && SYSTEM_CODES.test(code)) return true;
  return CONNECTION_FAULTS.some((fault) => error.message.startsWith(fault));
}

function outageSentence(error: Error): string {
  const firstWord = error.message.split(' ', 1)[0] ?? '';
  if (firstWord === 'OOM') return 'Redis is full: its maxmemory is reached';
  if (NOT_NOW.has(firstWord)) return `Redis can not answer now (${firstWord})`;
  return 'Redis does not answer';
}
