/** What an operator sees of a command in its queue; the same from every process that adds it. */
import type { CommandId } from '../protocol/ids.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import type { JobData, Place } from './ports.js';

const MAX_PROGRAM_CHARS = 64;

/**
 * The program's name for people: the last part of its path, or the first word of a script. Never more: arguments and
 * assignments (`TOKEN=… cmd`) may hold what an operator must not read (CO10).
 */
export function programName(command: Pick<CommandSnapshot, 'argv' | 'script'>): string {
  const word = command.script?.trim().split(/\s+/, 1)[0] ?? '';
  const program = command.argv?.[0] ?? (/^[\w./+-]+$/.test(word) ? word : 'script');
  const name = program.slice(program.lastIndexOf('/') + 1);
  return (name === '' ? 'command' : name).slice(0, MAX_PROGRAM_CHARS);
}

export function describeJob(command: {
  readonly commandId: CommandId;
  readonly place: Omit<Place, 'tag'>;
  readonly spec: Pick<CommandSnapshot, 'argv' | 'script'>;
  readonly originSessionId: string | null;
  readonly ownerSessionId: string | null;
}): JobData {
  const { commandId, place, spec, originSessionId, ownerSessionId } = command;
  const { conversation, tenant, principal } = place;
  return {
    v: 1,
    commandId,
    originSessionId,
    ownerSessionId,
    conversation,
    tenant,
    principal,
    program: programName(spec),
  };
}

/** The same from a stored command. */
export const jobOf = (place: Omit<Place, 'tag'>, command: CommandSnapshot): JobData =>
  describeJob({ ...command, commandId: command.commandId as CommandId, place, spec: command });
