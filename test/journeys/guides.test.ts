/** Every command of the guides runs as it is written, from top to bottom; what the guides say is made, is what is made. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settingsReference } from '../../src/ops/settings-reference.js';
import { MAIN } from '../support/cluster.js';
import { type Household, startHousehold } from '../support/household.js';
import { stablePort } from '../support/ports.js';
import { startRedis } from '../support/redis.js';
import { ROOT, snippetsOf, startProgram } from '../support/snippets.js';

/** Run here. The others have tests of their own, or nothing to run. */
const GUIDES = ['docs/quick-start.md', 'docs/cluster.md', 'docs/troubleshooting.md'];
const ELSEWHERE = ['docs/sdk.md', 'docs/embedding.md'];
const LIMIT_MS = 60_000;

let folder = '';
let home: Household;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'homing-guides-'));
  await cp(join(ROOT, 'deploy'), join(folder, 'deploy'), { recursive: true });
  // npx finds the program that is installed; half a second each time is the only other thing it does.
  await writeFile(join(folder, 'npx'), `#!/bin/sh\nshift\nexec "${process.execPath}" "${MAIN}" "$@"\n`, {
    mode: 0o755,
  });
  home = await startHousehold();
});
afterAll(async () => {
  await home?.[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

/** In one shell, as a reader would; what was started in the background ends with it. */
async function follow(blocks: readonly string[], env: Record<string, string>, wait = ':') {
  const end = `trap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT`;
  const script = ['set -euo pipefail', end, `cd '${folder}'`];
  for (const block of blocks) script.push(block, / &$/m.test(block) ? wait : ':', 'echo "--- next ---"');
  const given = { ...env, PATH: `${folder}:${process.env.PATH}`, HOMING_PORT: '0', HOMING_OPS_PORT: '0' };
  const program = startProgram('bash', ['-c', script.join('\n')], given);
  const code = await program.ended(LIMIT_MS);
  expect(code, program.stdout + program.stderr).toBe(0);
  return program.stdout.split('--- next ---\n');
}

const here = (): Record<string, string> => ({ HOMING_DATA_DIR: home.dataDir });

it('docs/quick-start.md', { timeout: LIMIT_MS + 5_000 }, async () => {
  const [start, ...blocks] = snippetsOf('docs/quick-start.md', 'sh');
  // That is how this system was built and started.
  expect(start?.trim()).toBe('npm ci && npm start');
  const [run, sorted, left, list, killed, doctor] = await follow(blocks, here());
  expect(run).toBe('hello\nworld\n');
  expect(sorted).toBe('a\nb\n');
  expect(left).toMatch(/^step 1\nstep 2\nstep 3\nCOMMAND .*\ncmd_\S+ +exited 0 /);
  expect(JSON.parse(list as string)).toMatchObject({ state: 'ended' });
  expect(killed).toMatch(/^(requested|running|ended)\n$/);
  expect(doctor).toContain('pub/sub');
});

it('docs/cluster.md', { timeout: LIMIT_MS + 5_000 }, async () => {
  await using redis = await startRedis({ config: ['client-output-buffer-limit pubsub 256mb 64mb 60'] });
  const ports = await Promise.all([7420, 7421, 7430, 7431].map(async (port) => [port, await stablePort()] as const));
  const real = (text: string) =>
    ports.reduce(
      (all, [port, free]) => all.replaceAll(String(port), String(free)),
      text.replaceAll('redis://127.0.0.1:6379', redis.url),
    );
  const ready = [7421, 7431]
    .map((port) => `until curl -fs http://127.0.0.1:${port}/readyz; do sleep 0.1; done`)
    .join('\n');
  const blocks = snippetsOf('docs/cluster.md', 'sh').map(real);
  const [secrets, doctor, , run, readyz] = await follow(blocks, { HOMING_DATA_DIR: folder }, real(ready));
  expect(secrets).toMatch(/^secrets are in /);
  expect(doctor).toMatch(/Everything is as it should be|Nothing failed/);
  // The programs that were started in the background say when they are ready, whatever runs then.
  expect(run?.replace(/^\{"event":"ready",.*\n/gm, '')).toBe('from somewhere in the cluster\n');
  expect(JSON.parse(readyz as string)).toMatchObject({ status: 'ok' });
  const written = async (name: string) => (await readFile(join(folder, 'deploy/secrets', name), 'utf8')).trim();
  expect(await written('jwt_secret')).toMatch(/^[0-9a-f]{64}$/);
  expect(await written('redis_url')).toBe(`redis://:${await written('redis_password')}@redis:6379`);
});

it('docs/troubleshooting.md', { timeout: LIMIT_MS + 5_000 }, async () => {
  const [doctor, queued, ended, json] = await follow(snippetsOf('docs/troubleshooting.md', 'sh'), here());
  expect(doctor).toContain('This machine');
  expect(queued).toBe('');
  expect(JSON.parse((ended as string).trim())).toMatchObject({ type: 'ended', outcome: { reason: 'exited', code: 3 } });
  expect(JSON.parse(json as string)).toMatchObject({ ok: true });
});

describe('the documents', () => {
  const documents = [
    ...readdirSync(join(ROOT, 'docs'))
      .filter((name) => name.endsWith('.md'))
      .map((name) => `docs/${name}`),
  ];

  it('have no command that no test runs', () => {
    for (const document of documents) {
      if (GUIDES.includes(document) || ELSEWHERE.includes(document)) continue;
      expect(snippetsOf(document, '(?:sh|bash|shell|console)'), document).toEqual([]);
    }
  });

  it('docs/settings.md is what the schema says: run "npm run docs" where it is not', () => {
    expect(readFileSync(join(ROOT, 'docs/settings.md'), 'utf8')).toBe(settingsReference());
  });

  it('link only to what is there', () => {
    for (const document of [...documents, 'README.md']) {
      const links = [...readFileSync(join(ROOT, document), 'utf8').matchAll(/\]\((?!https?:)([^)#\s]+)/g)];
      const missing = links
        .map(([, target]) => target as string)
        .filter((target) => !existsSync(join(ROOT, dirname(document), target)));
      expect(missing, document).toEqual([]);
    }
  });
});
