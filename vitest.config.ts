import { defineConfig } from 'vitest/config';

/** Three files at a time: each journey runs a cluster of real processes, and much of a test is waiting; two cores are what we promise to need. */
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Minutes long, and each guard has a quicker twin in test/contracts/fences: `npm run test:long` runs these.
    exclude:
      process.env.HOMING_TEST_LONG === undefined ? ['**/node_modules/**', 'test/long/**'] : ['**/node_modules/**'],
    pool: 'forks',
    maxWorkers: 3,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    teardownTimeout: 5_000,
    globalSetup: ['test/support/server.ts'],
    setupFiles: ['test/support/no-leaks.ts'],
  },
});
