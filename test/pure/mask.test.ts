/** Secrets never get through, however the stream is cut (CO10). */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMask, formsOf } from '../../src/domain/mask.js';

const bytes = (text: string) => Buffer.from(text, 'utf8');

/** Masks in pieces cut at these places; `idle` after each piece where asked. */
function maskInPieces(secrets: readonly string[], text: string, cuts: readonly number[], idle = false): string {
  const stream = createMask(secrets).stream();
  const all = bytes(text);
  const places = [0, ...[...cuts].map((cut) => Math.min(cut, all.length)).sort((a, b) => a - b), all.length];
  const shown: Buffer[] = [];
  const take = (parts: Uint8Array[]) => shown.push(...parts.map((part) => Buffer.from(part)));
  // As a pipe is read: each piece into the same memory, which the next one overwrites.
  const reading = Buffer.alloc(all.length);
  for (let i = 0; i + 1 < places.length; i += 1) {
    reading.fill(0xe2);
    const count = all.copy(reading, 0, places[i], places[i + 1]);
    take(stream.push(reading.subarray(0, count)));
    if (idle) take(stream.idle());
  }
  take(stream.end());
  return Buffer.concat(shown).toString();
}

/** The rule, written for reading: what any form of any secret covers is masked; what touches becomes one. */
function maskSlowly(secrets: readonly string[], text: string): string {
  const all = bytes(text).toString('latin1');
  const covered = new Uint8Array(all.length);
  for (const secret of secrets.filter((value) => bytes(value).length >= 6)) {
    for (const form of formsOf(secret)) {
      const pattern = bytes(form).toString('latin1');
      for (let at = all.indexOf(pattern); at >= 0; at = all.indexOf(pattern, at + 1)) {
        covered.fill(1, at, at + pattern.length);
      }
    }
  }
  let out = '';
  for (let at = 0; at < all.length; at += 1) {
    if (!covered[at]) out += all[at];
    else if (at === 0 || !covered[at - 1]) out += '***';
  }
  return Buffer.from(out, 'latin1').toString();
}

describe('[CO10] a secret is masked', () => {
  const secret = 'pa:ss"w ö/rd\n9+';

  it.each([
    ['as it is', secret],
    ['in a terminal', secret.replaceAll('\n', '\r\n')],
    ['in JSON', JSON.stringify({ key: secret })],
    ['in JSON of ASCII only', JSON.stringify(secret).replace(/ö/, '\\u00f6')],
    ['in a URL', `https://example.com/?a=${encodeURIComponent(secret)}&b=1`],
    ['in a form', new URLSearchParams({ a: secret }).toString()],
    ['in base64', bytes(secret).toString('base64')],
    ['in base64 for URLs', bytes(secret).toString('base64url')],
    ['in base64 after one byte', bytes(`x${secret}`).toString('base64')],
    ['in base64 of a header', bytes(`user:${secret}`).toString('base64')],
    ['in base64 in the middle', bytes(`ab${secret}cd`).toString('base64')],
  ])('%s, cut at every place', (_, text) => {
    const whole = maskInPieces([secret], text, []);
    expect(whole).toContain('***');
    for (const form of formsOf(secret)) expect(whole).not.toContain(form);
    const length = bytes(text).length;
    for (let cut = 0; cut <= length; cut += 1) expect(maskInPieces([secret], text, [cut])).toBe(whole);
    const each = Array.from({ length }, (_, i) => i);
    expect(maskInPieces([secret], text, each)).toBe(whole);
  });

  it('also where it overlaps itself or another, at every split', () => {
    for (const [secrets, text, masked] of [
      [['abcabc'], 'abcabcabc', '***'],
      [['abcabc'], 'xabcabcabcabx', 'x***abx'],
      [['aaaaaa'], 'aaaaaaaab', '***b'],
      [['secret1', 'et1-next'], 'my secret1-next!', 'my ***!'],
      [['longersecret', 'ersecr'], 'longersecreX ersecr', 'long***eX ***'],
      [['abcdef', 'abcdefghij'], 'abcdefghiX', '***ghiX'],
    ] as const) {
      const length = text.length;
      for (let a = 0; a <= length; a += 1) {
        for (let b = a; b <= length; b += 1) expect(maskInPieces(secrets, text, [a, b])).toBe(masked);
      }
    }
  });

  it('as the rule says, for any secrets, texts and cuts', () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 4, maxLength: 9 });
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c', '\n', 'é'), maxLength: 60 });
    fc.assert(
      fc.property(fc.array(letters, { maxLength: 4 }), text, fc.array(fc.nat({ max: 80 })), (secrets, plain, cuts) => {
        const mixed = secrets.reduce((so, one, i) => `${so.slice(0, i * 7)}${one}${so.slice(i * 7)}`, plain);
        expect(maskInPieces(secrets, mixed, cuts)).toBe(maskSlowly(secrets, mixed));
      }),
      { numRuns: 2_000 },
    );
  });

  it('in a text', () => {
    expect(createMask(['hunter22']).text('no program "hunter22" on PATH')).toBe('no program "***" on PATH');
  });
});

describe('what is no secret', () => {
  it('is shown at once, except for what may be the beginning of one', () => {
    const stream = createMask(['hunter22']).stream();
    expect(Buffer.concat(stream.push(bytes('hello hunt'))).toString()).toBe('hello ');
    expect(stream.heldBytes).toBe(4);
    expect(Buffer.concat(stream.push(bytes('s'))).toString()).toBe('hunts');
    expect(stream.heldBytes).toBe(0);
  });

  it('may show two bytes of a beginning when nothing follows, and still masks the rest', () => {
    const stream = createMask(['hunter22']).stream();
    stream.push(bytes('hunter'));
    expect(Buffer.concat(stream.idle()).toString()).toBe('hu');
    expect(stream.idle()).toEqual([]);
    expect(Buffer.concat(stream.push(bytes('22!'))).toString()).toBe('***!');
  });

  it('never shows more than two bytes of a secret, whatever the pauses', () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 6, maxLength: 8 });
    fc.assert(
      fc.property(letters, fc.array(fc.nat({ max: 10 })), (secret, cuts) => {
        expect(maskInPieces([secret], `.${secret}.`, cuts, true)).toMatch(/^\.[ab]{0,2}\*\*\*\.$/);
      }),
    );
  });

  it('stays as it is: short values, and bytes that are not UTF-8', () => {
    expect(maskInPieces(['short'], 'a short text', [])).toBe('a short text');
    const stream = createMask(['hunter22']).stream();
    const raw = Uint8Array.from({ length: 256 }, (_, i) => i);
    expect(Buffer.concat([...stream.push(raw), ...stream.end()])).toEqual(Buffer.from(raw));
  });
});
