/**
 * Runs with every test file: a file that leaves a process behind fails. What it started itself is a child of this
 * process; what a command left behind is found by its marker.
 */
import { afterAll, beforeAll, expect } from 'vitest';
import { childrenOf, commandLine, marked, markerFor } from './processes.js';
import { until } from './wait.js';

let before: number[] = [];

const left = () =>
  [...childrenOf(process.pid), ...marked(markerFor(''))]
    .filter((pid) => !before.includes(pid))
    .map((pid) => `${pid} ${commandLine(pid)}`);

beforeAll(() => {
  before = childrenOf(process.pid);
});

afterAll(async () => {
  // A process that was told to end may need a moment to be gone.
  const remaining = await until('no process left', () => left().length === 0, 3_000).then(() => [], left);
  for (const line of remaining) {
    try {
      process.kill(Number(line.split(' ')[0]), 'SIGKILL');
    } catch {
      // It went away by itself meanwhile.
    }
  }
  expect(remaining, 'processes that the tests of this file left behind').toEqual([]);
});
