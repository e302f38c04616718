/** Hands entries to Homing's event bus: claims commands and appends to their logs, as a worker does, unpaced. */
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
const limits = { retentionMs: 60_000, logFirstBytes: 1 << 20, logLastBytes: 7 << 20 };
const store = createCommandStore({ redis, keys, scripts, presence, chance, ...limits });

process.on('message', async ({ commands, total, bytes, batch }) => {
  const data = 'x'.repeat(bytes);
  const each = Math.floor(total / commands.length);
  await Promise.all(
    commands.map(async ({ commandId, owner }) => {
      const claimId = makeClaimId(randomBytes(16));
      await store.claim(commandId, claimId, makeWorkerId(randomBytes(16)), 'group');
      let seq = 0;
      let at = 0;
      while (seq < each) {
        const entries = [];
        for (let n = 0; n < batch && seq < each; n += 1) {
          seq += 1;
          const text = serializeEntry({ type: 'output', commandId, seq, ts: Date.now(), at, stream: 'out', data });
          at += bytes;
          entries.push({ letter: 'o', fromSeq: seq, seq, endOffset: at, text });
        }
        const answer = await store.append({ commandId, claimId, ownerSessionId: owner, entries });
        if (answer.type !== 'appended') throw new Error(JSON.stringify(answer));
      }
    }),
  );
  process.send({ done: true });
});
console.log(JSON.stringify({ ready: true }));
