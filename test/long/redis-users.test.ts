/** The users of `deploy/redis-users.acl` on every way to deploy Redis; what they may not do is tried in test/journeys. */
import { expect, it } from 'vitest';
import { startCluster } from '../support/cluster.js';
import { DEPLOYMENTS } from '../support/deployments.js';
import { redisUsers } from '../support/redis-users.js';

const PREFIX = 'acl';

it.each(DEPLOYMENTS)(
  '[OW1] a node and a worker run a command with their own users on $name',
  { timeout: 90_000 },
  async ({ start }) => {
    await using redis = await start(redisUsers(PREFIX, () => 'password', false));
    const urlOf = (role: string) => redis.url.replace('://', `://${role}:password@`);
    await using cluster = await startCluster({
      ...{ nodes: 1, workers: 1, redis: { url: urlOf('homing-node') }, env: { HOMING_PREFIX: PREFIX } },
      workerEnv: () => ({ HOMING_REDIS_URL: urlOf('homing-worker') }),
    });
    const tab = await cluster.tab(0);
    const commandId = await tab.run({ argv: ['echo', 'with users'] });
    await tab.ended(commandId);
    expect(tab.output(commandId)).toBe('with users\n');
    for (const { log } of [...cluster.nodes, ...cluster.workers]) expect(log).not.toMatch(/NOPERM|no permissions/);
  },
);
