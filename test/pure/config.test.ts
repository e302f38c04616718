/** Settings: defaults, every fault at once, files. */
import { describe, expect, it } from 'vitest';
import { nodeEnvironment, nodePorts, portFaults, workerEnvironment } from '../../src/cli/child-environment.js';
import { resolveFiles } from '../../src/cli/env-files.js';
import { CliFault } from '../../src/cli/fault.js';
import { isLoopback, nodeFaults, readSettings, workerFaults } from '../../src/cli/settings.js';
import { parseSettings, settingsSchema } from '../../src/config.js';

const settingsOf = (env: Record<string, string>) => {
  const parsed = parseSettings(env);
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'));
  return parsed.settings;
};

const faultsOf = (act: () => unknown): readonly string[] => {
  try {
    act();
  } catch (error) {
    if (error instanceof CliFault) return [...error.sentences, `status ${error.status}`];
    throw error;
  }
  return [];
};

const secret = 's'.repeat(32);

describe('settings', () => {
  it('has the defaults of the contract', () => {
    expect(settingsOf({})).toMatchObject({
      HOMING_HOST: '127.0.0.1',
      HOMING_PORT: 7420,
      HOMING_OPS_PORT: 7421,
      HOMING_GRACE_MS: 30_000,
      HOMING_HEARTBEAT_MS: 15_000,
      HOMING_LEASE_MS: 15_000,
      HOMING_OUTBOX_BYTES: 1_048_576,
      HOMING_POOL: 'default',
      HOMING_CONCURRENCY: 8,
      HOMING_PREFIX: 'h',
    });
  });

  it('describes every setting', () => {
    for (const [name, schema] of Object.entries(settingsSchema.shape)) {
      expect(schema.description, name).toMatch(/\S/);
    }
  });

  it.each([
    ['HOMING_LEASE_MS', 'soon', 'must be a whole number, not "soon"'],
    ['HOMING_CONCURRENCY', '1.5', 'must be a whole number, not "1.5"'],
    ['HOMING_CONCURRENCY', '0', 'must be at least 1, not 0'],
    ['HOMING_PORT', '70000', 'must be at most 65535, not 70000'],
    ['HOMING_CONTAINMENT', 'chroot', 'must be one of auto, pidns, group, not "chroot"'],
    ['HOMING_GATEWAY_URL', 'user:pass word', 'must be an address that begins with http:// or https://'],
    ['HOMING_PREFIX', 'a b', 'must be 1 to 32 characters of A-Z a-z 0-9 _ -'],
    ['HOMING_JWT_SECRET', 'short', 'must have at least 32 characters'],
  ])('says in plain words what is wrong with %s=%s', (name, given, sentence) => {
    expect(parseSettings({ [name]: given })).toEqual({ ok: false, faults: [`${name}: ${sentence}`] });
  });

  it('takes an empty variable as absent', () => {
    expect(settingsOf({ HOMING_PORT: '', HOMING_JWT_SECRET: '' })).toMatchObject({ HOMING_PORT: 7420 });
  });

  it('lists every fault at once, each beginning with its setting, and ends with 2', () => {
    const faults = faultsOf(() =>
      readSettings({
        HOMING_PORT: '70000',
        HOMING_REDIS_URL: 'http://x',
        HOMING_JWT_SECRET: 'short',
        HOMING_LEASE_MS: 'x',
      }),
    );
    expect(faults.map((fault) => fault.split(':')[0])).toEqual([
      'HOMING_REDIS_URL',
      'HOMING_PORT',
      'HOMING_JWT_SECRET',
      'HOMING_LEASE_MS',
      'status 2',
    ]);
  });

  it('tells what does not fit together along with what is wrong in itself', () => {
    const faults = faultsOf(() => readSettings({ HOMING_PORT: 'x', HOMING_HOST: '0.0.0.0' }, {}, nodeFaults));
    expect(faults.map((fault) => fault.split(':')[0])).toEqual(['HOMING_PORT', 'HOMING_JWT_SECRET', 'status 2']);
    const secretFaults = faultsOf(() =>
      readSettings({ HOMING_JWT_SECRET: 'short', HOMING_HOST: '0.0.0.0' }, {}, nodeFaults),
    );
    expect(secretFaults).toEqual(['HOMING_JWT_SECRET: must have at least 32 characters', 'status 2']);
  });

  it('lets flags win over the environment', () => {
    expect(readSettings({ HOMING_PORT: '1' }, { HOMING_PORT: '2', HOMING_HOST: undefined })).toMatchObject({
      HOMING_PORT: 2,
      HOMING_HOST: '127.0.0.1',
    });
  });
});

describe('NAME_FILE', () => {
  const read = (path: string) => {
    if (path === '/secret') return `${secret}\n`;
    throw new Error(`no such file: ${path}`);
  };

  it('gives the setting the content of the file without its last line break', () => {
    const { env, faults } = resolveFiles({ HOMING_JWT_SECRET_FILE: '/secret' }, ['HOMING_JWT_SECRET'], read);
    expect(faults).toEqual([]);
    expect(env.HOMING_JWT_SECRET).toBe(secret);
  });

  it('is a fault together with the setting itself, and when the file can not be read', () => {
    const env = { HOMING_JWT_SECRET: 'a', HOMING_JWT_SECRET_FILE: '/secret', HOMING_ADMIN_TOKEN_FILE: '/none' };
    const { faults } = resolveFiles(env, ['HOMING_JWT_SECRET', 'HOMING_ADMIN_TOKEN'], read);
    expect(faults).toHaveLength(2);
    expect(faults[0]).toMatch(/^HOMING_JWT_SECRET: /);
    expect(faults[1]).toMatch(/^HOMING_ADMIN_TOKEN_FILE: no such file/);
  });
});

describe('who may reach a node', () => {
  it('[IS1] listens beyond loopback only with a token setting', () => {
    expect(nodeFaults(settingsOf({}))).toEqual([]);
    expect(nodeFaults(settingsOf({ HOMING_HOST: '0.0.0.0' }))).toHaveLength(1);
    expect(nodeFaults(settingsOf({ HOMING_HOST: '0.0.0.0', HOMING_JWT_SECRET: secret }))).toEqual([]);
    expect(nodeFaults(settingsOf({ HOMING_OPS_HOST: '::', HOMING_JWT_SECRET: secret }))).toHaveLength(1);
  });

  it('[IS1] takes public keys for a token setting, and the secret before only beside the present one', () => {
    const keys = { HOMING_JWKS_URL: 'https://id.example/keys' };
    expect(nodeFaults(settingsOf({ HOMING_HOST: '0.0.0.0', ...keys }))).toEqual([]);
    expect(nodeFaults(settingsOf({ ...keys, HOMING_JWT_SECRET_PREVIOUS: secret }))).toHaveLength(1);
  });

  it('[IS1] a worker shows its figures beyond loopback only with a token for them', () => {
    const open = { HOMING_WORKER_OPS_PORT: '7422', HOMING_OPS_HOST: '0.0.0.0' };
    expect(workerFaults(settingsOf(open))).toHaveLength(1);
    expect(workerFaults(settingsOf({ ...open, HOMING_METRICS_TOKEN: 'm'.repeat(16) }))).toEqual([]);
    expect(workerFaults(settingsOf({ HOMING_WORKER_OPS_PORT: '7422' }))).toEqual([]);
    expect(workerFaults(settingsOf({ HOMING_OPS_HOST: '0.0.0.0' }))).toEqual([]);
  });

  it.each([
    ['127.0.0.1', true],
    ['127.8.8.8', true],
    ['::1', true],
    ['localhost', true],
    ['0.0.0.0', false],
    ['::', false],
    ['10.0.0.1', false],
    ['127.example.org', false],
  ])('[IS1] knows whether %s is this machine alone', (host, loopback) => {
    expect(isLoopback(host)).toBe(loopback);
  });
});

describe('what up hands to its children', () => {
  const settings = settingsOf({ HOMING_PORT: '7000', HOMING_OPS_PORT: '7001' });
  const secrets = { redisUrl: 'redis://own', jwtSecret: secret, adminToken: 'a'.repeat(16) };

  it('gives a node its secrets and every setting as it was read', () => {
    const env = nodeEnvironment({ PATH: '/bin', HOMING_LEASE_MS_FILE: '/x' }, settings, secrets);
    expect(env).toMatchObject({ PATH: '/bin', HOMING_REDIS_URL: 'redis://own', HOMING_JWT_SECRET: secret });
    expect(env.HOMING_LEASE_MS).toBe('15000');
    expect(env.HOMING_LEASE_MS_FILE).toBeUndefined();
  });

  it('[CO10] gives a worker no token and no secret that signs one', () => {
    const env = workerEnvironment({ HOMING_TOKEN: 't' }, settingsOf({ HOMING_JWT_SECRET: secret }), 'redis://own');
    expect(Object.values(env)).not.toContain(secret);
    expect(env.HOMING_TOKEN).toBeUndefined();
    expect(env.HOMING_REDIS_URL).toBe('redis://own');
  });

  it('puts node i ten ports further, and one that starts again where it was', () => {
    expect(nodePorts(settings, 2, undefined)).toEqual({ HOMING_PORT: '7020', HOMING_OPS_PORT: '7021' });
    const any = settingsOf({ HOMING_PORT: '0', HOMING_OPS_PORT: '0' });
    expect(nodePorts(any, 1, undefined)).toEqual({ HOMING_PORT: '0', HOMING_OPS_PORT: '0' });
    const before = { pid: 1, url: 'http://127.0.0.1:4001', opsUrl: 'http://127.0.0.1:4002' };
    expect(nodePorts(any, 1, before)).toEqual({ HOMING_PORT: '4001', HOMING_OPS_PORT: '4002' });
  });

  it('finds ports that do not exist or meet', () => {
    expect(portFaults(settings, 3)).toEqual([]);
    expect(portFaults(settingsOf({ HOMING_PORT: '65530' }), 2)).toHaveLength(1);
    expect(portFaults(settingsOf({ HOMING_PORT: '7000', HOMING_OPS_PORT: '7010' }), 2)).toHaveLength(1);
  });
});
