import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  beginPull,
  compareHead,
  decideEntries,
  holdStream,
  interruptStream,
  listedStream,
  planPage,
  releaseStream,
  type StreamState,
  tellExpired,
  tellLost,
} from '../../src/domain/stream.js';
import {
  ENTRY_LETTER,
  type Entry,
  parseEntryText,
  type StoredEntry,
  serializeEntry,
} from '../../src/protocol/entries.js';
import type { CommandId } from '../../src/protocol/ids.js';

const id = 'cmd_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaa' as CommandId;
const outcome = {
  reason: 'exited',
  code: 0,
  signal: null,
  durationMs: 1,
  outputBytes: 0,
  tail: '',
  leftovers: 0,
} as const;

const stored = (entry: Entry, endOffset: number): StoredEntry => ({
  letter: ENTRY_LETTER[entry.type],
  fromSeq: entry.type === 'gap' ? entry.fromSeq : entry.seq,
  seq: entry.seq,
  endOffset,
  text: serializeEntry(entry),
});
/** Output of ten bytes: the entry `seq` begins at byte (seq - 1) * 10. */
const output = (seq: number): StoredEntry =>
  stored(
    { type: 'output', commandId: id, seq, ts: 0, at: (seq - 1) * 10, stream: 'out', data: '0123456789' },
    seq * 10,
  );
const ended = (seq: number): StoredEntry =>
  stored({ type: 'ended', commandId: id, seq, ts: 0, outcome }, (seq - 1) * 10);
const live = (sentSeq: number): StreamState => ({
  mode: 'live',
  sentSeq,
  sentOffset: sentSeq * 10,
  knownHead: sentSeq,
});
const message = (fromSeq: number, toSeq = fromSeq, ends = false) => ({ fromSeq, toSeq, endOffset: toSeq * 10, ends });

describe('live messages', () => {
  test('[DE1] the message that follows on is forwarded', () => {
    const step = decideEntries(live(4), message(5, 7), true);
    expect(step).toMatchObject({ type: 'forward', state: { mode: 'live', sentSeq: 7, sentOffset: 70 } });
  });

  test('[DE1] a repeated message is dropped', () => {
    expect(decideEntries(live(7), message(5, 7), true).type).toBe('drop');
  });

  test('[DE4] a hole, an overlap and a slow socket all lead to the log', () => {
    expect(decideEntries(live(4), message(6), true)).toMatchObject({ type: 'pull', state: { mode: 'pulling' } });
    expect(decideEntries(live(4), message(4, 5), true).type).toBe('pull');
    expect(decideEntries(live(4), message(5), false).type).toBe('pull');
  });

  test('[DE4] while pages are read, messages only tell how far the log goes', () => {
    const step = decideEntries({ ...live(4), mode: 'pulling' }, message(5, 9), true);
    expect(step).toMatchObject({ type: 'note', state: { mode: 'pulling', sentSeq: 4, knownHead: 9 } });
  });

  test('a message that beats the answer of its own submit is only noted, then pulled', () => {
    const step = decideEntries(holdStream(0, 0), message(1, 2), true);
    expect(step).toMatchObject({ type: 'note', state: { mode: 'held', sentSeq: 0 } });
    expect(releaseStream(step.state)).toMatchObject({ mode: 'pulling', sentSeq: 0, knownHead: 2 });
    expect(releaseStream(holdStream(0, 0)).mode).toBe('live');
  });

  test('[DE2] after ended nothing is expected', () => {
    expect(decideEntries(live(4), message(5, 5, true), true).state.mode).toBe('done');
    expect(decideEntries(listedStream(5), message(5, 5, true), true).type).toBe('drop');
  });
});

describe('interruptions', () => {
  test('[DE7] a lost last message shows as a higher head', () => {
    expect(compareHead(live(4), 6, true)).toMatchObject({ mode: 'pulling', knownHead: 6 });
    expect(compareHead(live(4), 4, false)).toEqual(live(4));
    expect(compareHead(live(4), 4, true).mode).toBe('done');
  });

  test('after a loss a live stream reads the log, and a held one does when it is released', () => {
    expect(interruptStream(live(4)).mode).toBe('pulling');
    expect(releaseStream(interruptStream(holdStream(4, 4))).mode).toBe('pulling');
    expect(interruptStream(listedStream(4)).mode).toBe('done');
  });
});

describe('pages', () => {
  const pulling = (sentSeq: number): StreamState => ({ ...live(sentSeq), mode: 'pulling' });

  test('[DE4] a page up to the head goes live, a page short of it asks for more', () => {
    const whole = planPage(id, pulling(2), { entries: [output(3), output(4)], headSeq: 4, ended: false }, 0);
    expect(whole).toMatchObject({ type: 'send', state: { mode: 'live', sentSeq: 4 } });
    const part = planPage(id, pulling(2), { entries: [output(3)], headSeq: 4, ended: false }, 0);
    expect(part).toMatchObject({ type: 'send', state: { mode: 'pulling', sentSeq: 3 } });
  });

  test('[DE4] a message noted while the page was read asks for one more page', () => {
    const state = decideEntries(beginPull(pulling(2)), message(4), true).state;
    const plan = planPage(id, state, { entries: [output(3)], headSeq: 3, ended: false }, 0);
    expect(plan).toMatchObject({ state: { mode: 'pulling', sentSeq: 3 } });
  });

  test('[DE3] entries that were trimmed become a gap with its bytes', () => {
    const plan = planPage(id, pulling(2), { entries: [output(6), ended(7)], headSeq: 7, ended: true }, 5);
    if (plan.type !== 'send') throw new Error('expected texts');
    expect(parseEntryText(plan.texts[0] ?? '')).toEqual({
      jsonrpc: '2.0',
      method: 'command.gap',
      params: { commandId: id, seq: 5, ts: 5, fromSeq: 3, toSeq: 5, bytes: 30, reason: 'trimmed' },
    });
    expect(plan.texts).toHaveLength(3);
    expect(plan.state.mode).toBe('done');
  });

  test('[DE3] the bytes of a gap are left out where the offset at the cursor is not known', () => {
    const state: StreamState = { mode: 'pulling', sentSeq: 2, knownHead: 2 };
    const page = { entries: [output(6)], headSeq: 6, ended: false };
    const [unknown] = textsOf(planPage(id, state, page, 0));
    expect(unknown?.params).not.toHaveProperty('bytes');
    const [known] = textsOf(planPage(id, state, { ...page, cursorOffset: 20 }, 0));
    expect(known?.params.bytes).toBe(30);
  });

  test('[L2] a log behind the cursor waits, and then the loss is told', () => {
    const plan = planPage(id, pulling(9), { entries: [], headSeq: 5, ended: false }, 0);
    expect(plan).toEqual({ type: 'behind', headSeq: 5, ended: false });
    const lost = tellLost(id, pulling(9), { headSeq: 5, ended: false }, 0);
    expect(parseEntryText(lost.text).params).toMatchObject({ fromSeq: 6, toSeq: 9, reason: 'redis_lost' });
    expect(lost.state).toMatchObject({ mode: 'pulling', sentSeq: 5 });
  });

  test('[L3] ended is sent even when its seq is below the cursor', () => {
    const lost = tellLost(id, pulling(9), { headSeq: 6, ended: true }, 0);
    const plan = planPage(id, lost.state, { entries: [ended(6)], headSeq: 6, ended: true }, 0);
    expect(textsOf(plan)[0]?.method).toBe('command.ended');
  });

  test('[L4] a command that is gone is told as expired, unless everything was sent', () => {
    expect(tellExpired(id, { ...pulling(2), knownHead: 4 }, 0)).toContain('"reason":"expired"');
    expect(tellExpired(id, pulling(2), 0)).toBeUndefined();
  });
});

function textsOf(plan: ReturnType<typeof planPage>) {
  if (plan.type !== 'send') throw new Error('expected texts');
  return plan.texts.map(parseEntryText);
}

describe('the whole of it', () => {
  type Event = 'append' | 'append-lost' | 'repeat' | 'slow' | 'fast' | 'page' | 'sweep' | 'interrupt';
  const events = fc.array(
    fc.constantFrom<Event>('append', 'append-lost', 'repeat', 'slow', 'fast', 'page', 'sweep', 'interrupt'),
    { maxLength: 80 },
  );

  test('[DE1] whatever is lost, repeated or slow: every entry is sent once, in order', () => {
    fc.assert(
      fc.property(events, fc.nat({ max: 3 }), (script, pageEntries) => {
        const log: StoredEntry[] = [];
        const sent: number[] = [];
        let state = releaseStream(holdStream(0, 0));
        let room = true;
        const deliver = (first: number, last: number) => {
          const step = decideEntries(state, message(first, last), room);
          state = step.state;
          if (step.type === 'forward') for (let seq = first; seq <= last; seq++) sent.push(seq);
        };
        const pull = (limit: number) => {
          if (state.mode !== 'pulling') return;
          const entries = log.filter((entry) => entry.seq > state.sentSeq).slice(0, limit);
          const plan = planPage(id, beginPull(state), { entries, headSeq: log.length, ended: false }, 0);
          if (plan.type !== 'send') throw new Error('the log never goes back here');
          sent.push(...plan.texts.map((text) => parseEntryText(text).params.seq));
          state = plan.state;
        };
        for (const event of script) {
          if (event === 'append' || event === 'append-lost') {
            log.push(output(log.length + 1));
            if (event === 'append') deliver(log.length, log.length);
          }
          if (event === 'repeat' && log.length > 1) deliver(log.length - 1, log.length);
          if (event === 'slow') room = false;
          if (event === 'fast') room = true;
          if (event === 'page' && room) pull(1 + pageEntries);
          if (event === 'sweep') state = compareHead(state, log.length, false);
          if (event === 'interrupt') state = interruptStream(state);
        }
        state = compareHead(state, log.length, false);
        while (state.mode === 'pulling') pull(1 + pageEntries);
        expect(sent).toEqual(log.map((entry) => entry.seq));
      }),
    );
  });
});
