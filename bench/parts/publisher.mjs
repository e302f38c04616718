/** Hands entries to Homing's event bus: claims commands and appends to their logs, as a worker does that lives, unpaced. */
import { randomBytes } from 'node:crypto';
import { serializeEntry } from '../../dist/protocol/entries.js';
import { makeClaimId, makeWorkerId } from '../../dist/protocol/ids.js';
import { createCommandStore } from '../../dist/redis/command-store.js';
import { createRedis, parseRedisUrl, waitForRedis } from '../../dist/redis/connections.js';
import { createKeys } from '../../dist/redis/keys.js';
import { createPresence } from '../../dist/redis/presence.js';
import { createScripts } from '../../dist/redis/scripts.js';

const silent = () => {};
const log = { debug: silent, info: silent, warn: console.error, error: console.error, child: () => log };
const chance = { bytes: (size) => randomBytes(size), random: Math.random };
const redis = createRedis(parseRedisUrl(process.env.REDIS_URL), 'commands', log);
await waitForRedis(redis, 5_000);
const keys = createKeys(process.env.PREFIX);
const scripts = createScripts(redis);
const presence = createPresence({ redis, keys, scripts, leaseMs: 15_000, chance });
// All in the first part of a log, so that one message after another is the same work.
const limits = { retentionMs: 60_000, logFirstBytes: 16 << 20, logLastBytes: 0 };
const store = createCommandStore({ redis, keys, scripts, presence, chance, ...limits });

const workerId = makeWorkerId(randomBytes(16));
const facts = { workerId, pool: 'bench', concurrency: 1, containment: 'group', version: '0', startedAt: Date.now() };
const beat = () => presence.beatWorker({ ...facts, draining: false });
setInterval(beat, 5_000);
await beat();

/** What was claimed, and how far each is written. */
const claimed = new Map();
async function claim(commandId) {
  const claimId = makeClaimId(randomBytes(16));
  await store.claim(commandId, claimId, workerId, 'group');
  claimed.set(commandId, { claimId, seq: 0, at: 0 });
}

process.on('message', async ({ commands, total, bytes, batch }) => {
  const data = 'x'.repeat(bytes);
  const each = Math.floor(total / commands.length);
  await Promise.all(
    commands.map(async ({ commandId, owner }) => {
      if (!claimed.has(commandId)) await claim(commandId);
      const log = claimed.get(commandId);
      const last = log.seq + each;
      while (log.seq < last) {
        const entries = [];
        for (let n = 0; n < batch && log.seq < last; n += 1) {
          log.seq += 1;
          const { seq, at } = log;
          const text = serializeEntry({ type: 'output', commandId, seq, ts: Date.now(), at, stream: 'out', data });
          log.at += bytes;
          entries.push({ letter: 'o', fromSeq: seq, seq, endOffset: log.at, text });
        }
        const answer = await store.append({ commandId, claimId: log.claimId, ownerSessionId: owner, entries });
        if (answer.type !== 'appended') throw new Error(JSON.stringify(answer));
      }
    }),
  );
  process.send({ done: true });
});
console.log(JSON.stringify({ ready: true }));
