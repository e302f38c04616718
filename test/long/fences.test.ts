/**
 * The twin of every rule: each guard of a script (a line marked `fence`) is taken out alone, and the histories must then
 * find a disagreement. A guard whose absence nobody notices would be a guard that nothing tests.
 */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findDisagreement } from '../support/histories.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores } from '../support/stores.js';

const SCRIPTS = new URL('../../src/redis/scripts/', import.meta.url);
/** Enough for the rarest; a found disagreement ends the search. */
const HISTORIES = 3_000;

let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis({ config: ['save ""', 'appendonly no'] });
});
afterAll(() => redis[Symbol.asyncDispose]());

const fences = readdirSync(SCRIPTS)
  // Histories lose no data, so nobody says anything again in them, have no limits and one version: those twins are in test/contracts.
  .filter((file) => !file.startsWith('restore-') && file !== '_turns.lua' && file !== 'quota.lua')
  .flatMap((file) =>
    readFileSync(new URL(file, SCRIPTS), 'utf8')
      .split('\n')
      .flatMap((line, index) =>
        line.includes('-- fence:') && !/-- fence: (turn|version)$/.test(line)
          ? [{ file, index, name: line.split('-- fence:')[1]?.trim() }]
          : [],
      ),
  );

describe('without its guard a rule is broken, and the histories see it', () => {
  it.each(fences)(
    '[IS2] $file line $index: $name',
    async ({ file, index }) => {
      const folder = mkdtempSync(join(tmpdir(), 'homing-scripts-'));
      try {
        cpSync(SCRIPTS, folder, { recursive: true });
        const lines = readFileSync(join(folder, file), 'utf8').split('\n');
        // A statement of several lines has its mark on the inner one; an empty body takes the guard out.
        const line = lines[index] ?? '';
        lines[index] =
          /^\s*(if|return) /.test(line) && line.includes(' then ') ? '' : line.replace(/return .*?(?= -- )/, '');
        writeFileSync(join(folder, file), lines.join('\n'));
        await using stores = await createStores(redis.url, { graceMs: 0, scriptsFolder: pathToFileURL(`${folder}/`) });
        expect(await findDisagreement(stores, HISTORIES, 1)).toBeDefined();
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
    120_000,
  );
});
