/** Output of every shape, to the byte: real programs, real Redis. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startRedis, type TestRedis } from '../support/redis.js';
import { createStores, type Stores } from '../support/stores.js';
import { nodeProgram, runOnce, type Spec, script } from '../support/test-worker.js';

const MIB = 1024 * 1024;

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

const run = (spec: Spec) => runOnce(stores, redis.url, spec);
const PTY = { cols: 80, rows: 24 };

describe('output', () => {
  it('[CO7] in one line of 64 MB keeps its first and last bytes, and says to the byte what is missing', async () => {
    const { said, output, outcome } = await run({
      argv: ['head', '-c', String(64 * MIB), '/dev/zero'],
    });
    expect(outcome).toMatchObject({ reason: 'exited', outputBytes: 64 * MIB });
    // A hole is a gap entry that has its size, or, where the log was trimmed, a jump of the seqs.
    let [end, seq, missing] = [0, 0, 0];
    let told = false;
    for (const { method, params } of said) {
      const jumped = params.seq !== seq + 1 && params.fromSeq !== seq + 1;
      if (method === 'command.output') {
        if (params.at !== end) expect(told || jumped).toBe(true);
        missing += params.at - end;
        end =
          params.at + Buffer.from(params.data ?? params.base64, params.data === undefined ? 'base64' : 'utf8').length;
      }
      told = method === 'command.gap' && params.bytes !== undefined;
      seq = params.seq;
    }
    expect(end).toBe(64 * MIB);
    expect(output.length + missing).toBe(64 * MIB);
    expect(output.length).toBeGreaterThan(7 * MIB);
    expect(output.length).toBeLessThan(9 * MIB);
    expect(output.every((byte) => byte === 0)).toBe(true);
  }, 60_000);

  it.each([
    ['a pipe', {}],
    ['a terminal', { pty: PTY }],
  ])(
    'never cuts a character of three bytes, written in pieces: %s',
    async (_, more) => {
      const { said, output } = await run({ ...nodeProgram('print-split.mjs', '60'), env: { SECRET: 'a€b€' }, ...more });
      expect(output.toString().replaceAll('\r', '')).toBe('[a€b€]\n'.repeat(9));
      for (const { method, params } of said) {
        if (method === 'command.output') expect(params.data).not.toContain('\ufffd');
      }
      expect(said.some(({ params }) => params.base64 !== undefined)).toBe(false);
    },
    20_000,
  );

  it('passes every byte there is', async () => {
    const { output } = await run({
      argv: [
        process.execPath,
        '-e',
        'process.stdout.write(Buffer.from(Array.from({ length: 4096 }, (_, i) => i * 7 % 256)))',
      ],
    });
    expect(output).toEqual(Buffer.from(Array.from({ length: 4_096 }, (_, i) => (i * 7) % 256)));
  });

  it('keeps the carriage returns of a progress bar', async () => {
    const bar = Array.from({ length: 20 }, (_, i) => `\r${i + 1}/20`).join('');
    expect(
      (await run(script('i=1; while [ $i -le 20 ]; do printf "\\r$i/20"; i=$((i+1)); done'))).output.toString(),
    ).toBe(bar);
  });

  it('[CO8] of 5,000 characters: the ending has the last 2,000', async () => {
    const { outcome } = await run(script('i=0; while [ $i -lt 1000 ]; do printf "%05d" $i; i=$((i+1)); done'));
    const all = Array.from({ length: 1_000 }, (_, i) => String(i).padStart(5, '0')).join('');
    expect(outcome.tail).toBe(all.slice(-2_000));
  });
});
