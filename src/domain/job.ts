/** What an operator sees of a command in its queue; the same from every process that adds it. */
import type { CommandId } from '../protocol/ids.js';
import type { CommandSnapshot } from '../protocol/methods.js';
import type { JobData, Place } from './ports.js';

/** The program's name for people: the last part of its path, or the first word of a script. */
export function programName(command: Pick<CommandSnapshot, 'argv' | 'script'>): string {
  const program = command.argv?.[0] ?? command.script?.trim().split(/\s+/, 1)[0] ?? '';
  const name = program.slice(program.lastIndexOf('/') + 1);
  return (name === '' ? 'command' : name).slice(0, 64);
}

export function jobOf(place: Omit<Place, 'tag'>, command: CommandSnapshot): JobData {
  return {
    v: 1,
    commandId: command.commandId as CommandId,
    originSessionId: command.originSessionId,
    ownerSessionId: command.ownerSessionId,
    conversation: place.conversation,
    tenant: place.tenant,
    principal: place.principal,
    program: programName(command),
  };
}
