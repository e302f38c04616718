/** The log: one JSON line an event on stderr, so that stdout stays for output. Names that hold secrets are blanked. */
import { type DestinationStream, destination, pino } from 'pino';
import type { Settings } from '../config.js';
import type { Log } from '../domain/ports.js';

/** Fields that must never be seen, at the top or one level down (CO10). Whatever is logged should not hold them at all. */
const SECRET_FIELDS = [
  'token',
  'resumeToken',
  'resumeTokenHash',
  'secret',
  'secrets',
  'password',
  'authorization',
  'cookie',
  'env',
  'idempotencyKey',
];

export type LogLevel = Settings['HOMING_LOG_LEVEL'];

/**
 * @param fields on every line, such as the id of the process
 * @param out where to; stderr unless given
 */
export function createLog(
  level: LogLevel,
  fields: Record<string, unknown> = {},
  // Synchronous: the last line before an exit is the one that is needed.
  out: DestinationStream = destination({ dest: 2, sync: true }),
): Log {
  return pino(
    {
      level,
      base: fields,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRET_FIELDS.flatMap((name) => [name, `*.${name}`]), censor: '[hidden]' },
    },
    out,
  );
}
