/** Turns the stored hash of a command into what the doors show, and refuses a damaged record by name (V1). */
import type { KillRequest, Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import type { Outcome } from '../protocol/entries.js';
import type { CommandSnapshot, CommandSpec, OwnerWhy } from '../protocol/methods.js';

/** The newest record this code understands; a newer one is refused by name and harms nothing else. */
export const RECORD_VERSION = 1;

export type CommandHash = Readonly<Record<string, string | undefined>>;

const state = (value: string | undefined): CommandSnapshot['state'] =>
  value === 'queued' || value === 'running' ? value : 'ended';

/** The spec inside a record, as it was stored. */
export function readSpec(key: string, hash: CommandHash): CommandSpec {
  const spec = parseJson<CommandSpec>(key, 'spec', hash.spec);
  if (spec === undefined) throw new Error(`the record ${key} has no spec`);
  return spec;
}

/** @throws Error naming the key, for a record that is damaged or newer than this code */
export function readSnapshot(key: string, commandId: string, hash: CommandHash): CommandSnapshot {
  if (hash.v === undefined || Number(hash.v) > RECORD_VERSION) {
    throw new Error(`the record ${key} has version ${hash.v ?? 'none'}; this process reads up to ${RECORD_VERSION}`);
  }
  const spec = readSpec(key, hash);
  const outcome = parseJson<Outcome>(key, 'outcome', hash.outcome);
  const headSeq = Number(hash.head);
  return {
    commandId,
    state: state(hash.state),
    originSessionId: hash.origin || null,
    ownerSessionId: hash.owner || null,
    ...(hash.why ? { why: hash.why as OwnerWhy } : {}),
    ...(hash.parent ? { parentCommandId: hash.parent } : {}),
    ...(spec.argv === undefined ? { script: spec.script ?? '' } : { argv: spec.argv }),
    labels: spec.labels ?? {},
    ...(spec.stdin === 'pipe' ? { stdin: spec.stdin } : {}),
    ...(spec.pty === undefined ? {} : { pty: spec.pty }),
    conversation: hash.conversation ?? '',
    pool: spec.pool,
    createdAt: Number(hash.created),
    ...(hash.started ? { startedAt: Number(hash.started) } : {}),
    ...(hash.ended ? { endedAt: Number(hash.ended) } : {}),
    firstSeq: headSeq === 0 ? 0 : 1,
    headSeq,
    ackedSeq: Number(hash.acked),
    outputBytes: Number(hash.bytes),
    ...(hash.state === 'queued' && hash.held ? { held: hash.held as NonNullable<CommandSnapshot['held']> } : {}),
    ...(hash.worker ? { workerId: hash.worker } : {}),
    ...(hash.containment ? { containment: hash.containment } : {}),
    ...(outcome === undefined ? {} : { outcome }),
  };
}

/** What `read` reads; undefined for a record that is damaged or newer, which is told by name and harms nothing beside it. */
export function readable<T>(read: () => T, log: Pick<Log, 'error'> | undefined): T | undefined {
  try {
    return read();
  } catch (error) {
    log?.error({ fault: messageOf(error) }, 'left out a record that can not be read');
    return undefined;
  }
}

export function readKill(key: string, text: string | undefined): KillRequest | undefined {
  return parseJson<KillRequest>(key, 'kill', text);
}

function parseJson<T>(key: string, field: string, text: string | undefined): T | undefined {
  if (text === undefined || text === '') return undefined;
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new Error(`the field ${field} of the record ${key} is not JSON`, { cause });
  }
}
