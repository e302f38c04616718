/** The clock of Redis is set an hour on or back: nothing that lives is ended, and nothing dead is kept (R4). */
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { QueueProducer } from '../../src/domain/ports.js';
import { createReconciler } from '../../src/reconciler/reconciler.js';
import { startRedis } from '../support/redis.js';
import {
  beatOnce,
  chance,
  createStores,
  newClaimId,
  newNodeId,
  newWorkerId,
  openTab,
  placeOf,
  silentLog,
  submit,
} from '../support/stores.js';
import { never, until } from '../support/wait.js';

/** Debian's package faketime; the C library goes before jemalloc, whose start asks for the time and would go in circles. */
const PRELOAD = ['x86_64-linux-gnu', 'aarch64-linux-gnu']
  .map((arch) => [`/usr/lib/${arch}/faketime/libfaketime.so.1`, `/lib/${arch}/libc.so.6`])
  .find((files) => files.every((file) => existsSync(file)));

const LEASE_MS = 1_000;
const GRACE_MS = 2_000;
const HOUR_S = 3_600;

describe.skipIf(PRELOAD === undefined)('the clock of Redis', () => {
  it.concurrent.each([
    ['an hour on', HOUR_S],
    ['an hour back', -HOUR_S],
  ])(
    '[R4] is set %s: the living stay, the dead are found, graces end',
    async (_how, stepS) => {
      const folder = await mkdtemp(join(tmpdir(), 'homing-clock-'));
      const offset = join(folder, 'offset');
      await writeFile(offset, '+0s\n');
      await using redis = await startRedis({
        env: {
          LD_PRELOAD: PRELOAD?.join(' ') ?? '',
          FAKETIME_TIMESTAMP_FILE: offset,
          FAKETIME_NO_CACHE: '1',
          DONT_FAKE_MONOTONIC: '1',
        },
      });
      await using stores = await createStores(redis.url, { graceMs: GRACE_MS, retentionMs: 24 * HOUR_S * 1_000 });
      const redisMs = async () => Number((await stores.redis.time())[0]) * 1_000;
      const place = placeOf('ann', 'clock');
      const queue: QueueProducer = {
        add: async () => {},
        state: async () => 'waiting',
        position: async () => undefined,
        remove: async () => {},
        close: async () => {},
      };
      const meter = { count() {}, gauge() {}, observe() {} };
      const reconcilers = ['one', 'two'].map((id) =>
        createReconciler(
          {
            ...stores,
            queue,
            webhooks: { add: async () => {} },
            meter,
            log: silentLog,
            chance,
            nowMs: () => performance.now(),
          },
          { id, leaseMs: LEASE_MS, graceMs: GRACE_MS, queueMs: HOUR_S * 1_000, killGraceMs: 100 },
        ),
      );
      const [nodeId, deadNode] = [newNodeId(), newNodeId()];
      const [workerId, deadWorker] = [newWorkerId(), newWorkerId()];
      const beat = (dead: boolean) => beatOnce(stores, dead ? deadNode : nodeId, dead ? deadWorker : workerId);
      await Promise.all([beat(false), beat(true)]);
      const beating = setInterval(() => void beat(false).catch(() => undefined), LEASE_MS / 5);

      const live = await openTab(stores, place, nodeId);
      const orphaned = await openTab(stores, place, deadNode);
      await stores.presence.noteNodeSession(nodeId, live.sessionId);
      await stores.presence.noteNodeSession(deadNode, orphaned.sessionId);
      const run = async (worker: typeof workerId) => {
        const { commandId } = await submit(stores, { tab: live });
        await stores.presence.noteWorkerCommand(worker, commandId);
        await stores.commands.claim(commandId, newClaimId(), worker, 'group');
        return commandId;
      };
      const [running, lost] = [await run(workerId), await run(deadWorker)];
      const { commandId: queued } = await submit(stores, { tab: live });
      await stores.presence.noteDue(`queued:${queued}`, 100);
      const stateOf = async (id: typeof queued) => (await stores.commands.get(id))?.snapshot.state;
      const sessionState = async (tab: typeof live) => (await stores.sessions.check(tab.sessionId, [])).state;
      for (const reconciler of reconcilers) reconciler.start();

      try {
        // Both have seen the clock as it was, and one leads.
        await until('a leader', async () => (await stores.redis.get(stores.keys.leader)) !== null);
        await until('a look of each', async () => (await stores.redis.pttl(stores.keys.leader)) > 0);
        await never('a look', () => false, LEASE_MS);
        const away = await openTab(stores, place, nodeId);
        await stores.sessions.detach(away.sessionId, away.attachmentId);
        const before = await redisMs();
        const steppedMs = performance.now();
        await writeFile(offset, `${stepS > 0 ? '+' : ''}${stepS}s\n`);
        await until('the clock to be set', async () => Math.abs((await redisMs()) - before) > (HOUR_S - 60) * 1_000);

        await until('the dead worker’s command to end', async () => (await stateOf(lost)) === 'ended', 20_000);
        await until('the grace to end', async () => (await sessionState(away)) === 'closed', 20_000);
        await until(
          'the dead node’s session to be over',
          async () => (await sessionState(orphaned)) === 'closed',
          20_000,
        );
        console.info(
          `clock set by ${stepS} s: the dead were gone after ${Math.round(performance.now() - steppedMs)} ms`,
        );
        await never('an end of the living', async () => (await sessionState(live)) !== 'live', 2 * LEASE_MS);
        expect(await stateOf(running)).toBe('running');
        expect(await stateOf(queued)).toBe('queued');
      } finally {
        clearInterval(beating);
        for (const reconciler of reconcilers) await reconciler.close();
        await rm(folder, { recursive: true, force: true });
      }
    },
    90_000,
  );
});
