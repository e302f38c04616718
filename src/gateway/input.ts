/** Writes to commands and resizes their terminals, for every door; what a script refuses becomes its code. */
import type { CommandStore, Writer } from '../domain/ports.js';
import { AppError } from '../errors.js';
import type { CommandId } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import { unknownCommand } from './access.js';

export const notOwner = () => new AppError('NOT_OWNER', 'another session owns the command');
const ended = () => new AppError('COMMAND_ENDED', 'the command is over');

/** How soon a command may have read some of what waits. */
const RETRY_AFTER_MS = 100;

export interface WriteParams {
  readonly offset: number;
  readonly data?: string | undefined;
  readonly base64?: string | undefined;
  readonly eof?: boolean | undefined;
}

/** @throws AppError INVALID_PARAMS, NOT_OWNER, STDIN_CLOSED, STDIN_FULL, COMMAND_ENDED, UNKNOWN_COMMAND */
export async function writeTo(
  commands: Pick<CommandStore, 'write'>,
  commandId: CommandId,
  writer: Writer,
  { offset, data, base64, eof = false }: WriteParams,
): Promise<{ nextOffset: number }> {
  if (data !== undefined && base64 !== undefined) {
    throw new AppError('INVALID_PARAMS', 'data: only one of data and base64 may be given', { field: 'data' });
  }
  const bytes = base64 === undefined ? Buffer.from(data ?? '', 'utf8') : Buffer.from(base64, 'base64');
  if (bytes.length > LIMITS.maxStdinBytes) {
    throw new AppError('INVALID_PARAMS', `data: at most ${LIMITS.maxStdinBytes} bytes at once, got ${bytes.length}`, {
      field: 'data',
    });
  }
  const result = await commands.write({ commandId, writer, offset, bytes, eof });
  switch (result.type) {
    case 'written':
      return { nextOffset: result.nextOffset };
    case 'beyond':
      throw new AppError(
        'INVALID_PARAMS',
        `offset: bytes before ${offset} are missing, write from ${result.nextOffset}`,
        {
          field: 'offset',
        },
      );
    case 'full':
      throw new AppError(
        'STDIN_FULL',
        `the command has not read what waits for it (${LIMITS.maxStdinBytes} bytes at most); write from ${result.nextOffset}`,
        { retryAfterMs: RETRY_AFTER_MS },
      );
    case 'closed':
      throw new AppError('STDIN_CLOSED', 'the command reads no stdin, or no more of it');
    case 'ended':
      throw ended();
    case 'not_owner':
      throw notOwner();
    case 'unknown':
      throw unknownCommand();
  }
}

/** @throws AppError INVALID_PARAMS, NOT_OWNER, COMMAND_ENDED, UNKNOWN_COMMAND */
export async function resizeTerminal(
  commands: Pick<CommandStore, 'resize'>,
  commandId: CommandId,
  writer: Writer,
  { cols, rows }: { readonly cols: number; readonly rows: number },
): Promise<void> {
  switch ((await commands.resize(commandId, writer, { cols, rows })).type) {
    case 'resized':
      return;
    case 'no_terminal':
      throw new AppError('INVALID_PARAMS', 'commandId: the command has no terminal', { field: 'commandId' });
    case 'ended':
      throw ended();
    case 'not_owner':
      throw notOwner();
    case 'unknown':
      throw unknownCommand();
  }
}
