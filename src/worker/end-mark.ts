/**
 * A mark in a stream of bytes, to know that everything before it has come: for a terminal, which has no end while somebody
 * holds it open, and whose kernel hands on what was written when it finds the time.
 */
import { randomBytes } from 'node:crypto';

/** Occurs once in a mark, as its first byte, so that a search never has to go back. */
const FIRST = 0x1f;

/** Nobody can have written it before. Of figures alone: whatever a terminal changes on the way, it leaves these. */
export function makeMark(): Uint8Array {
  const figures = BigInt(`0x${randomBytes(16).toString('hex')}`)
    .toString()
    .padStart(39, '0');
  return Buffer.concat([Uint8Array.of(FIRST), Buffer.from(figures, 'latin1')]);
}

export interface MarkSearch {
  /** Passes on what is not the mark, as views into `bytes` where it can. */
  push(bytes: Uint8Array): void;
}

/**
 * @param mark made by `makeMark`
 * @param pass gets everything before and after it, in order
 * @param found is called once, after everything before it was passed on
 */
export function searchMark(mark: Uint8Array, pass: (bytes: Uint8Array) => void, found: () => void): MarkSearch {
  /** How much of the mark the last bytes were; all of it when it was found. */
  let matched = 0;

  function passOn(bytes: Uint8Array): void {
    if (bytes.length > 0) pass(bytes);
  }

  return {
    push(bytes) {
      let at = 0;
      while (matched < mark.length && at < bytes.length) {
        if (matched === 0) {
          const next = bytes.indexOf(FIRST, at);
          if (next < 0) break;
          passOn(bytes.subarray(at, next));
          at = next + 1;
          matched = 1;
        } else if (bytes[at] === mark[matched]) {
          at += 1;
          matched += 1;
          if (matched === mark.length) found();
        } else {
          passOn(mark.subarray(0, matched));
          matched = 0;
        }
      }
      passOn(bytes.subarray(at));
    },
  };
}
