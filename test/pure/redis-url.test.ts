/** Every form of a Redis address, and what is wrong with the others, without the password. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AppError } from '../../src/errors.js';
import { asRedisError } from '../../src/redis/redis-errors.js';
import { describeTarget, parseRedisUrl } from '../../src/redis/redis-url.js';

const faultOf = (url: string): string => {
  try {
    parseRedisUrl(url);
  } catch (error) {
    expect(error).toMatchObject({ code: 'INVALID_PARAMS' });
    return (error as AppError).message;
  }
  throw new Error(`${url} was accepted`);
};

describe('addresses', () => {
  test('of one server, plain and encrypted', () => {
    expect(parseRedisUrl('redis://localhost')).toEqual({
      type: 'server',
      host: 'localhost',
      port: 6379,
      db: 0,
      tls: false,
    });
    expect(parseRedisUrl('rediss://ann:p%40ss@redis.example:6380/3', { ca: 'PEM' })).toEqual({
      type: 'server',
      host: 'redis.example',
      port: 6380,
      db: 3,
      tls: true,
      ca: 'PEM',
      username: 'ann',
      password: 'p@ss',
    });
    expect(parseRedisUrl('redis://:secret@[::1]:7000')).toMatchObject({ host: '::1', port: 7000, password: 'secret' });
  });

  test('of a unix socket, with an @ in the path and with a password', () => {
    expect(parseRedisUrl('unix:///run/redis.sock')).toEqual({ type: 'socket', path: '/run/redis.sock', db: 0 });
    expect(parseRedisUrl('unix:///home/a@b/my%20redis.sock?db=2')).toEqual({
      type: 'socket',
      path: '/home/a@b/my redis.sock',
      db: 2,
    });
    expect(parseRedisUrl('unix://:se%2Fcret@/run/redis.sock')).toEqual({
      type: 'socket',
      path: '/run/redis.sock',
      db: 0,
      password: 'se/cret',
    });
  });

  test('of sentinels and of a cluster', () => {
    expect(parseRedisUrl('redis-sentinel://:pw@a:26380,b/mymaster?db=1', { sentinelPassword: 'spw' })).toEqual({
      type: 'sentinel',
      sentinels: [
        { host: 'a', port: 26_380 },
        { host: 'b', port: 26_379 },
      ],
      name: 'mymaster',
      db: 1,
      tls: false,
      password: 'pw',
      sentinelPassword: 'spw',
    });
    expect(parseRedisUrl('redis-cluster://u:p@a:7000,b:7001?tls=1')).toEqual({
      type: 'cluster',
      nodes: [
        { host: 'a', port: 7000 },
        { host: 'b', port: 7001 },
      ],
      tls: true,
      username: 'u',
      password: 'p',
    });
  });

  test.each([
    ['http://localhost', 'must begin with'],
    ['localhost:6379', 'is not an address'],
    ['redis://a,b', 'takes one host'],
    ['redis://a:99999', 'host:port'],
    ['redis://a/x', 'not a number'],
    ['unix://host/path', 'absolute path'],
    ['unix://', 'absolute path'],
    ['redis-sentinel://a:1', 'name of the master'],
    ['redis-cluster://', 'names no host'],
    ['redis://:%zz@a', 'hexadecimal'],
  ])('%s is refused with a sentence', (url, what) => {
    expect(faultOf(url)).toContain(what);
  });

  test('[CO10] whatever the password, it comes back whole and is in no sentence', () => {
    const password = fc.string({ minLength: 6 }).filter((text) => /[^a-z0-9/:.]/.test(text));
    fc.assert(
      fc.property(password, fc.constantFrom('redis://%@h:1', 'unix://%@/s', 'redis-cluster://%@h:1'), (text, form) => {
        const target = parseRedisUrl(form.replace('%', () => `:${encodeURIComponent(text)}`));
        expect(target.password).toBe(text);
        expect(describeTarget(target)).not.toContain(text);
      }),
    );
    expect(faultOf('redis://:se%zzcret@host')).not.toContain('cret');
    expect(faultOf('redis://:secret-with-/-in-it@host')).not.toContain('secret');
  });
});

describe('failures', () => {
  const named = (name: string, message: string) => Object.assign(new Error(message), { name });
  const coded = (code: string) => Object.assign(new Error('x'), { code });

  test.each([
    named('ReplyError', "OOM command not allowed when used memory > 'maxmemory'."),
    named('ReplyError', 'LOADING Redis is loading the dataset in memory'),
    named('ReplyError', 'CLUSTERDOWN The cluster is down'),
    named('ReplyError', 'TRYAGAIN Multiple keys request during rehashing of slot'),
    named('ReplyError', 'MOVED 3999 127.0.0.1:6381'),
    named('ReplyError', "READONLY You can't write against a read only replica."),
    named('MaxRetriesPerRequestError', 'Reached the max retries per request limit'),
    named('Error', 'Connection is closed.'),
    named('Error', 'Command timed out'),
    named('Error', "Stream isn't writeable and enableOfflineQueue options is false"),
    coded('ECONNREFUSED'),
    coded('ENOENT'),
  ])('%s is an outage, with the cause kept', (error) => {
    expect(asRedisError(error)).toMatchObject({ code: 'REDIS_UNAVAILABLE', retryable: true, cause: error });
  });

  test('a fault of ours stays what it is', () => {
    for (const error of [
      new TypeError('x is not a function'),
      named('ReplyError', 'WRONGTYPE Operation against a key holding the wrong kind of value'),
      named('ReplyError', 'ERR user_script:3: attempt to index a nil value'),
      new AppError('NOT_OWNER', 'no'),
    ]) {
      expect(asRedisError(error)).toBe(error);
    }
  });
});
