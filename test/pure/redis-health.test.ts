/** What is demanded of Redis, one demand at a time. */
import { describe, expect, it } from 'vitest';
import { sizeText } from '../../src/domain/finding.js';
import { type Deployment, judgeRedis, type ServerFacts } from '../../src/domain/redis-health.js';

const MIB = 1024 * 1024;
const sound: ServerFacts = {
  address: '10.0.0.1:6379',
  local: false,
  product: 'Redis',
  version: '7.0.15',
  evictionPolicy: 'noeviction',
  maxmemoryBytes: 1_000 * MIB,
  usedBytes: 100 * MIB,
  systemBytes: 4_000 * MIB,
  appendOnly: true,
  lastAppendOk: true,
  lastSnapshotOk: true,
  config: {
    appendFsync: 'everysec',
    snapshots: false,
    pubsub: { hardBytes: 256 * MIB, softBytes: 64 * MIB, softSeconds: 60 },
  },
  replicas: [{ address: '10.0.0.2:6379', online: true, lagSeconds: 0 }],
  clockAheadMs: 3,
  trips: { type: 'heard', medianMs: 0.4, count: 5 },
};
const server: Deployment = { type: 'server' };
const judge = (changed: Partial<ServerFacts>, deployment: Deployment = server) =>
  judgeRedis({ deployment, servers: [{ ...sound, ...changed }] }).filter(({ level }) => level !== 'ok');
const config = (changed: Partial<NonNullable<ServerFacts['config']>>) => ({
  config: { ...(sound.config as NonNullable<ServerFacts['config']>), ...changed },
});

describe('a Redis is judged', () => {
  it('sound when everything is as it should be', () => {
    expect(judge({})).toEqual([]);
    expect(judge({ product: 'Valkey', version: '8.1.0' })).toEqual([]);
  });

  it.each<[string, string, 'warn' | 'fail', Partial<ServerFacts>]>([
    ['too old', 'version', 'fail', { version: '6.2.14' }],
    ['evicting when full', 'eviction', 'fail', { evictionPolicy: 'allkeys-lru' }],
    ['evicting, but never full', 'eviction', 'warn', { evictionPolicy: 'volatile-lru', maxmemoryBytes: 0 }],
    ['keeping nothing', 'persistence', 'fail', { appendOnly: false }],
    ['keeping snapshots only', 'persistence', 'warn', { appendOnly: false, ...config({ snapshots: true }) }],
    ['unable to write its file', 'persistence', 'fail', { lastAppendOk: false }],
    ['unable to write a snapshot', 'persistence', 'fail', { lastSnapshotOk: false }],
    ['never syncing', 'persistence', 'warn', config({ appendFsync: 'no' })],
    [
      'dropping a busy node',
      'output buffers',
      'warn',
      config({ pubsub: { hardBytes: 32 * MIB, softBytes: 8 * MIB, softSeconds: 60 } }),
    ],
    [
      'without a limit for a node that hangs',
      'output buffers',
      'warn',
      config({ pubsub: { hardBytes: 0, softBytes: 0, softSeconds: 0 } }),
    ],
    ['not telling its configuration', 'output buffers', 'warn', { config: undefined }],
    ['alone on another machine', 'replicas', 'warn', { replicas: [] }],
    ['with a replica away', 'replicas', 'warn', { replicas: [{ address: 'r', online: false, lagSeconds: 0 }] }],
    ['with a replica far behind', 'replicas', 'warn', { replicas: [{ address: 'r', online: true, lagSeconds: 60 }] }],
    ['deaf', 'pub/sub', 'fail', { trips: { type: 'silent', why: 'nothing within 2000 ms' } }],
    ['slow', 'pub/sub', 'warn', { trips: { type: 'heard', medianMs: 80, count: 5 } }],
    ['filling', 'memory', 'warn', { usedBytes: 750 * MIB }],
    ['full', 'memory', 'fail', { usedBytes: 900 * MIB }],
    ['filling its machine', 'memory', 'fail', { maxmemoryBytes: 0, usedBytes: 3_900 * MIB }],
    ['ahead of our clock', 'clock', 'warn', { clockAheadMs: 5_000 }],
    ['far behind our clock', 'clock', 'fail', { clockAheadMs: -3_600_000 }],
  ])('%s: %s is %s, with how to mend it', (_what, check, level, changed) => {
    const found = judge(changed);
    expect(found).toMatchObject([{ check, level }]);
    expect(found[0]?.mend).toMatch(/^\S.+\.$/);
  });

  it('alone on this machine needs no replica; to fail over needs one', () => {
    expect(judge({ replicas: [], local: true })).toEqual([]);
    expect(judge({ replicas: [] }, { type: 'cluster', ok: true, slotsServed: 16_384 })).toMatchObject([
      { check: 'replicas', level: 'fail' },
    ]);
  });

  it('by its slots, when it is a Cluster, and names the master of each finding', () => {
    const servers = [sound, { ...sound, address: '10.0.0.3:6379', appendOnly: false }];
    const found = judgeRedis({ deployment: { type: 'cluster', ok: false, slotsServed: 10_923 }, servers });
    expect(found.filter(({ level }) => level !== 'ok')).toMatchObject([
      { check: 'cluster', level: 'fail', found: expect.stringContaining('10923 of 16384') },
      { check: 'persistence', level: 'fail', of: '10.0.0.3:6379' },
    ]);
  });

  it('by its sentinels: some that do not answer are a risk, none that does is a fault', () => {
    const up = (address: string) => ({ address, quorum: { ok: true, said: 'OK 3 usable Sentinels' } });
    const down = (address: string) => ({ address, quorum: { ok: false, said: 'connect ECONNREFUSED' } });
    const sentinels = (...asked: ReturnType<typeof up>[]) =>
      judgeRedis({ deployment: { type: 'sentinel', asked }, servers: [sound] })
        .filter(({ check }) => check === 'sentinels')
        .map(({ level }) => level);
    expect(sentinels(up('a'), up('b'), up('c'))).toEqual(['ok']);
    expect(sentinels(up('a'), up('b'), down('c'))).toEqual(['warn', 'ok']);
    expect(sentinels(up('a'))).toEqual(['warn']);
    expect(sentinels(down('a'), down('b'))).toEqual(['fail', 'fail']);
  });
});

it.each([
  [0, '0 B'],
  [512, '512 B'],
  [1536, '1.5 KiB'],
  [32 * MIB, '32 MiB'],
  [4 * 1024 * MIB, '4 GiB'],
])('%d bytes are said as %s', (bytes, text) => {
  expect(sizeText(bytes)).toBe(text);
});
