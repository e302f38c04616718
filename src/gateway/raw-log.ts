/**
 * A log as raw output: the bytes that the command wrote. Where some were not kept, a line of its own says so:
 *
 *   [homing: 1234 bytes of output are missing here (flood)]
 */
import { type GapReason, parseEntryText } from '../protocol/entries.js';

export interface RawLog {
  /** The bytes of these entries. */
  add(texts: readonly string[]): Uint8Array;
}

const LINE_BREAK = 10;

export const gapLine = (bytes: number | undefined, reason: GapReason): string =>
  `[homing: ${bytes ?? 'an unknown number of'} bytes of output are missing here (${reason})]\n`;

/** The first byte of a character at or after `from`. */
function characterStart(bytes: Uint8Array, from: number): number {
  let at = from;
  while (at < bytes.length && at < from + 3 && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return at;
}

/** @param options.fromByte offset in the whole output before which nothing is given; moved on to the start of a character */
export function createRawLog(options: { readonly fromByte: number; readonly stateGaps: boolean }): RawLog {
  const { fromByte, stateGaps } = options;
  let atLineStart = true;

  function partOf(text: string): Uint8Array | undefined {
    const { method, params } = parseEntryText(text);
    if (method === 'command.gap' && stateGaps) {
      const line = gapLine(params.bytes as number | undefined, params.reason as GapReason);
      return Buffer.from(atLineStart ? line : `\n${line}`);
    }
    if (method !== 'command.output') return undefined;
    const bytes = Buffer.from(
      String(params.base64 ?? params.data ?? ''),
      params.base64 === undefined ? 'utf8' : 'base64',
    );
    const at = Number(params.at);
    if (at >= fromByte) return bytes;
    return fromByte - at >= bytes.length ? undefined : bytes.subarray(characterStart(bytes, fromByte - at));
  }

  return {
    add(texts) {
      const parts: Uint8Array[] = [];
      for (const text of texts) {
        const part = partOf(text);
        if (part === undefined || part.length === 0) continue;
        atLineStart = part.at(-1) === LINE_BREAK;
        parts.push(part);
      }
      return Buffer.concat(parts);
    },
  };
}
