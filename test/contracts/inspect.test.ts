/** What is found out about a Redis, on every way to deploy one. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { judgeRedis } from '../../src/domain/redis-health.js';
import { parseRedisUrl } from '../../src/redis/connections.js';
import { inspectRedis } from '../../src/redis/inspect.js';
import { createKeys } from '../../src/redis/keys.js';
import { runHoming } from '../support/cluster.js';
import { DEPLOYMENTS } from '../support/deployments.js';
import { startRedis } from '../support/redis.js';

const keys = createKeys('doctor');
const inspect = async (url: string) => {
  const facts = await inspectRedis(parseRedisUrl(url), keys);
  return { facts, findings: judge(facts) };
};
type Finding = ReturnType<typeof judgeRedis>[number];
/** That messages are slow is of the machine that runs the tests; what is slow is said in `pure/redis-health`. */
const atAnyPace = (finding: Finding): Finding => {
  if (finding.check !== 'pub/sub' || finding.level !== 'warn' || !/there and back/.test(finding.found)) return finding;
  const { mend: _mend, ...rest } = finding;
  return { ...rest, level: 'ok' };
};
const judge = (facts: Parameters<typeof judgeRedis>[0]) => judgeRedis(facts).map(atAnyPace);
const anyPorts = { HOMING_PORT: '0', HOMING_OPS_PORT: '0' };
/** Of two examinations: the same findings with other figures. */
const anyFigures = (finding: object) => ({ ...finding, found: expect.any(String) });
const levels = (findings: ReturnType<typeof judgeRedis>) =>
  Object.fromEntries(findings.map(({ check, level }) => [check, level]));

describe.each(DEPLOYMENTS)('on $name', ({ name, start }) => {
  it('every master is asked and proved, and nothing is wrong with a sound one', { timeout: 60_000 }, async () => {
    await using redis = await start(['client-output-buffer-limit pubsub 256mb 64mb 60']);
    const { facts, findings } = await inspect(redis.url);
    expect(facts.servers).toHaveLength(name === 'a Cluster' ? 3 : 1);
    expect(findings.filter(({ level }) => level !== 'ok')).toEqual([]);
    for (const { trips, address } of facts.servers) {
      expect(trips).toMatchObject({ type: 'heard', count: 5 });
      expect(address).toMatch(/^127\.0\.0\.1:\d+$/);
    }
    const addresses = new Set(facts.servers.map(({ address }) => address));
    expect(addresses.size).toBe(facts.servers.length);
    const doctor = await runHoming(['doctor', '--json'], { env: { HOMING_REDIS_URL: redis.url, ...anyPorts } });
    expect(doctor).toMatchObject({ code: 0, stderr: '' });
    const { ok, sections } = JSON.parse(doctor.stdout);
    expect(ok).toBe(true);
    const { title, findings: told } = sections[0];
    expect(title).toBe(`Redis at ${redis.url}`);
    expect(told.map(atAnyPace)).toEqual(findings.map(anyFigures));
  });
});

describe('on one server', () => {
  it('what is wrong is found: eviction, persistence, buffers', async () => {
    const config = ['maxmemory 100mb', 'maxmemory-policy allkeys-lru', 'appendonly no'];
    await using redis = await startRedis({ config: [...config, 'client-output-buffer-limit pubsub 32mb 8mb 60'] });
    const { findings } = await inspect(redis.url);
    expect(levels(findings)).toMatchObject({
      ...{ version: 'ok', eviction: 'fail', persistence: 'fail', 'output buffers': 'warn' },
      ...{ replicas: 'ok', 'pub/sub': 'ok', memory: 'ok', clock: 'ok' },
    });
  });

  it('nothing is wrong with what docker-compose.yml starts, but that it has no replica', async () => {
    const file = readFileSync(new URL('../../deploy/redis.conf', import.meta.url), 'utf8');
    const config = file.split('\n').filter((line) => line !== '' && !/^(#|dir )/.test(line));
    await using redis = await startRedis({ config });
    const { facts } = await inspect(redis.url);
    const elsewhere = { ...facts, servers: facts.servers.map((server) => ({ ...server, local: false })) };
    expect(judge(elsewhere).filter(({ level }) => level !== 'ok')).toMatchObject([
      { check: 'replicas', level: 'warn' },
    ]);
  });

  it('a user who may not publish is told, and so is one who may not read the configuration', async () => {
    const config = ['user narrow on >secret ~* &nothing* +@all -config'];
    await using redis = await startRedis({ config });
    const { findings } = await inspect(redis.url.replace('redis://', 'redis://narrow:secret@'));
    const trips = findings.find(({ check }) => check === 'pub/sub');
    expect(trips?.level).toBe('fail');
    expect(trips?.found).toMatch(/NOPERM|permission/);
    expect(levels(findings)).toMatchObject({ 'output buffers': 'warn', persistence: 'ok' });
    expect(JSON.stringify(findings)).not.toContain('secret');
  });

  it('one that is not there is a sentence, in time', async () => {
    await expect(inspect('redis://127.0.0.1:1')).rejects.toThrow(/^Redis at 127\.0\.0\.1:1 does not answer: /);
  });
});
