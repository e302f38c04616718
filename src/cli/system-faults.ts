/** The system's own refusals as sentences: a taken port, a folder that may not be written, a full disk. */
import { messageOf } from '../errors.js';

const FOLDER_REASONS: Readonly<Record<string, string>> = {
  EACCES: 'this user may not',
  EPERM: 'this user may not',
  EROFS: 'its disk is read-only',
  ENOSPC: 'its disk is full',
  EDQUOT: "this user's share of the disk is used up",
  ENOTDIR: 'a part of its path is a file',
  EISDIR: 'it is a folder',
};

/** @returns undefined unless the error carries a code of the system (ENOENT, EACCES, EADDRINUSE …) */
export function systemSentence(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, syscall, path, address, port } = error as NodeJS.ErrnoException & { address?: string; port?: number };
  if (typeof code !== 'string') return undefined;
  if (syscall === 'listen' && port !== undefined) {
    const place = `${address?.includes(':') ? `[${address}]` : address}:${port}`;
    const other = 'choose another port with --port or --ops-port (0 means any)';
    if (code === 'EADDRINUSE') return `The address ${place} is taken by another program; stop that one, or ${other}.`;
    if (code === 'EACCES') return `This user may not listen on ${place}; ${other}.`;
    if (code === 'EADDRNOTAVAIL') return `This machine does not have the address of ${place}; choose another host.`;
  }
  const reason = FOLDER_REASONS[code];
  if (path !== undefined && reason !== undefined) return `${path} can not be used (${syscall}): ${reason}.`;
  return messageOf(error);
}
