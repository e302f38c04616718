/**
 * Whatever comes through a door as text: nothing throws, nothing is polluted, and no sentence repeats a secret. The same inputs each time;
 * `HOMING_TEST_FUZZ_RUNS` and `HOMING_TEST_FUZZ_SEED` make it longer and other.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseSettings, settingsSchema } from '../../src/config.js';
import { parseCursor } from '../../src/domain/conversation-cursor.js';
import { errorText, parseFrame, resultText } from '../../src/protocol/codec.js';
import { parseEntryText } from '../../src/protocol/entries.js';
import { parseShape } from '../../src/protocol/faults.js';
import { httpRoutes } from '../../src/protocol/http.js';
import { parseCommandId, parseNodeId, parseSessionId, parseWorkerId, type Tag } from '../../src/protocol/ids.js';
import { methods, outputAck } from '../../src/protocol/methods.js';
import { parseClaims, parseScopes } from '../../src/protocol/token.js';
import { readJob } from '../../src/queue/job.js';
import { fuzz, hostile, hostileText, nearly, RUNS } from '../support/fuzz.js';

const untouched = () => {
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  expect(Object.keys(Object.prototype)).toEqual([]);
};

/** Fields whose values may be secret. */
const HIDDEN = /^(env|secrets|argv|script|token|resumeToken|data|base64)(\.|$)/;

describe('input that is hostile', () => {
  it('[DE5] a frame of any text is one message or a batch, and its answer is JSON', () => {
    fuzz([hostileText], (text) => {
      const frame = parseFrame(text);
      for (const message of frame.type === 'batch' ? frame.messages : [frame.message]) {
        if (message.type === 'invalid') JSON.parse(errorText(message.id, message.error));
        if (message.type === 'request') JSON.parse(resultText(message.id, message.params));
      }
    });
    untouched();
  });

  it('a frame of hostile JSON too, as it is and as the params of a request', () => {
    fuzz([hostile], (value) => {
      parseFrame(JSON.stringify(value));
      const asked = parseFrame(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'command.run', params: value }));
      expect(asked.type).toBe('single');
    });
    untouched();
  });

  it('JSON as deep as a frame has room for is read, and refused by its shape', () => {
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
    ] as const) {
      const depth = Math.floor(63_000 / (open.length + close.length));
      const deep = `${open.repeat(depth)}1${close.repeat(depth)}`;
      const frame = parseFrame(`{"jsonrpc":"2.0","id":1,"method":"command.run","params":{"argv":${deep}}}`);
      if (frame.type !== 'single' || frame.message.type !== 'request') throw new Error('it was not read');
      expect(parseShape<unknown>(methods['command.run'], frame.message.params).ok).toBe(false);
    }
  });

  const shapes = [
    ...Object.entries(methods),
    ['output.ack', outputAck] as const,
    ...Object.entries(httpRoutes).flatMap(([name, route]) =>
      (['params', 'query', 'headers', 'body'] as const).flatMap((part) => {
        const shape = (route as Record<string, unknown>)[part];
        return shape === undefined ? [] : [[`${name} ${part}`, shape as (typeof methods)['command.get']] as const];
      }),
    ),
  ];
  it.each(shapes)('%s takes what fits, names a field of what does not, and repeats no secret', (name, shape) => {
    fuzz([nearly(shape)], (value) => {
      const parsed = parseShape<unknown>(shape, value);
      // What was read is read again as the same: nothing is half-read. A query is text, and read as what it says.
      if (parsed.ok) {
        if (!name.endsWith('query')) expect(parseShape<unknown>(shape, structuredClone(parsed.value))).toEqual(parsed);
      } else {
        expect(parsed.message).toMatch(/\S/);
        expect(parsed.message.length).toBeLessThan(1_000);
        if (HIDDEN.test(parsed.field ?? '')) expect(parsed.message).not.toContain('hush-hush');
      }
    });
    untouched();
  });

  it('settings of any text are taken, or each fault begins with the name of its setting', () => {
    const names = Object.keys(settingsSchema.shape);
    const secret = /SECRET|TOKEN|PASSWORD|REDIS_URL/;
    fuzz([nearly(settingsSchema)], (value) => {
      const env = Object.fromEntries(
        Object.entries(value ?? {}).map(([name, given]) => [
          name,
          typeof given === 'string' ? given : JSON.stringify(given),
        ]),
      );
      const parsed = parseSettings(env);
      if (parsed.ok) return;
      for (const fault of parsed.faults) {
        const name = fault.split(':')[0] ?? '';
        expect(names).toContain(name);
        const given = env[name] ?? '';
        if (secret.test(name) && given.length > 8) expect(fault).not.toContain(given);
      }
    });
  });

  it('job data, claims, cursors, ids and stored entries of any kind are read or are nothing', () => {
    fuzz([hostile, hostileText], (value, text) => {
      readJob(text, value);
      const claims = parseClaims(value);
      if (claims !== undefined) expect(typeof claims.principal).toBe('string');
      parseScopes(text);
      parseCursor('aaaaaaaaaaaaaaaa' as Tag, text);
      for (const parse of [parseCommandId, parseSessionId, parseNodeId, parseWorkerId]) {
        parse(value);
        expect(parse(text)).toBeUndefined();
      }
      try {
        parseEntryText(text);
      } catch (error) {
        // An entry is written by a worker: one that is no JSON is damage, and said to be so.
        expect(error).toBeInstanceOf(Error);
      }
    });
    untouched();
  });

  it('as often as docs/security.md says', () => {
    const document = readFileSync(new URL('../../docs/security.md', import.meta.url), 'utf8');
    expect(document).toContain(`${shapes.length} shapes of methods and routes with 100 values each`);
    expect(RUNS).toBeGreaterThanOrEqual(100);
  });
});
