/**
 * The order of the test files: the longest first, since a long one that starts last alone decides when all are over; and the
 * pure ones, which need milliseconds, at the very end, where they fill what is left of the workers' time.
 */
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Those that took longest, roughly in that order. One that is not named here is only not early. */
const LONG = [
  'contracts/cli',
  'contracts/worker-input',
  'journeys/topology',
  'contracts/containment',
  'contracts/bus-trouble',
  'browser/interruptions',
  'browser/flood',
  'contracts/cli-manners',
  'journeys/complaints',
  'journeys/failover',
  'journeys/readme',
  'browser/access',
  'contracts/client-output',
  'browser/homecoming',
  'contracts/server-fetch',
  'journeys/containment',
  'journeys/redis-trouble',
  'journeys/rolling',
  'contracts/event-bus-cluster',
  'journeys/webhooks',
  'contracts/worker',
  'journeys/queue-trouble',
  'journeys/floods',
  'journeys/faults',
  'journeys/examples',
  'journeys/worker-death',
];

export class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification) => {
      const at = LONG.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
      if (at >= 0) return at;
      return moduleId.includes('/test/pure/') ? LONG.length + 1 : LONG.length;
    };
    // What is in the same place keeps the order of vitest: by what it remembers of the last run, or else by size.
    return (await super.sort(files)).sort((one, other) => place(one) - place(other));
  }
}
