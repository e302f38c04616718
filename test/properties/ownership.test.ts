/** The rules of ownership, proven against a model: HOMING_TEST_HISTORIES sets how many histories are run. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findDisagreement, replay } from '../support/histories.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';

const HISTORIES = Number(process.env.HOMING_TEST_HISTORIES ?? 400);

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis({ config: ['save ""', 'appendonly no'] });
  stores = await createStores(redis.url, { graceMs: 0 });
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

describe('the model and the scripts', () => {
  it(`[OW1] [OW2] [OW3] [OW4] [OW5] [OW6] [OW8] [OW11] [OW12] [SE1] [SE2] [SE4] [DE6] [CO1] [CO2] agree after every step of ${HISTORIES} random histories`, async () => {
    expect(await findDisagreement(stores, HISTORIES)).toBeUndefined();
  }, 3_600_000);

  it('[OW2] the heir is chosen when a close begins, not when one is refused', async () => {
    const open = { do: 'open', who: 0, repeat: false } as const;
    await replay(stores, [
      open,
      open,
      {
        do: 'submit',
        who: 0,
        session: 1,
        origin: 'connection',
        parent: 0,
        stale: false,
        policy: 'adopt',
        repeat: 1,
        otherBody: false,
      },
      { do: 'close', session: 1, condition: 'grace', batches: 1 },
      open,
      { do: 'close', session: 1, condition: 'attachment', batches: 1 },
    ]);
  });
});
