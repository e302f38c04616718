/** Patterns of users, matched in time linear to the text: RE2's syntax, without look-around and back references. */
import { RE2JS } from 're2js';
import type { Patterns } from '../domain/ports.js';
import { messageOf } from '../errors.js';

export function createPatterns(): Patterns {
  return {
    compile({ pattern, kind }) {
      if (kind === 'literal') return { ok: true, test: (text) => text.includes(pattern) };
      try {
        const compiled = RE2JS.compile(pattern);
        return { ok: true, test: (text) => compiled.matcher(text).find() };
      } catch (error) {
        return { ok: false, error: messageOf(error) };
      }
    },
  };
}
