/**
 * Control groups of version 2 as the kernel holds them. Needs a kernel that gives them to this process: where the host's does
 * not, `test/support/in-uml.sh npx vitest run test/long/cgroups.test.ts` runs it under one that does.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findOwnCgroup } from '../../src/worker/cgroup-mount.js';
import { tryCgroups } from '../../src/worker/cgroups-probe.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { runOnce, script } from '../support/test-worker.js';
import { until } from '../support/wait.js';

const own = findOwnCgroup() ?? '';
const read = (path: string) => readFileSync(join(own, path), 'utf8');
const MIB = 1024 * 1024;
/** Keeps the whole of one line without an end, in a child that is not the leader. */
const greedy = (bytes: number) => `head -c ${bytes} /dev/zero | tail -n 1 >/dev/null; echo survived`;

const offered = existsSync(join(own, 'cgroup.controllers')) ? read('cgroup.controllers').split(/\s+/) : [];
const isGiven = offered.includes('memory') && offered.includes('pids');
if (!isGiven) process.stdout.write('control groups: not run, this kernel gives none of version 2; see in-uml.sh\n');

describe.runIf(isGiven)('control groups', () => {
  let redis: TestRedis;
  let stores: Stores;
  beforeAll(async () => {
    redis = await startRedis();
    stores = await createStores(redis.url);
  }, 120_000);
  afterAll(async () => {
    await stores?.[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
  });

  it('are tried, used, and given back as they were found', { timeout: 60_000 }, async () => {
    const before = { control: read('cgroup.subtree_control'), groups: readdirSync(own).sort() };
    const tried = await tryCgroups('test');
    if (tried.type === 'none') throw new Error(`this kernel gives none: ${tried.why}`);
    expect(read('homing-test/worker/cgroup.procs')).toContain(String(process.pid));
    tried.cgroups.close();
    await until('the groups to be gone', () => readdirSync(own).sort().join() === before.groups.join());
    expect(read('cgroup.subtree_control')).toBe(before.control);
  });

  it.each(['pidns', 'group'] as const)(
    '[CO8] the kernel ends all of a command at its limit of memory, with the reason, at containment %s',
    { timeout: 120_000 },
    async (level) => {
      const spec = { ...script(greedy(400 * MIB)), resources: { memoryBytes: 48 * MIB } };
      const { outcome, output } = await runOnce(stores, redis.url, spec, {}, { level });
      expect(outcome).toMatchObject({ reason: 'out_of_memory' });
      expect(outcome.error).toMatch(/the kernel killed it, at the limit of 50331648 bytes|it used \d+ bytes of memory/);
      expect(output.toString()).not.toContain('survived');
      await until('its group to be gone', () => readdirSync(own).every((name) => !name.startsWith('homing-')), 15_000);
    },
  );

  it('a command within its limits notices nothing, whatever threads it has', { timeout: 120_000 }, async () => {
    const argv = [process.execPath, '-e', 'console.log(require("fs").readFileSync("/proc/self/cgroup", "utf8"))'];
    const resources = { memoryBytes: 512 * MIB, processes: 2 };
    const { outcome, output } = await runOnce(stores, redis.url, { argv, resources });
    expect(outcome).toMatchObject({ reason: 'exited', code: 0 });
    expect(output.toString()).toMatch(/^0::\S*\/homing-wrk_\S+\/cmd_\S+$/m);
  });
});
