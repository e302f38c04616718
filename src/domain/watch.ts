/**
 * Which lines of a command's output its owner is told about, so that an agent need not read it all.
 *
 * - Patterns see lines of masked text without colour codes: whole ones, also over borders of chunks, and what stands at the end
 *   without a line break when nothing follows (a prompt). Longer lines than `LINE_CHARS` are looked at in overlapping pieces.
 * - After a notice nothing is told for 15 s; matches meanwhile are counted, and the next notice says how many.
 * - After 3 such pauses that swallowed something, or after 8 notices, it says so and is silent: the ending is told anyway.
 */

/** What the owner is told. */
export type WatchNotice =
  | { readonly pattern: string; readonly text: string; readonly suppressed: number }
  | { readonly disabled: true; readonly why: string; readonly suppressed: number };

export interface WatchPattern {
  readonly pattern: string;
  /** In time linear to the text. */
  test(text: string): boolean;
}

export interface Watch {
  /** Output that was stored, of one stream. */
  push(stream: string, bytes: Uint8Array, nowMs: number): WatchNotice[];
  /** Nothing came for a moment: looks at what stands at the end of each stream. */
  idle(nowMs: number): WatchNotice[];
  /** The last look, before the ending: what was swallowed is told. */
  end(nowMs: number): WatchNotice[];
  /** Nothing more will be told. */
  readonly silent: boolean;
}

const COOLDOWN_MS = 15_000;
const MAX_NOTICES = 8;
const MAX_LOSSY_PAUSES = 3;
const LINE_CHARS = 4_096;
/** Of a long line's piece, looked at again with the next one. */
const OVERLAP_CHARS = 1_024;
const TEXT_CHARS = 500;

interface Line {
  readonly decoder: TextDecoder;
  text: string;
  /** Patterns that matched this line while it was unfinished. */
  matched: Set<WatchPattern>;
}

export function createWatch(patterns: readonly WatchPattern[]): Watch {
  const lines = new Map<string, Line>();
  let notices = 0;
  let lossyPauses = 0;
  let suppressed = 0;
  /** Of the pause under way. */
  let suppressedInPause = 0;
  let pausedUntilMs = Number.NEGATIVE_INFINITY;
  let last: { pattern: string; text: string } | undefined;
  let silent = false;

  function lineOf(stream: string): Line {
    const known = lines.get(stream);
    if (known !== undefined) return known;
    const line = { decoder: new TextDecoder(), text: '', matched: new Set<WatchPattern>() };
    lines.set(stream, line);
    return line;
  }

  /** Looks at one line as far as it is there. */
  function look(line: Line, nowMs: number, told: WatchNotice[]): void {
    if (silent || line.text === '') return;
    const text = withoutCodes(line.text);
    for (const pattern of patterns) {
      if (line.matched.has(pattern) || !pattern.test(text)) continue;
      line.matched.add(pattern);
      told.push(...decide({ pattern: pattern.pattern, text: text.trim().slice(0, TEXT_CHARS) }, nowMs));
      if (silent) return;
    }
  }

  function decide(match: { pattern: string; text: string }, nowMs: number): WatchNotice[] {
    last = match;
    if (nowMs < pausedUntilMs) {
      suppressed += 1;
      suppressedInPause += 1;
      return [];
    }
    if (suppressedInPause > 0) lossyPauses += 1;
    suppressedInPause = 0;
    if (lossyPauses >= MAX_LOSSY_PAUSES) {
      suppressed += 1;
      return [silence(`matches came faster than one in ${COOLDOWN_MS / 1_000} s, ${MAX_LOSSY_PAUSES} times`)];
    }
    notices += 1;
    pausedUntilMs = nowMs + COOLDOWN_MS;
    const notice = { ...match, suppressed };
    suppressed = 0;
    return notices < MAX_NOTICES ? [notice] : [notice, silence(`${MAX_NOTICES} notices were sent`)];
  }

  function silence(reason: string): WatchNotice {
    silent = true;
    lines.clear();
    const notice = { disabled: true, why: `${reason}; only the ending will be told`, suppressed } as const;
    suppressed = 0;
    return notice;
  }

  return {
    push(stream, bytes, nowMs) {
      const told: WatchNotice[] = [];
      if (silent) return told;
      const line = lineOf(stream);
      const parts = line.decoder.decode(bytes, { stream: true }).split(/\r\n|\n|\r/);
      for (const [i, part] of parts.entries()) {
        if (i > 0) {
          look(line, nowMs, told);
          line.text = '';
          line.matched.clear();
        }
        for (let at = 0; at < part.length && !silent; ) {
          const room = LINE_CHARS - line.text.length;
          line.text += part.slice(at, at + room);
          at += room;
          if (line.text.length < LINE_CHARS) continue;
          look(line, nowMs, told);
          line.text = line.text.slice(-OVERLAP_CHARS);
        }
      }
      return told;
    },
    idle(nowMs) {
      const told: WatchNotice[] = [];
      for (const line of lines.values()) look(line, nowMs, told);
      return told;
    },
    end(nowMs) {
      const told = this.idle(nowMs);
      if (!silent && suppressed > 0 && last !== undefined) told.push({ ...last, suppressed });
      silent = true;
      return told;
    },
    get silent() {
      return silent;
    },
  };
}

/** CSI and OSC sequences, two-character escapes, and other control characters but the tab. */
const CODES =
  /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[@-Z\\-_]|[\u0000-\u0008\u000b-\u001f\u007f]/g;

export const withoutCodes = (text: string): string => text.replace(CODES, '');

// ----------------------------------------------------------------------------------------------------------- breaker

/** Keeps many commands of one origin from telling too much at once: 15 in 10 s, then nothing for 30 s. */
export interface Breaker {
  /** `trip`: this one is too many, and is told as such; `open`: not told. */
  ask(nowMs: number): BreakerAnswer;
  /** It was decided elsewhere, for more than this one can see. @param openForMs nothing passes for so long */
  heard(answer: BreakerAnswer, openForMs: number, nowMs: number): void;
  isOpen(nowMs: number): boolean;
  /** Nothing of it needs to be remembered. */
  isIdle(nowMs: number): boolean;
}

export type BreakerAnswer = 'pass' | 'trip' | 'open';

export const BREAKER = { notices: 15, windowMs: 10_000, openMs: 30_000 } as const;

export function createBreaker(): Breaker {
  const passed: number[] = [];
  let openUntilMs = Number.NEGATIVE_INFINITY;
  const forget = (nowMs: number) => {
    while (passed.length > 0 && (passed[0] as number) <= nowMs - BREAKER.windowMs) passed.shift();
  };
  const open = (untilMs: number) => {
    openUntilMs = untilMs;
    passed.length = 0;
  };
  return {
    ask(nowMs) {
      if (nowMs < openUntilMs) return 'open';
      forget(nowMs);
      if (passed.length >= BREAKER.notices) {
        open(nowMs + BREAKER.openMs);
        return 'trip';
      }
      passed.push(nowMs);
      return 'pass';
    },
    heard(answer, openForMs, nowMs) {
      if (answer !== 'pass') return open(nowMs + Math.min(openForMs, BREAKER.openMs));
      forget(nowMs);
      passed.push(nowMs);
    },
    isOpen: (nowMs) => nowMs < openUntilMs,
    isIdle(nowMs) {
      forget(nowMs);
      return nowMs >= openUntilMs && passed.length === 0;
    },
  };
}
