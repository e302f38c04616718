/** The port TenantPlaces on Redis: one script on two keys of one slot, whichever conversations the commands are of. */
import type { TenantPlaces } from '../domain/ports.js';
import type { CommandId } from '../protocol/ids.js';
import type { Keys } from './keys.js';
import type { Scripts } from './scripts.js';

type Answer = [given: CommandId[], stale: CommandId[]];

/** @param staleMs a place nobody has looked at for this long is looked at when somebody waits */
export function createTenantPlaces(options: {
  readonly keys: Keys;
  readonly scripts: Scripts;
  readonly staleMs: number;
}): TenantPlaces {
  const { keys, scripts, staleMs } = options;
  const run = async (tenant: string, ...args: (string | number)[]) =>
    (await scripts.run('tenant-place', keys.tenantPlaces(tenant), args)) as Answer;

  return {
    async take(tenant, commandId, { order, tenantLimit }) {
      const [given, stale] = await run(tenant, 'take', commandId, tenantLimit, order, staleMs);
      return { given, stale };
    },
    async free(tenant, commandId, tenantLimit) {
      const [given] = await run(tenant, 'free', commandId, tenantLimit);
      return given;
    },
    async seen(tenant, commandId) {
      await run(tenant, 'seen', commandId);
    },
  };
}
