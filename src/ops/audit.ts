/**
 * The audit log: one JSON line an act, to a file or to stdout, apart from the log of the process. A line is complete when the
 * call returns, so that the last act before an end is there. A file that can not be written is told in the log, at most once
 * a minute; it does not stop the node.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import type { Audit } from '../domain/audit.js';
import type { Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';

const STDOUT = 1;
const TELL_EVERY_MS = 60_000;

export interface AuditFile extends Audit {
  close(): void;
}

/**
 * @param target a path, or `-` for stdout. The file is appended to and made for its owner alone. It stays open: rotate it by copying
 * @throws Error with a code (EACCES …) when it can not be opened
 */
export function openAudit(
  target: string,
  fields: Readonly<Record<string, string>>,
  log: Log,
  now: () => number,
): AuditFile {
  const fd = target === '-' ? STDOUT : openSync(target, 'a', 0o600);
  let toldMs = Number.NEGATIVE_INFINITY;
  let open = true;
  return {
    note(line) {
      if (!open) return;
      const text = `${JSON.stringify({ time: new Date(now()).toISOString(), ...fields, ...line })}\n`;
      try {
        writeSync(fd, text);
      } catch (error) {
        if (now() - toldMs < TELL_EVERY_MS) return;
        toldMs = now();
        log.error({ fault: messageOf(error) }, 'the audit log can not be written');
      }
    },
    close() {
      if (open && fd !== STDOUT) closeSync(fd);
      open = false;
    },
  };
}
