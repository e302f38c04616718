import { defineConfig } from 'vitest/config';

/**
 * `npm test` is the heart of it in three minutes: all rules that need no process, the contracts of records, channels and nodes with Redis, and
 * the journeys of who owns what, delivery, faults and failover. This is what `npm run test:all` and CI try beside it: browsers, the programs'
 * manners, documents as they are written, packaging, operations, doors, and running programs to their edges.
 */
const WIDE = [
  'test/browser/**',
  'test/contracts/{bus-trouble,cli,cli-input,cli-inside,cli-manners,client,client-output,clock-steps,containment}.test.ts',
  'test/contracts/{cors,doctor,embedded-server,independent-clients,inherited,inspect,limits,server-fetch}.test.ts',
  'test/contracts/{command-trace,doors,fuzz,quotas,worker,worker-input,worker-output,worker-secrets,worker-watch}.test.ts',
  'test/journeys/{alerts,containment,docs,examples,following,guides,limits,operators,queue-trouble}.test.ts',
  'test/journeys/{readme,redis-users,rolling,slow-readers,topology,webhooks}.test.ts',
];
/** Minutes each; each guard has a quicker twin in test/contracts/fences. `npm run test:long` runs these. */
const LONG = ['test/long/**'];

/** Three files at a time: each journey runs a cluster of real processes, and much of a test is waiting. Two cores are what we promise to need. */
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [
      '**/node_modules/**',
      ...(process.env.HOMING_TEST_LONG === undefined ? LONG : []),
      ...(process.env.HOMING_TEST_PART === 'core' ? WIDE : []),
    ],
    pool: 'forks',
    maxWorkers: 3,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    teardownTimeout: 5_000,
    globalSetup: ['test/support/server.ts', 'test/support/npx.ts'],
    setupFiles: ['test/support/no-leaks.ts'],
  },
});
