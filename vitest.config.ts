import { defineConfig } from 'vitest/config';

/**
 * `npm test` is all of who owns what and of delivery, in at most six minutes on two cores: the rules that need no process, the contracts of
 * records, channels and nodes with Redis, and the journeys of faults, failover, Cluster, Sentinel, slow readers, queues and  restarts. This
 * is what `npm run test:all` and CI try beside it: browsers, the programs' manners, documents as they are written, packaging, operations, doors,
 * and running programs to their edges.
 */
const WIDE = [
  'test/browser/**',
  'test/contracts/{cli,cli-input,cli-inside,cli-manners,client,client-output,containment}.test.ts',
  'test/contracts/{cors,doctor,embedded-server,independent-clients,inspect,limits,server-fetch}.test.ts',
  'test/contracts/{command-trace,doors,quotas,worker-input,worker-output,worker-secrets,worker-watch}.test.ts',
  'test/journeys/{alerts,containment,docs,examples,following,guides,limits,operators}.test.ts',
  'test/journeys/{readme,redis-users,topology,webhooks}.test.ts',
];
/** Minutes each; each guard has a quicker twin in test/contracts/fences. `npm run test:long` runs these. */
const LONG = ['test/long/**'];

/**
 * These share a process, one after the other: most of their cost is loading the same modules again. Importing a file of ours does
 * nothing and keeps nothing, so none sees another.
 */
const SHARED = ['test/pure/**/*.test.ts'];
const EXCLUDED = [
  '**/node_modules/**',
  ...(process.env.HOMING_TEST_LONG === undefined ? LONG : []),
  ...(process.env.HOMING_TEST_PART === 'core' ? WIDE : []),
];
/** A guard against hanging, and no measure of speed: it leaves room for a machine of half the speed that has much to do. */
const HUNG_MS = 60_000;
const EACH = {
  pool: 'forks' as const,
  testTimeout: HUNG_MS,
  hookTimeout: HUNG_MS,
  expect: { poll: { timeout: HUNG_MS / 2 } },
  setupFiles: ['test/support/no-leaks.ts'],
};

/** Three files at a time: each journey runs a cluster of real processes, and much of a test is waiting. Two cores are what we promise to need. */
export default defineConfig({
  test: {
    maxWorkers: 3,
    teardownTimeout: 5_000,
    // Once for all.
    globalSetup: ['test/support/server.ts', 'test/support/npx.ts'],
    projects: [
      { test: { ...EACH, name: 'own', include: ['test/**/*.test.ts'], exclude: [...EXCLUDED, ...SHARED] } },
      { test: { ...EACH, name: 'shared', include: SHARED, exclude: EXCLUDED, isolate: false } },
    ],
  },
});
