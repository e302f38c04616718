/**
 * One process at a time for a folder. The lock is a listening unix socket, so the kernel ends it with its process however
 * that dies; only its name stays behind, and that is found to be stale by connecting.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { unlink } from 'node:fs/promises';
import { createConnection, createServer, type Server } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

export interface DataLock {
  close(): Promise<void>;
}

const ANSWER_TIMEOUT_MS = 1_000;
/** Long enough for another that saw the same stale name to have taken it by now. */
const SETTLE_MS = 50;
const ATTEMPTS = 3;
/** A holder that was killed this moment is still being taken down by the kernel. */
const HOLDER_GONE_MS = 500;
const ASK_AGAIN_MS = 50;

/** @returns undefined when another process that lives holds it */
export async function takeLock(socketPath: string): Promise<DataLock | undefined> {
  for (let waitedMs = 0; ; waitedMs += ASK_AGAIN_MS) {
    const lock = await tryLock(socketPath);
    if (lock !== undefined || waitedMs >= HOLDER_GONE_MS) return lock;
    await delay(ASK_AGAIN_MS);
  }
}

async function tryLock(socketPath: string): Promise<DataLock | undefined> {
  const mine = randomBytes(16).toString('hex');
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const server = await listen(socketPath, mine);
    if (server !== undefined) {
      // Two may have found the same stale name, and the later one has removed the earlier one's: ask who answers.
      await delay(SETTLE_MS);
      if ((await holderOf(socketPath)) === mine) return { close: () => closeServer(server) };
      await closeServer(server);
      return undefined;
    }
    if ((await holderOf(socketPath)) !== undefined) return undefined;
    await unlink(socketPath).catch(() => undefined);
  }
  return undefined;
}

/** Whether a process accepts connections on this socket. */
export async function isListening(socketPath: string): Promise<boolean> {
  const socket = createConnection(socketPath);
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    // Absent, or a name without a process.
    return false;
  } finally {
    socket.destroy();
  }
}

async function listen(socketPath: string, mine: string): Promise<Server | undefined> {
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.end(mine);
  });
  server.unref();
  try {
    server.listen(socketPath);
    await once(server, 'listening');
    return server;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return undefined;
    throw error;
  }
}

/** What the holder says of itself: '' when it takes the connection and says nothing in time, undefined when nobody does. */
async function holderOf(socketPath: string): Promise<string | undefined> {
  const socket = createConnection(socketPath);
  socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
  try {
    await once(socket, 'connect');
  } catch {
    return undefined;
  }
  let said = '';
  try {
    for await (const chunk of socket) said += String(chunk);
  } catch {
    // Broken off: it is there all the same.
  }
  return said;
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}
