/** The log: one line of JSON an event, and no field in clear whose name says that it is a secret (CO10). */
import { describe, expect, it } from 'vitest';
import { createLog } from '../../src/ops/log.js';

function written(level: 'info' | 'debug' = 'info') {
  const lines: string[] = [];
  const log = createLog(level, { program: 'gateway' }, { write: (line) => void lines.push(line) });
  return { log, lines, last: () => JSON.parse(lines.at(-1) ?? '{}') };
}

describe('the log', () => {
  it('is one line an event: level, time, what every line of the process has, the fields and a sentence', () => {
    const { log, lines, last } = written();
    log.child({ nodeId: 'node_x' }).warn({ commandId: 'cmd_x', reason: 'two\nlines' }, 'something happened');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^\{.*\}\n$/);
    expect(last()).toEqual({
      level: 'warn',
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      ...{ program: 'gateway', nodeId: 'node_x', commandId: 'cmd_x', reason: 'two\nlines', msg: 'something happened' },
    });
  });

  it('[CO10] blanks fields that are secrets by their name, at the top and one level down', () => {
    const { log, lines, last } = written();
    const names = [
      'token',
      'resumeToken',
      'secret',
      'secrets',
      'password',
      'authorization',
      'cookie',
      'env',
      'idempotencyKey',
    ];
    const secrets = Object.fromEntries(names.map((name) => [name, 'sesame-in-clear']));
    log.error({ ...secrets, headers: secrets, spec: { argv: ['true'], ...secrets } }, 'a request failed');
    expect(lines.join('')).not.toContain('sesame');
    for (const name of names) {
      expect(last()[name]).toBe('[hidden]');
      expect(last().headers[name]).toBe('[hidden]');
    }
    expect(last().spec.argv).toEqual(['true']);
  });

  it('leaves out what is below its level', () => {
    const { log, lines } = written();
    log.debug({}, 'not said');
    expect(lines).toEqual([]);
    const chatty = written('debug');
    chatty.log.debug({}, 'said');
    expect(chatty.lines).toHaveLength(1);
  });
});
