/** Rooms of one kind for all commands of a worker, some of them made ahead, so that a command does not wait for its room. */
import type { Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import { makeRoom, type RoomRecipe } from './containment-room.js';
import type { KeptRoom, RoomKeeper } from './room-keeper.js';

/** With a shell that stands in it where a keeper made it. */
export type ReadyRoom = Pick<KeptRoom, 'room'> & Partial<KeptRoom>;

const WARM_ROOMS = 2;
const REFILL_AFTER_MS = 2;

/** By the keeper where there is one; where it fails, as without it. */
export function roomMaker(
  recipe: RoomRecipe,
  env: Readonly<Record<string, string>>,
  keeper: RoomKeeper | undefined,
  log: Log,
): () => Promise<ReadyRoom> {
  const withTools = async () => ({ room: await makeRoom(recipe, { env }) });
  if (keeper === undefined) return withTools;
  return async () => {
    try {
      return await keeper.make();
    } catch (error) {
      if (keeper.closed) throw error;
      log.warn({ error: messageOf(error) }, 'a room could not be made by its keeper, and is made without it');
      return withTools();
    }
  };
}

export interface RoomStock {
  take(): Promise<ReadyRoom> | ReadyRoom;
  close(): void;
}

export function createRoomStock(make: () => Promise<ReadyRoom>, log: Log): RoomStock {
  const warm: ReadyRoom[] = [];
  let making = 0;
  let closed = false;

  const end = ({ room, standby }: ReadyRoom): void => {
    room.close();
    standby?.close();
  };

  function keep(ready: ReadyRoom): void {
    if (closed) {
      end(ready);
      return;
    }
    warm.push(ready);
    void ready.room.gone.then(() => {
      const at = warm.indexOf(ready);
      if (at < 0) return;
      warm.splice(at, 1);
      end(ready);
    });
  }

  function refill(): void {
    while (!closed && warm.length + making < WARM_ROOMS) {
      making += 1;
      make()
        // The next command tries for itself, and tells.
        .then(keep, (error: unknown) => log.debug({ error: messageOf(error) }, 'no room made ahead'))
        .finally(() => {
          making -= 1;
        });
    }
  }

  let timer: NodeJS.Timeout | undefined;
  /** Not now, while a command waits for its start. */
  function refillSoon(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      refill();
    }, REFILL_AFTER_MS);
    timer.unref();
  }

  refill();
  return {
    take(): Promise<ReadyRoom> | ReadyRoom {
      const ready = warm.shift();
      refillSoon();
      return ready ?? make();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      warm.splice(0).forEach(end);
    },
  };
}
