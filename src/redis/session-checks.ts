/**
 * The looks of a node at its sessions. Those that ask in the same turn are answered by one script, on a Cluster those of one
 * conversation, which share a slot: most of what an idle tab costs is its look.
 */
import type { Cluster, Redis } from 'ioredis';
import type { SessionCheck, SessionDirectory, SessionState } from '../domain/ports.js';
import { AppError } from '../errors.js';
import { type AttachmentId, type CommandId, type SessionId, tagOf } from '../protocol/ids.js';
import type { Keys } from './keys.js';
import type { Scripts } from './scripts.js';
import { MAX_LOOKED_AT, type SlotGroup, slotGroup } from './slots.js';

interface Asked {
  readonly sessionId: SessionId;
  readonly commandIds: readonly CommandId[];
  resolve(check: SessionCheck): void;
  reject(error: unknown): void;
}

/** @throws AppError REDIS_UNAVAILABLE to all that asked together */
export function createSessionChecks(options: {
  readonly redis: Redis | Cluster;
  readonly scripts: Scripts;
  readonly keys: Keys;
}): SessionDirectory['check'] {
  const { redis, scripts, keys } = options;
  const waiting = new Map<SlotGroup, Asked[]>();

  return (sessionId, commandIds) =>
    new Promise((resolve, reject) => {
      const asked = { sessionId, commandIds, resolve, reject };
      const group = slotGroup(redis, tagOf(sessionId));
      const others = waiting.get(group);
      if (others !== undefined) {
        others.push(asked);
        return;
      }
      waiting.set(group, [asked]);
      queueMicrotask(() => {
        const all = waiting.get(group) ?? [];
        waiting.delete(group);
        for (const some of batches(all)) void answer(some);
      });
    });

  async function answer(some: readonly Asked[]): Promise<void> {
    try {
      const values = (await scripts.run(
        'check',
        some.flatMap(({ sessionId, commandIds }) => [
          keys.session(sessionId),
          ...commandIds.map((id) => keys.command(id)),
        ]),
        some.flatMap(({ sessionId, commandIds }) => [sessionId, commandIds.length]),
      )) as (string | number)[];
      let at = 0;
      for (const { commandIds, resolve } of some) {
        const end = at + 4 + commandIds.length * 3;
        resolve(readCheck(values.slice(at, end)));
        at = end;
      }
    } catch (error) {
      // What is damaged in one record, or a server that is a Cluster behind one address, holds up nobody else.
      if (some.length > 1 && !(error instanceof AppError)) await Promise.all(some.map((asked) => answer([asked])));
      else for (const { reject } of some) reject(error);
    }
  }
}

function readCheck(values: readonly (string | number)[]): SessionCheck {
  const [state, attachmentId, rev, begun, ...rest] = values as [
    SessionState | 'missing',
    AttachmentId | '',
    number,
    number,
    ...number[],
  ];
  const heads = Array.from({ length: rest.length / 3 }, (_, index) => {
    const head = rest[index * 3] ?? -1;
    if (head < 0) return undefined;
    return { head, ended: rest[index * 3 + 1] === 1, owned: rest[index * 3 + 2] === 1 };
  });
  return { state, attachmentId, rev, begun, heads };
}

function batches(all: readonly Asked[]): Asked[][] {
  const made: Asked[][] = [];
  let keysLeft = 0;
  for (const asked of all) {
    const needs = 1 + asked.commandIds.length;
    if (needs > keysLeft) {
      made.push([]);
      keysLeft = MAX_LOOKED_AT;
    }
    made.at(-1)?.push(asked);
    keysLeft -= needs;
  }
  return made;
}
