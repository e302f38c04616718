/** The mark by which the end of what came from a terminal is known. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { makeMark, searchMark } from '../../src/worker/end-mark.js';

function pass(mark: Uint8Array, pieces: readonly Uint8Array[]) {
  const out: Uint8Array[] = [];
  const found: number[] = [];
  const search = searchMark(
    mark,
    (bytes) => out.push(Uint8Array.from(bytes)),
    () => found.push(Buffer.concat(out).length),
  );
  for (const piece of pieces) search.push(piece);
  return { out: Buffer.concat(out).toString('latin1'), found };
}

/** In pieces that end at these places. */
function cut(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const at = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
  return [0, ...at].map((from, i) => bytes.subarray(from, at[i] ?? bytes.length));
}

describe('the mark of an end', () => {
  it('is found once, wherever the bytes are cut, and everything else passes in order', () => {
    const mark = makeMark();
    // What comes before it holds beginnings of it.
    const begun = fc.nat(mark.length - 1).map((length) => Buffer.from(mark.subarray(0, length)).toString('latin1'));
    const text = fc
      .array(fc.oneof(begun, fc.constantFrom('a', '\x1f', '\r\n', '0', 'é')))
      .map((parts) => parts.join(''));
    fc.assert(
      fc.property(text, text, fc.array(fc.nat(), { maxLength: 12 }), (before, after, places) => {
        const all = Buffer.concat([Buffer.from(before, 'latin1'), mark, Buffer.from(after, 'latin1')]);
        expect(pass(mark, cut(all, places))).toEqual({ out: before + after, found: [before.length] });
      }),
    );
  });

  it('is another each time', () => {
    expect(makeMark()).toHaveLength(40);
    expect(makeMark()).not.toEqual(makeMark());
  });

  it('that has not come holds nothing back but its own beginning', () => {
    const mark = makeMark();
    expect(pass(mark, [Buffer.from('so far')])).toEqual({ out: 'so far', found: [] });
    expect(pass(mark, [Buffer.from('so far'), mark.subarray(0, 5)])).toEqual({ out: 'so far', found: [] });
    expect(pass(mark, [mark.subarray(0, 5), Buffer.from('x')]).out).toBe(`${Buffer.from(mark.subarray(0, 5))}x`);
  });
});
