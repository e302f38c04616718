/** The cursor by which an application reads a command: every entry once, in order, in bounded memory. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createLogReader, type LogPage } from '../../src/client/log-reader.js';
import type { Entry } from '../../src/protocol/entries.js';
import type { CommandId } from '../../src/protocol/ids.js';

const commandId = 'cmd_x' as CommandId;
const output = (seq: number, data = `${seq}`): Entry => ({
  type: 'output',
  commandId,
  seq,
  ts: 0,
  at: 0,
  stream: 'out',
  data,
});
const ended = (seq: number): Entry => ({
  type: 'ended',
  commandId,
  seq,
  ts: 0,
  outcome: { reason: 'exited', code: 0, signal: null, durationMs: 0, outputBytes: 0, tail: '', leftovers: 0 },
});

function logOf(entries: Entry[], pageSize = 3) {
  const consumed: number[] = [];
  let pages = 0;
  const ports = {
    async fetchPage(afterSeq: number): Promise<LogPage> {
      pages += 1;
      const rest = entries.filter((entry) => entry.seq > afterSeq);
      return { entries: rest.slice(0, pageSize), headSeq: entries.at(-1)?.seq ?? 0 };
    },
    onConsumed: (seq: number) => void consumed.push(seq),
    onActive() {},
  };
  return { ports, consumed, pages: () => pages };
}

async function readAll(reader: AsyncIterable<Entry>): Promise<number[]> {
  const seqs: number[] = [];
  for await (const entry of reader) seqs.push(entry.seq);
  return seqs;
}

describe('a log reader', () => {
  it('[DE1] gives live entries in order, drops duplicates and ends with `ended`', async () => {
    const { ports, pages } = logOf([]);
    const reader = createLogReader(0, 1_000_000, ports);
    for (const seq of [1, 2, 2, 1, 3]) reader.offer(output(seq));
    reader.offer(ended(4));
    expect(await readAll(reader)).toEqual([1, 2, 3, 4]);
    expect(pages()).toBe(0);
  });

  it('[DE4] pages the log where a live entry is missing, and goes live again at the head', async () => {
    const log = [output(1), output(2), output(3), output(4), output(5)];
    const { ports } = logOf(log);
    const reader = createLogReader(0, 1_000_000, ports);
    reader.offer(output(1));
    reader.offer(output(5));
    const seqs: number[] = [];
    for (let n = 0; n < 5; n += 1) seqs.push((await reader.next()).value.seq);
    reader.offer(ended(6));
    seqs.push(...(await readAll(reader)));
    expect(seqs).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it('[DE5] holds a bounded amount for a consumer that does not read, who still gets everything', async () => {
    const log = [...Array.from({ length: 100 }, (_, n) => output(n + 1, 'x'.repeat(1_000))), ended(101)];
    const { ports, pages } = logOf(log, 10);
    const reader = createLogReader(0, 20_000, ports);
    for (const entry of log) reader.offer(entry);
    expect(await readAll(reader)).toEqual(log.map(({ seq }) => seq));
    expect(pages()).toBeGreaterThan(8);
  });

  it('[DE6] counts an entry as consumed when the next one is asked for, or the loop is left', async () => {
    const { ports, consumed } = logOf([]);
    const reader = createLogReader(4, 1_000, ports);
    for (const seq of [5, 6, 7]) reader.offer(output(seq));
    await reader.next();
    expect(consumed).toEqual([]);
    await reader.next();
    expect(consumed).toEqual([5]);
    for await (const entry of reader) {
      expect(entry.seq).toBe(7);
      break;
    }
    expect(consumed).toEqual([5, 6, 7]);
  });

  it('[DE3] takes a gap that begins at the next entry as that entry', async () => {
    const { ports } = logOf([]);
    const reader = createLogReader(0, 1_000, ports);
    reader.offer(output(1));
    reader.offer({ type: 'gap', commandId, seq: 9, ts: 0, fromSeq: 2, toSeq: 9, reason: 'flood' });
    reader.offer(ended(10));
    expect(await readAll(reader)).toEqual([1, 9, 10]);
  });

  it('ends with the error of a session that closed, after what was buffered', async () => {
    const { ports } = logOf([]);
    const reader = createLogReader(0, 1_000, ports);
    reader.offer(output(1));
    const waiting = readAll(reader);
    reader.fail(new Error('closed'));
    await expect(waiting).rejects.toThrow('closed');
  });

  it('[DE1] gives every entry once, whatever is lost, repeated, or arrives while it pages', async () => {
    const steps = fc.array(fc.constantFrom('live', 'lost', 'repeat', 'read'), { minLength: 1, maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(steps, fc.integer({ min: 1, max: 900 }), async (plan, limitBytes) => {
        const log: Entry[] = [];
        const { ports } = logOf(log);
        const reader = createLogReader(0, limitBytes, ports);
        const reads: Promise<IteratorResult<Entry>>[] = [];
        for (const step of plan) {
          if (step === 'read') reads.push(reader.next());
          else if (step === 'repeat') log.slice(-2).forEach(reader.offer);
          else {
            const entry = output(log.length + 1);
            log.push(entry);
            if (step === 'live') reader.offer(entry);
          }
          await Promise.resolve();
        }
        const last = ended(log.length + 1);
        log.push(last);
        reader.offer(last);
        const first = (await Promise.all(reads)).filter(({ done }) => !done).map(({ value }) => value.seq);
        expect([...first, ...(await readAll(reader))]).toEqual(log.map(({ seq }) => seq));
      }),
      { numRuns: 60 },
    );
  });
});
