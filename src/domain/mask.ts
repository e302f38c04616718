/**
 * Takes secrets out of a stream of bytes, before anything is stored or published (CO10).
 *
 * - Every occurrence of every pattern is replaced, also one that overlaps another or itself, and wherever the stream is
 *   cut into pieces. Occurrences that touch become one mask.
 * - What may be the beginning of a pattern is held back: less than the longest pattern. `idle` lets the first two bytes of
 *   it go, so that a prompt which begins like a secret does not look stuck; the end lets all of it go.
 *
 * The automaton is Aho and Corasick's ("Efficient string matching", 1975): one step for each byte, whatever the number
 * of patterns.
 */

/** Shorter values would mask ordinary output to pieces, and are easily guessed. */
export const MIN_SECRET_BYTES = 6;
/** Of a held-back beginning, this much may be shown while nothing follows. */
const IDLE_SHOWN_BYTES = 2;
const MASK = new TextEncoder().encode('***');

export interface MaskStream {
  /** Takes the next bytes; returns what may be shown. Views of `bytes` or of memory that the next call changes. */
  push(bytes: Uint8Array): Uint8Array[];
  /** Nothing came for a while. */
  idle(): Uint8Array[];
  /** Nothing will come: all that was held back, which is no secret in full. */
  end(): Uint8Array[];
  readonly heldBytes: number;
}

export interface Mask {
  /** Streams are masked each for itself. */
  stream(): MaskStream;
  /** A whole text. */
  text(text: string): string;
}

/** @param values secrets as they are; shorter ones than `MIN_SECRET_BYTES` are left alone */
export function createMask(values: readonly string[]): Mask {
  const patterns = new Map<string, Uint8Array>();
  for (const value of values) {
    if (utf8(value).length < MIN_SECRET_BYTES) continue;
    for (const form of formsOf(value)) patterns.set(form, utf8(form));
  }
  const automaton = patterns.size === 0 ? undefined : buildAutomaton([...patterns.values()]);
  const stream = () => (automaton === undefined ? passThrough : createStream(automaton));
  return {
    stream,
    text(text) {
      const masking = stream();
      const parts = [...masking.push(utf8(text)).map((part) => part.slice()), ...masking.end()];
      return parts.map((part) => new TextDecoder().decode(part)).join('');
    },
  };
}

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

const passThrough: MaskStream = { push: (bytes) => [bytes], idle: () => [], end: () => [], heldBytes: 0 };

// ------------------------------------------------------------------------------------------------------------- forms

/** A value as programs print it: as it is, in JSON, in a URL, in base64, also in the middle of something longer. */
export function formsOf(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1);
  const url = encodeURIComponent(value);
  const forms = [
    value,
    // A terminal puts a carriage return before each line feed.
    value.replaceAll('\n', '\r\n'),
    json,
    json.replaceAll('/', '\\/'),
    json.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
    url,
    url.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()),
    url.replaceAll('%20', '+'),
    url.replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`),
    ...base64Forms(utf8(value)),
  ];
  return [...new Set(forms)];
}

const BASE64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/**
 * What base64 of anything that contains the value must contain: for each of the three places where it may begin in a group
 * of three bytes, the characters that depend on the value alone.
 */
function base64Forms(bytes: Uint8Array): string[] {
  const forms: string[] = [];
  for (let before = 0; before < 3; before++) {
    const bits = (before + bytes.length) * 8;
    let text = '';
    for (let char = Math.ceil((before * 8) / 6); (char + 1) * 6 <= bits; char++) {
      const at = char * 6 - before * 8;
      const pair = ((bytes[at >> 3] ?? 0) << 8) | (bytes[(at >> 3) + 1] ?? 0);
      text += BASE64[(pair >> (10 - (at & 7))) & 63];
    }
    forms.push(text, text.replaceAll('+', '-').replaceAll('/', '_'));
  }
  return forms;
}

// --------------------------------------------------------------------------------------------------------- automaton

/** Nodes by number, 0 the root. Children of a node are a list, since most have one. */
interface Automaton {
  readonly rootNext: Int32Array;
  readonly firstChild: Int32Array;
  readonly sibling: Int32Array;
  readonly byte: Uint8Array;
  /** The node of the longest proper suffix that begins a pattern. */
  readonly fail: Int32Array;
  /** Length of what led here: the longest suffix of the input that begins a pattern. */
  readonly depth: Int32Array;
  /** Length of the longest pattern that ends here; 0 without one. */
  readonly match: Int32Array;
}

function buildAutomaton(patterns: readonly Uint8Array[]): Automaton {
  const size = 1 + patterns.reduce((sum, pattern) => sum + pattern.length, 0);
  const automaton = {
    rootNext: new Int32Array(256),
    firstChild: new Int32Array(size),
    sibling: new Int32Array(size),
    byte: new Uint8Array(size),
    fail: new Int32Array(size),
    depth: new Int32Array(size),
    match: new Int32Array(size),
  };
  const { rootNext, firstChild, sibling, byte, fail, depth, match } = automaton;
  let count = 1;
  for (const pattern of patterns) {
    let node = 0;
    for (const value of pattern) {
      let child = childOf(automaton, node, value);
      if (child === 0) {
        child = count++;
        byte[child] = value;
        depth[child] = depth[node]! + 1;
        sibling[child] = firstChild[node]!;
        firstChild[node] = child;
        if (node === 0) rootNext[value] = child;
      }
      node = child;
    }
    match[node] = pattern.length;
  }
  // Breadth first: what a node falls back to is shorter, so it is known.
  const queue: number[] = [];
  for (let child = firstChild[0]!; child !== 0; child = sibling[child]!) queue.push(child);
  for (let at = 0; at < queue.length; at++) {
    const node = queue[at]!;
    for (let child = firstChild[node]!; child !== 0; child = sibling[child]!) {
      fail[child] = step(automaton, fail[node]!, byte[child]!);
      if (match[child] === 0) match[child] = match[fail[child]!]!;
      queue.push(child);
    }
  }
  return automaton;
}

function childOf({ rootNext, firstChild, sibling, byte }: Automaton, node: number, value: number): number {
  if (node === 0) return rootNext[value]!;
  let child = firstChild[node]!;
  while (child !== 0 && byte[child] !== value) child = sibling[child]!;
  return child;
}

function step(automaton: Automaton, from: number, value: number): number {
  let node = from;
  for (;;) {
    const child = childOf(automaton, node, value);
    if (child !== 0 || node === 0) return child;
    node = automaton.fail[node]!;
  }
}

// ------------------------------------------------------------------------------------------------------------ stream

function createStream(automaton: Automaton): MaskStream {
  const { rootNext, depth, match } = automaton;
  let node = 0;
  /** Bytes from the earliest place where a pattern that is still to come may begin. */
  let held: Uint8Array = new Uint8Array();
  /** Matches that reach into `held`, in order, apart from each other: [begin, end) in `held`. */
  let matches: [number, number][] = [];
  /** Everything before it, in `held`, was shown or masked. */
  let at = 0;
  /** Where the mask that was shown last ends; what touches it needs no mask of its own. */
  let maskedTo = -1;

  /** Shows what of `work` was not shown yet: up to `limit`, and matches that begin before it in whole. */
  function show(work: Uint8Array, limit: number): Uint8Array[] {
    const shown: Uint8Array[] = [];
    for (const [begin, end] of matches) {
      if (begin >= limit || end <= at) continue;
      if (begin > at) shown.push(work.subarray(at, begin));
      if (maskedTo !== at || begin > at) shown.push(MASK);
      at = end;
      maskedTo = end;
    }
    if (limit > at) {
      shown.push(work.subarray(at, limit));
      at = limit;
    }
    return shown;
  }

  function noteMatch(begin: number, end: number): void {
    let from = begin;
    for (let last = matches.at(-1); last !== undefined && last[1] >= from; last = matches.at(-1)) {
      from = Math.min(from, last[0]);
      matches.pop();
    }
    matches.push([from, end]);
  }

  return {
    push(bytes) {
      const work = held.length === 0 ? bytes : concat(held, bytes);
      const size = work.length;
      let state = node;
      for (let i = held.length; i < size; i++) {
        // Nearly all bytes begin nothing; this loop is what a flood goes through.
        if (state === 0) while (i < size && rootNext[work[i] as number] === 0) i++;
        if (i === size) break;
        state = step(automaton, state, work[i] as number);
        const length = match[state] as number;
        if (length > 0) noteMatch(i + 1 - length, i + 1);
      }
      node = state;
      const limit = work.length - (depth[node] as number);
      const shown = show(work, limit);
      // A copy by hand: `slice` of Node's Buffer is a view, and the caller reads into the same memory again.
      held = limit === work.length ? NOTHING : new Uint8Array(work.subarray(limit));
      at -= limit;
      maskedTo -= limit;
      matches = matches.filter(([, end]) => end > limit).map(([begin, end]) => [begin - limit, end - limit]);
      return shown;
    },
    idle: () => show(held, Math.min(IDLE_SHOWN_BYTES, held.length)),
    end() {
      const shown = show(held, held.length);
      held = NOTHING;
      matches = [];
      node = 0;
      at = 0;
      maskedTo = -1;
      return shown;
    },
    get heldBytes() {
      return Math.max(0, held.length - at);
    },
  };
}

const NOTHING = new Uint8Array();

function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  const joined = new Uint8Array(a.length + b.length);
  joined.set(a);
  joined.set(b, a.length);
  return joined;
}
