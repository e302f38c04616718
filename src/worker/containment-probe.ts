/**
 * Tries a kind of room before it is trusted: plants the five kinds of processes that are known to survive their parents,
 * kills the room's parent as SIGKILL would kill a worker, and looks whether all are gone.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../errors.js';
import { makeRoom, type Room, type RoomRecipe, SHELL } from './containment-room.js';
import { closePipe } from './pipes.js';
import { makeNamedInput, type NamedInput } from './process-input.js';
import { type ProcessEntry, readProcess } from './process-table.js';
import { type Member, sendSignal } from './process-tree.js';
import { createRoomKeeper, type KeeperOptions, type KeptRoom, type RoomKeeper } from './room-keeper.js';

/** A child, one in its own session, a daemon, one without environment, and a shell that ignores SIGTERM. */
const PLANTS = `
sleep 600 &
setsid sleep 600 &
(sleep 600 &)
env -i /bin/sleep 600 &
(trap '' TERM; sleep 600; :) &
trap '' TERM
echo planted
exec sleep 600
`;
const PLANTED = 6;
const WITHIN_MS = 3_000;
const LOOK_EVERY_MS = 5;
/** Becomes the parent of the room: a shell that starts it, passes on what it says, and can be killed in the worker's place. */
const PARENT = [SHELL, '-c', 'exec 5<&0; "$@" <&5 5<&- & exec 5<&- </dev/null; wait', 'sh'];

/** @returns why it can not be used, in words; undefined when it held */
export async function probeRoom(recipe: RoomRecipe): Promise<string | undefined> {
  let inside: ChildProcess | undefined;
  let room: Room | undefined;
  let lifeline: NamedInput | undefined;
  try {
    // It stays open: only what the kernel does is looked at.
    lifeline = await makeNamedInput(tmpdir(), undefined);
    room = await makeRoom(recipe, { parent: PARENT, lifelineFd: lifeline.readFd });
    const argv = [...room.enter, SHELL, '-c', PLANTS];
    inside = spawn(argv[0] as string, argv.slice(1), {
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
      cwd: '/',
      detached: true,
    });
    await lineFrom(inside.stdout as Readable);
    return await diesWithWorker(room, await room.tree(inside.pid as number).members());
  } catch (error) {
    return messageOf(error);
  } finally {
    inside?.kill('SIGKILL');
    await letGo(lifeline);
    // Whatever happened, nothing of it stays: with its init the room ends, and then the parent, which waits for it.
    room?.close();
  }
}

/** The same for rooms of a keeper. */
export async function probeKeeper(options: KeeperOptions): Promise<string | undefined> {
  let keeper: RoomKeeper | undefined;
  let output: Socket | undefined;
  let kept: KeptRoom | undefined;
  let lifeline: NamedInput | undefined;
  try {
    lifeline = await makeNamedInput(tmpdir(), undefined);
    keeper = createRoomKeeper({ ...options, parent: PARENT, stdin: lifeline });
    kept = await keeper.make();
    const { room, standby } = kept;
    standby.tell(`PATH=/usr/sbin:/usr/bin:/sbin:/bin\n${PLANTS}`);
    standby.take();
    closeSync(standby.err);
    output = new Socket({ fd: standby.out, readable: true, writable: false });
    await lineFrom(output);
    return await diesWithWorker(room, await room.tree().members());
  } catch (error) {
    return messageOf(error);
  } finally {
    output?.destroy();
    kept?.room.close();
    kept?.standby.close();
    keeper?.close();
    await letGo(lifeline);
  }
}

async function letGo(lifeline: NamedInput | undefined): Promise<void> {
  if (lifeline === undefined) return;
  closePipe(lifeline);
  await lifeline.forget();
}

/** Kills the parent of a room, as SIGKILL would kill a worker. */
async function diesWithWorker(room: Room, members: readonly Member[]): Promise<string | undefined> {
  const planted = members.flatMap(({ pid }) => readProcess(pid) ?? []);
  if (planted.length < PLANTED) return `only ${planted.length} of ${PLANTED} planted processes were seen`;
  process.kill(room.pids.outermost, 'SIGKILL');
  const deadlineMs = performance.now() + WITHIN_MS;
  for (;;) {
    const left = planted.filter(isAlive);
    if (left.length === 0) return undefined;
    if (performance.now() > deadlineMs) {
      for (const { pid } of left) sendSignal(pid, 'SIGKILL');
      return `${left.length} processes outlived the death of their worker`;
    }
    await sleep(LOOK_EVERY_MS);
  }
}

const isAlive = ({ pid, startTicks }: ProcessEntry): boolean => {
  const now = readProcess(pid);
  return now !== undefined && now.startTicks === startTicks && !now.zombie;
};

function lineFrom(output: Readable): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('the planted processes did not start in time')), WITHIN_MS);
    output.once('data', () => resolve());
    output.once('error', reject);
    output.once('close', () => reject(new Error('it could not be entered')));
    output.once('close', () => clearTimeout(timer));
  });
}
