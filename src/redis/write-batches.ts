/**
 * What is asked of Redis in one turn of the event loop leaves in one write. ioredis writes each command by itself, and a
 * system call costs more than most commands do. Their order stays, and nothing waits longer than until the turn is over.
 */
import type { Redis } from 'ioredis';

/** Node copies what leaves together once more: for larger commands that costs more than the system call (measured, 1b). */
const LARGE_CHARS = 4 * 1024;

/** Holds for every socket that this connection makes from now on. */
export function batchWrites(redis: Redis): void {
  redis.on('connect', () => {
    const { stream } = redis;
    const write = stream.write;
    let holding = false;
    const release = () => {
      if (!holding) return;
      holding = false;
      stream.uncork();
    };
    stream.write = function batched(this: typeof stream, ...args: Parameters<typeof write>) {
      if (args[0].length > LARGE_CHARS) {
        release();
      } else if (!holding) {
        holding = true;
        stream.cork();
        setImmediate(release);
      }
      return Reflect.apply(write, this, args) as boolean;
    } as typeof write;
  });
}
