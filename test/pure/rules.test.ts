/** RULES.md and the tests agree: every rule that is built is quoted by a test, and every quoted rule exists. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const ID = /\b(?:OW|SE|DE|CO|IS)\d+\b/g;

const [built = '', later = ''] = readFileSync(join(ROOT, 'src/RULES.md'), 'utf8').split('## Promised, built later');
const defined = (part: string) =>
  new Set([...part.matchAll(/^- \*\*([A-Z]{2}\d+)\*\*/gm)].map((match) => match[1] as string));

/** Ids in the brackets that test titles begin with (or contain, where one test shows two rules). */
function quoted(): Map<string, string[]> {
  const places = new Map<string, string[]>();
  for (const file of readdirSync(join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.test.ts')) continue;
    const text = readFileSync(join(ROOT, 'test', file), 'utf8');
    for (const [, brackets = ''] of text.matchAll(/\[((?:[A-Z]{2}\d+)(?:[ ,]+[A-Z]{2}\d+)*)\]/g)) {
      for (const [id] of brackets.matchAll(ID)) places.set(id, [...(places.get(id) ?? []), file]);
    }
  }
  return places;
}

it('every rule that is built is quoted by at least one test', () => {
  const places = quoted();
  expect([...defined(built)].filter((id) => !places.has(id))).toEqual([]);
});

it('every rule that a test quotes is in RULES.md', () => {
  const known = new Set([...defined(built), ...defined(later)]);
  expect([...quoted()].filter(([id]) => !known.has(id))).toEqual([]);
});

it('RULES.md defines each rule once and reads as a list of them', () => {
  const all = [...`${built}${later}`.matchAll(/^- \*\*([A-Z]{2}\d+)\*\*/gm)].map((match) => match[1]);
  expect(all.length).toBeGreaterThan(30);
  expect(new Set(all).size).toBe(all.length);
});
