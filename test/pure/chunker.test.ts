import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createChunker, decodeText, unfinishedBytes } from '../../src/domain/chunker.js';
import { createTail } from '../../src/domain/tail.js';

const utf8 = (text: string) => new TextEncoder().encode(text);
const joined = (parts: readonly Uint8Array[]) => Buffer.concat(parts);

describe('the chunker', () => {
  it('gives every byte once and in order, wherever the input is split', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 30 }),
        fc.array(fc.boolean(), { minLength: 30, maxLength: 30 }),
        fc.integer({ min: 4, max: 20 }),
        (parts, flushes, chunkBytes) => {
          const chunker = createChunker(chunkBytes);
          const out: Uint8Array[] = [];
          parts.forEach((part, i) => {
            out.push(...chunker.push(part));
            const flushed = flushes[i] ? chunker.flush() : undefined;
            if (flushed) out.push(flushed);
          });
          const rest = chunker.end();
          if (rest) out.push(rest);
          expect(joined(out)).toEqual(joined(parts));
          for (const chunk of out) {
            expect(chunk.length).toBeGreaterThan(0);
            expect(chunk.length).toBeLessThanOrEqual(chunkBytes);
          }
        },
      ),
    );
  });

  it('never cuts a character: every chunk of valid UTF-8 is valid UTF-8', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 60 }), fc.integer({ min: 1, max: 9 }), (text, step) => {
        const bytes = utf8(text);
        const chunker = createChunker(8);
        const out: Uint8Array[] = [];
        for (let at = 0; at < bytes.length; at += step) {
          out.push(...chunker.push(bytes.subarray(at, at + step)));
          const flushed = chunker.flush();
          if (flushed) out.push(flushed);
        }
        expect(chunker.end()).toBeUndefined();
        expect(
          out.map((chunk) => new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(chunk)).join(''),
        ).toBe(text);
      }),
    );
  });

  it('lets the caller use its buffer again at once', () => {
    const chunker = createChunker(8);
    const buffer = utf8('abcd');
    chunker.push(buffer);
    buffer.fill(0);
    expect(Buffer.from(chunker.flush()!).toString()).toBe('abcd');
  });

  it('hands out full blocks that a caller may recycle', () => {
    const blocks: Uint8Array[] = [];
    const chunker = createChunker(8, (bytes) => {
      const block = new Uint8Array(bytes);
      blocks.push(block);
      return block;
    });
    const [first] = chunker.push(utf8('0123456789'));
    expect(first!.buffer).toBe(blocks[0]!.buffer);
  });

  it('waits only for bytes that can still become a character', () => {
    expect(unfinishedBytes(utf8('€').subarray(0, 2))).toBe(2);
    expect(unfinishedBytes(utf8('😀').subarray(0, 3))).toBe(3);
    expect(unfinishedBytes(utf8('€'))).toBe(0);
    expect(unfinishedBytes(new Uint8Array([0xff]))).toBe(0);
    expect(unfinishedBytes(new Uint8Array([0xc0]))).toBe(0);
    expect(unfinishedBytes(new Uint8Array([0x80, 0x80, 0x80]))).toBe(0);
    expect(unfinishedBytes(new Uint8Array())).toBe(0);
  });
});

describe('the form of a chunk', () => {
  it('is text for UTF-8, with a byte order mark kept', () => {
    expect(decodeText(utf8('\uFEFFgrüße 😀\u001b[31m'))).toBe('\uFEFFgrüße 😀\u001b[31m');
  });

  it('is base64 for bytes that are not UTF-8', () => {
    expect(decodeText(new Uint8Array([0x61, 0xff]))).toBeUndefined();
    expect(decodeText(new Uint8Array([0xed, 0xa0, 0x80]))).toBeUndefined();
  });

  it('is base64 where escapes would more than double it', () => {
    expect(decodeText(new Uint8Array(100))).toBeUndefined();
    expect(decodeText(utf8('\n"\\\t'.repeat(100)))).toBe('\n"\\\t'.repeat(100));
  });

  it('counts escapes as JSON makes them', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('\0', '\x1f', '"', '\\', '\n', 'a', '\x7f', 'é'), maxLength: 50 }),
        (text) => {
          const bytes = utf8(text);
          const escaped = Buffer.byteLength(JSON.stringify(text)) - 2;
          expect(decodeText(bytes) !== undefined).toBe(escaped <= 2 * bytes.length);
        },
      ),
    );
  });
});

describe('the tail', () => {
  it('is the last characters, whatever the pieces', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'grapheme', maxLength: 30 }), { maxLength: 20 }), (parts) => {
        const tail = createTail(10);
        for (const part of parts) tail.push(utf8(part));
        const all = parts.join('');
        const got = tail.text();
        expect(all.endsWith(got)).toBe(true);
        expect(got.length).toBeGreaterThanOrEqual(Math.min(9, all.length));
        expect(got.length).toBeLessThanOrEqual(10);
      }),
    );
  });
});
