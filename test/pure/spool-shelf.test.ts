/** A spool that puts on a shelf what is too much for the memory is the same spool; the shelf of a worker is a file. */
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { createExtents } from '../../src/domain/extents.js';
import { createSpool, type Shelf, type SpoolEntry } from '../../src/domain/spool.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { createSpoolFiles } from '../../src/worker/spool-files.js';
import { mountSmallDisk } from '../support/small-disk.js';
import { silentLog } from '../support/stores.js';

const KIB = 1024;
const MEMORY = 8 * KIB;
const LIMITS = { spoolBytes: 64 * KIB, firstBytes: 4 * KIB, lastBytes: 16 * KIB, rewindBytes: 32 * KIB };
const folder = mkdtempSync(join(tmpdir(), 'homing-spool-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const output = (bytes: number, fill: number) =>
  ({ type: 'output', stream: 'out', bytes: new Uint8Array(bytes).fill(fill) }) as const;
const watch = { type: 'watch', pattern: 'p', text: 't', suppressed: 0 } as const;

function fileIn(path: string, id = 'cmd', maxBytes = LIMITS.spoolBytes) {
  let failures = 0;
  const files = createSpoolFiles(path, () => 0);
  const file = files.of(id as CommandId, {
    maxBytes,
    allocate: (bytes) => new Uint8Array(bytes),
    log: silentLog,
    meter: {
      count() {
        failures += 1;
      },
    },
  });
  return { file, failures: () => failures };
}

function drain(spool: ReturnType<typeof createSpool>): SpoolEntry[] {
  const all: SpoolEntry[] = [];
  while (!spool.drained) {
    const batch = spool.take(8 * KIB, 4);
    all.push(...batch);
    spool.confirm(batch.at(-1)!.seq, 0);
  }
  return all;
}

/** An entry in a line: comparing bytes one by one takes seconds. */
function tell({ fromSeq, seq, startOffset, endOffset, body }: SpoolEntry): string {
  const bytes = body.type === 'output' ? createHash('sha1').update(body.bytes).digest('hex') : '';
  return `${fromSeq}-${seq} ${startOffset}-${endOffset} ${body.type} ${bytes}`;
}

const step = fc.oneof(
  fc.record({ do: fc.constant('add' as const), n: fc.nat(30), size: fc.nat(3 * KIB) }),
  fc.record({ do: fc.constant('watch' as const) }),
  fc.record({ do: fc.constant('send' as const), n: fc.integer({ min: 1, max: 8 }) }),
  fc.record({ do: fc.constant('back' as const), n: fc.nat(20) }),
);

describe('a spool with a shelf', () => {
  it('[CO7][CO9] tells the same, entry for entry and byte for byte, as one that has all in memory', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const { file } = fileIn(folder);
        const plain = createSpool(LIMITS);
        const shelved = createSpool({ ...LIMITS, memoryBytes: MEMORY, shelf: file });
        const both = [plain, shelved];
        let fill = 0;
        let sent = 0;
        for (const it of steps) {
          if (it.do === 'add') {
            for (let i = 0; i < it.n; i += 1) {
              fill = (fill + 1) % 251;
              for (const spool of both) spool.add(output(it.size, fill), 0, 'flood');
            }
          } else if (it.do === 'watch') for (const spool of both) spool.add(watch, 0, 'flood');
          else if (it.do === 'send') {
            const [a, b] = both.map((spool) => spool.take(16 * KIB, it.n));
            expect(b?.map(tell)).toEqual(a?.map(tell));
            sent = Math.max(sent, a?.at(-1)?.seq ?? 0);
            for (const spool of both) spool.confirm(sent, 0);
          } else {
            for (const spool of both) spool.rewind(Math.max(0, sent - it.n), 0);
          }
          // Gaps and notices stay in memory whatever they weigh; there are two at most for each notice.
          expect(shelved.hereBytes).toBeLessThanOrEqual(MEMORY + 60 * 2 * 256);
          expect(shelved.waitingBytes).toBe(plain.waitingBytes);
        }
        expect(drain(shelved).map(tell)).toEqual(drain(plain).map(tell));
        file.close();
      }),
      { numRuns: 150 },
    );
  });

  it('[CO7] holds no more output in memory than it may, however much waits', () => {
    const { file } = fileIn(folder);
    const given: number[] = [];
    const spool = createSpool({
      ...LIMITS,
      memoryBytes: MEMORY,
      shelf: file,
      recycle: (bytes) => given.push(bytes.length),
    });
    for (let i = 0; i < 40; i += 1) spool.add(output(KIB, i), 0, 'flood');
    expect(spool.waitingBytes).toBe(40 * (KIB + 256));
    expect(spool.hereBytes).toBeLessThanOrEqual(MEMORY);
    // What lies on the disk has given its memory back.
    expect(given).toHaveLength(40 - 6);
    file.close();
  });

  it('[CO9] keeps in memory what the shelf does not take', () => {
    const shelf: Shelf = { put: () => undefined, take: () => undefined, drop() {} };
    const spool = createSpool({ ...LIMITS, memoryBytes: MEMORY, shelf });
    for (let i = 0; i < 30; i += 1) spool.add(output(KIB, i), 0, 'flood');
    expect(spool.hereBytes).toBe(spool.waitingBytes);
    expect(drain(spool).map(({ body }) => body.type)).toEqual(Array(30).fill('output'));
  });

  it('[DE3] states as a gap what the shelf can not give back, to the byte', () => {
    const { file } = fileIn(folder);
    const broken: Shelf = { ...file, take: () => undefined };
    const spool = createSpool({ ...LIMITS, memoryBytes: MEMORY, shelf: broken });
    for (let i = 0; i < 20; i += 1) spool.add(output(KIB, i), 0, 'flood');
    const all = drain(spool);
    expect(all.slice(0, 6).map(({ body }) => body.type)).toEqual(Array(6).fill('output'));
    for (const [index, entry] of all.slice(6).entries()) {
      const at = (index + 6) * KIB;
      expect(entry).toMatchObject({ startOffset: at, endOffset: at + KIB, body: { type: 'gap', reason: 'spool' } });
    }
    file.close();
  });
});

describe('the file of a spool', () => {
  it('has no name once it is open, so that nothing stays when the worker dies', () => {
    const { file } = fileIn(folder);
    expect(file.put(new Uint8Array(10).fill(7))).toBe(0);
    expect(readdirSync(folder)).toEqual([]);
    expect(file.take(0, 10)).toEqual(new Uint8Array(10).fill(7));
    file.close();
    expect(file.put(new Uint8Array(1))).toBeUndefined();
  });

  it('is opened by no other name: leftovers go when a worker starts', () => {
    writeFileSync(join(folder, 'leftover'), 'x');
    fileIn(folder);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('takes no more than its limit, and what was taken back makes room', () => {
    const { file } = fileIn(folder, 'small', 100);
    expect([file.put(new Uint8Array(60)), file.put(new Uint8Array(60))]).toEqual([0, undefined]);
    file.drop(0, 60);
    expect(file.put(new Uint8Array(100))).toBe(0);
    file.close();
  });

  it('that can not be opened refuses, is counted, and harms nobody', () => {
    writeFileSync(join(folder, 'no-folder'), '');
    const { file, failures } = fileIn(join(folder, 'no-folder'));
    expect([file.put(new Uint8Array(1)), file.put(new Uint8Array(1))]).toEqual([undefined, undefined]);
    file.close();
    // The second call did not go to the disk: it is left alone for a while.
    expect(failures()).toBe(1);
    rmSync(join(folder, 'no-folder'));
  });

  it('[CO9] on a full disk takes what there is room for, and what it took comes back whole', async (test) => {
    await using disk = await mountSmallDisk(join(folder, 'small-disk'), 64 * KIB);
    if (disk === undefined) return test.skip('mounting is not allowed here');
    const { file, failures } = fileIn(disk.folder, 'big', 1024 * KIB);
    const spool = createSpool({ ...LIMITS, spoolBytes: 1024 * KIB, memoryBytes: MEMORY, shelf: file });
    for (let i = 0; i < 200; i += 1) spool.add(output(KIB, i % 251), 0, 'spool');
    expect(failures()).toBe(1);
    expect(spool.hereBytes).toBeGreaterThan(100 * KIB);
    expect(spool.hereBytes).toBeLessThan(spool.waitingBytes);
    const all = drain(spool);
    expect(all.every(({ body }, i) => body.type === 'output' && body.bytes.every((byte) => byte === i % 251))).toBe(
      true,
    );
    expect(all).toHaveLength(200);
    file.close();
  });

  it('gives out places that never overlap, and all of them again', () => {
    const asks = fc.array(fc.record({ take: fc.boolean(), bytes: fc.integer({ min: 1, max: 40 }), which: fc.nat(99) }));
    fc.assert(
      fc.property(asks, (steps) => {
        const extents = createExtents(200);
        const taken: { offset: number; bytes: number }[] = [];
        for (const { take, bytes, which } of steps) {
          if (take) {
            const offset = extents.take(bytes);
            if (offset === undefined) continue;
            expect(offset + bytes).toBeLessThanOrEqual(200);
            for (const other of taken) {
              expect(offset >= other.offset + other.bytes || other.offset >= offset + bytes).toBe(true);
            }
            taken.push({ offset, bytes });
          } else {
            const [one] = taken.splice(which % Math.max(1, taken.length), 1);
            if (one !== undefined) extents.giveBack(one.offset, one.bytes);
          }
          expect(extents.usedBytes).toBe(taken.reduce((sum, one) => sum + one.bytes, 0));
        }
        for (const { offset, bytes } of taken) extents.giveBack(offset, bytes);
        expect(extents.take(200)).toBe(0);
      }),
    );
  });
});
