/** What a page knows of a conversation: states only move forward, notices come once, a closed page claims nothing. */
import { describe, expect, it } from 'vitest';
import type { CommandSnapshot, Entry, Outcome } from '../../src/client/index.js';
import type { CommandId } from '../../src/protocol/ids.js';
import { signsOf } from '../../src/web/state/attention.js';
import {
  backlogOf,
  type ConversationEvent,
  type ConversationState,
  commandOf,
  emptyConversation,
  isMine,
  isUnowned,
  reduceConversation,
} from '../../src/web/state/conversation.js';

const ID = 'cmd_one' as CommandId;
const OUTCOME: Outcome = {
  reason: 'exited',
  code: 0,
  signal: null,
  durationMs: 5,
  outputBytes: 12,
  tail: '',
  leftovers: 0,
};
const snapshot = (more: Partial<CommandSnapshot> = {}): CommandSnapshot => ({
  commandId: ID,
  state: 'running',
  originSessionId: 'ses_mine',
  ownerSessionId: 'ses_mine',
  labels: {},
  conversation: 'demo',
  pool: 'default',
  script: 'make',
  createdAt: 10,
  firstSeq: 1,
  headSeq: 3,
  ackedSeq: 0,
  outputBytes: 0,
  ...more,
});
const ended: Entry = { type: 'ended', commandId: ID, seq: 9, ts: 99, outcome: OUTCOME };
const live = (sessionId = 'ses_mine'): ConversationEvent => ({
  type: 'status',
  status: { state: 'live', attempt: 0, sinceMs: 0 },
  sessionId,
  nowMs: 0,
});
const stateAfter = (...events: ConversationEvent[]): ConversationState =>
  events.reduce(reduceConversation, emptyConversation('demo'));
const listed = (...snapshots: CommandSnapshot[]): ConversationEvent => ({ type: 'listed', snapshots, first: true });

describe('commands of a page', () => {
  it('a list that was made a moment ago does not bring an ended command back to life', () => {
    const state = stateAfter(live(), listed(snapshot()), { type: 'entry', entry: ended, nowMs: 1 }, listed(snapshot()));
    expect(commandOf(state, ID)?.state).toBe('ended');
    expect(commandOf(state, ID)?.snapshot.outcome).toEqual(OUTCOME);
  });

  it('[CO1] one that was made after the end of another with its id is a new one, of which nothing is known', () => {
    const over: ConversationEvent = { type: 'entry', entry: ended, nowMs: 1 };
    const state = stateAfter(live(), listed(snapshot()), over, listed(snapshot({ createdAt: 100 })));
    expect(commandOf(state, ID)).toMatchObject({ state: 'running', seenSeq: 0, outputBytes: 0 });
    expect(commandOf(state, ID)?.snapshot.outcome).toBeUndefined();
  });

  it('are newest first, with what was just asked for above all', () => {
    const older = snapshot({ commandId: 'cmd_older', createdAt: 5 });
    const state = stateAfter(listed(older, snapshot()), { type: 'snapshot', snapshot: { commandId: 'cmd_new' } });
    expect(state.commands.map(({ commandId }) => commandId)).toEqual(['cmd_new', ID, 'cmd_older']);
  });

  it('leave the list when they ended and expired, and stay while only a page of it is known', () => {
    const over = snapshot({ state: 'ended', commandId: 'cmd_old' });
    expect(stateAfter(listed(over), listed(snapshot())).commands.map(({ commandId }) => commandId)).toEqual([ID]);
    const paged: ConversationEvent = { type: 'listed', snapshots: [snapshot()], first: true, next: '7' };
    expect(stateAfter(listed(over), paged).commands).toHaveLength(2);
  });

  it('[OW4] are nobody’s only while they are not over', () => {
    const parked = stateAfter(listed(snapshot({ ownerSessionId: null })));
    expect(parked.commands.map(isUnowned)).toEqual([true]);
    const over = stateAfter(listed(snapshot({ ownerSessionId: null, state: 'ended' })));
    expect(over.commands.map(isUnowned)).toEqual([false]);
  });

  it('count what is missing after a reconnect until it was consumed', () => {
    const state = stateAfter(live(), listed(snapshot()), { type: 'attached', heads: new Map([[ID as string, 30]]) });
    expect(backlogOf(state)).toEqual({ commands: 1, entries: 30 });
    const some = reduceConversation(state, {
      type: 'progress',
      seen: new Map([[ID as string, { seq: 20, bytes: 5 }]]),
    });
    expect(backlogOf(some)).toEqual({ commands: 1, entries: 10 });
    const all = reduceConversation(some, { type: 'progress', seen: new Map([[ID as string, { seq: 30, bytes: 9 }]]) });
    expect(backlogOf(all)).toEqual({ commands: 0, entries: 0 });
  });

  it('forget how far their end has come when they ended', () => {
    const kill = { stage: 'signalled', signal: 'SIGTERM', sentAtMs: 1, killAtMs: 5 } as const;
    const state = stateAfter(live(), listed(snapshot()), { type: 'kill', commandId: ID, kill });
    expect(commandOf(state, ID)?.kill).toEqual(kill);
    const over = reduceConversation(state, { type: 'entry', entry: ended, nowMs: 6 });
    expect(commandOf(over, ID)?.kill).toBeUndefined();
    // An answer that comes after the end changes nothing.
    expect(commandOf(reduceConversation(over, { type: 'kill', commandId: ID, kill }), ID)?.kill).toBeUndefined();
  });
});

describe('notices of a page', () => {
  it('[OW9] tell of the end of its own commands and not of those it only looks at', () => {
    const own = stateAfter(live(), listed(snapshot()), { type: 'entry', entry: ended, nowMs: 7 });
    expect(own.notices).toMatchObject([{ kind: 'ended', title: 'make', text: 'exited 0', tone: 'good', seen: false }]);
    const others = stateAfter(live('ses_other'), listed(snapshot()), { type: 'entry', entry: ended, nowMs: 7 });
    expect(others.notices).toEqual([]);
  });

  it('[OW2] tell of a command that came from another tab, with the reason', () => {
    const moved: ConversationEvent = { type: 'moved', commandId: ID, why: 'owner_closed', nowMs: 3 };
    const state = stateAfter(live('ses_heir'), listed(snapshot()), moved);
    const command = commandOf(state, ID);
    expect(command && isMine(state, command)).toBe(true);
    expect(state.notices[0]?.text).toContain('the tab that had it was closed');
  });

  it('do not grow without a bound, and are seen when their command is selected', () => {
    const watch = (seq: number): ConversationEvent => ({
      type: 'entry',
      entry: { type: 'watch', commandId: ID, seq, ts: 0, pattern: 'x', text: `x ${seq}` },
      nowMs: seq,
    });
    const state = stateAfter(live(), listed(snapshot()), ...Array.from({ length: 80 }, (_, i) => watch(i)));
    expect(state.notices).toHaveLength(50);
    expect(signsOf(state, [state]).title).toBe('(50) ▶ demo – Homing');
    const seen = reduceConversation(state, { type: 'select', commandId: ID });
    expect(signsOf(seen, [seen])).toEqual({ title: '▶ demo – Homing', icon: 'running' });
  });
});

describe('the session of a page', () => {
  const closed = (code?: number): ConversationEvent => ({
    type: 'status',
    status: { state: 'closed', reason: 'x', ...(code === undefined ? {} : { code }) },
    sessionId: 'ses_mine',
    nowMs: 0,
  });

  it('[OW6] once it is closed or taken over, the page claims nothing of it', () => {
    for (const end of [closed(), closed(4500), closed(4504)]) {
      const state = stateAfter(live(), listed(snapshot()), end);
      expect(state.commands.some((command) => isMine(state, command))).toBe(false);
      expect(state.formerSessionIds).toEqual(['ses_mine']);
    }
  });

  it('keeps its id where only the token failed: it is resumed with the next one', () => {
    expect(stateAfter(live(), closed(4501)).sessionId).toBe('ses_mine');
  });

  it('[SE4] a copied tab does not take the past of the first for its own', () => {
    const replaced = (why: 'SESSION_IN_USE' | 'SESSION_GONE'): ConversationEvent => ({
      type: 'replaced',
      why,
      formerSessionId: 'ses_former',
      nowMs: 0,
    });
    expect(stateAfter(live(), replaced('SESSION_IN_USE')).formerSessionIds).toEqual([]);
    expect(stateAfter(live(), replaced('SESSION_GONE')).formerSessionIds).toEqual(['ses_former']);
  });
});
