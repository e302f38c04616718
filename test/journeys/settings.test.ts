/** Wrong settings are all named at once; what can not work says so in a sentence, never with a stack trace. */
import { describe, expect, it } from 'vitest';
import { runHoming, startCluster } from '../support/cluster.js';
import { createTab } from '../support/tab.js';
import { makeToken } from '../support/tokens.js';
import { until } from '../support/wait.js';

const SECRET = 'x'.repeat(40);
const STACK = /\n\s+at .*(:\d+:\d+|node:)/;

describe.concurrent('settings', () => {
  it.each(['gateway', 'worker'])('homing %s lists every fault at once and exits 2', async (role) => {
    const { code, stdout, stderr } = await runHoming([role], {
      env: {
        HOMING_REDIS_URL: 'http://localhost',
        HOMING_PORT: 'eighty',
        HOMING_JWT_SECRET: 'short',
        HOMING_LEASE_MS: '-5',
        HOMING_CONTAINMENT: 'vault',
        HOMING_PREFIX: 'no spaces',
      },
    });
    const said = stdout + stderr;
    expect(code, said).toBe(2);
    for (const name of ['REDIS_URL', 'PORT', 'JWT_SECRET', 'LEASE_MS', 'CONTAINMENT', 'PREFIX']) {
      expect(said).toContain(`HOMING_${name}`);
    }
    expect(said).not.toMatch(STACK);
    expect(said, 'a secret must not be repeated').not.toContain('short\n');
  });

  it.each(['gateway', 'worker'])(
    'homing %s without a Redis behind its address says so in a sentence and ends',
    async (role) => {
      const { code, stdout, stderr } = await runHoming([role], {
        env: {
          HOMING_REDIS_URL: 'redis://127.0.0.1:1',
          HOMING_JWT_SECRET: SECRET,
          HOMING_PORT: '0',
          HOMING_OPS_PORT: '0',
        },
        limitMs: 25_000,
      });
      const said = stdout + stderr;
      expect(code, said).toBe(1);
      expect(said).toMatch(/Redis/);
      expect(said).toContain('127.0.0.1:1');
      expect(said).not.toMatch(STACK);
      expect(said).not.toContain(SECRET);
    },
    30_000,
  );

  it('[IS1] without a token setting a node refuses to listen beyond loopback', async () => {
    const { code, stdout, stderr } = await runHoming(['gateway'], {
      env: { HOMING_REDIS_URL: 'redis://127.0.0.1:1', HOMING_HOST: '0.0.0.0', HOMING_PORT: '0', HOMING_OPS_PORT: '0' },
    });
    expect(code).toBe(2);
    expect(stdout + stderr).toMatch(/HOMING_JWT_SECRET.*0\.0\.0\.0/);
  });

  it.each([[['nonsense']], [['logs']], [['gateway', '--nonsense']], [['token']]])(
    'wrong usage exits 2 and says what is missing: homing %j',
    async (args) => {
      const { code, stdout, stderr } = await runHoming(args, { env: { HOMING_JWT_SECRET: SECRET } });
      expect(code, stdout + stderr).toBe(2);
      expect(stderr).not.toBe('');
      expect(stderr).not.toMatch(STACK);
    },
  );

  it('homing run keeps 2 for the commands it runs: its own wrong usage is 125', async () => {
    const { code, stderr } = await runHoming(['run']);
    expect(code).toBe(125);
    expect(stderr).toContain('argv');
  });

  it('the clients say in a sentence that no node answers, and exit 1 (run: 125)', async () => {
    const env = { HOMING_URL: 'http://127.0.0.1:1', HOMING_TOKEN: makeToken(SECRET, { sub: 'ann' }) };
    for (const [args, expected] of [
      [['ps'], 1],
      [['run', '--', 'true'], 125],
    ] as const) {
      const { code, stderr, stdout } = await runHoming(args, { env });
      expect(code, stdout + stderr).toBe(expected);
      expect(stderr).toContain('127.0.0.1:1');
      expect(stderr).not.toMatch(STACK);
    }
  });

  it('[IS1] a token that homing token prints opens exactly what it says', async () => {
    await using cluster = await startCluster({ nodes: 1, workers: 0 });
    const token = async (...args: string[]) => {
      const { code, stdout, stderr } = await runHoming(['token', ...args], {
        env: { HOMING_JWT_SECRET: cluster.secret },
      });
      expect(code, stderr).toBe(0);
      return stdout.trim();
    };
    await using tab = createTab({ token: await token('--sub', 'ann', '--conversation', 'one'), conversation: 'one' });
    await tab.open(cluster.node(0).url);
    await using outside = createTab({
      token: await token('--sub', 'ann', '--conversation', 'one'),
      conversation: 'two',
    });
    await expect(outside.open(cluster.node(0).url)).rejects.toMatchObject({ code: 'FORBIDDEN' });
    await using reader = createTab({ token: await token('--sub', 'ann', '--scope', 'read'), conversation: 'one' });
    await reader.open(cluster.node(0).url);
    await expect(reader.run({ argv: ['/bin/true'] })).rejects.toMatchObject({ code: 'FORBIDDEN' });
  });

  it('[IS1] the ops address keeps its figures for those with its token', async () => {
    await using cluster = await startCluster({ nodes: 1, workers: 0 });
    const { opsUrl } = cluster.node(0);
    expect((await fetch(`${opsUrl}/livez`)).status).toBe(200);
    await until('readiness', async () => (await fetch(`${opsUrl}/readyz`)).status === 200);
    expect((await fetch(`${opsUrl}/metrics`)).status).toBe(401);
    expect((await fetch(`${opsUrl}/metrics`, { headers: { authorization: 'Bearer wrong' } })).status).toBe(401);
    expect(await cluster.metric(0, 'homing_misdelivered_total')).toBe(0);
  });
});
