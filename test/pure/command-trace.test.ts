/** What operators read of the way of a command's entries: moves, attaches and gaps in the order of time. */
import { describe, expect, it } from 'vitest';
import { buildTrace, ownersIn, parseTraceLine } from '../../src/domain/command-trace.js';

const lines = (...texts: string[]) => texts.map(parseTraceLine).filter((line) => line !== undefined);
const moved = lines('200 move ses_a ses_b owner_closed', '250 gap 4 9 trimmed', '400 move ses_b - parked');

describe('the trace of a command', () => {
  it('[OW2] has the attaches of each owner while it was the owner, and where it was when the command came to it', () => {
    const trace = buildTrace({ createdAt: 100, ownerSessionId: null }, moved, [
      {
        sessionId: 'ses_a',
        lines: ['50 attach 1 node_1', '120 away 1 node_1', '130 attach 2 node_2', '300 attach 3 node_1'],
      },
      { sessionId: 'ses_b', lines: ['10 attach 1 node_1', '90 attach 2 node_3', '500 attach 3 node_1'] },
      { sessionId: 'ses_c', lines: ['150 attach 1 node_1'] },
    ]);
    expect(trace.map(({ at, what, from, to, why }) => `${at} ${what} ${from} ${to} ${why}`)).toEqual([
      '50 attach ses_a node_1 generation 1',
      '90 attach ses_b node_3 generation 2',
      '120 away ses_a node_1 generation 1',
      '130 attach ses_a node_2 generation 2',
      '200 move ses_a ses_b owner_closed',
      '250 gap 4 9 trimmed',
      '400 move ses_b - parked',
    ]);
  });

  it('is that of its owner alone while it never moved', () => {
    const history = { sessionId: 'ses_a', lines: ['50 attach 1 node_1'] };
    expect(buildTrace({ createdAt: 100, ownerSessionId: 'ses_a' }, [], [history])).toHaveLength(1);
    expect(buildTrace({ createdAt: 100, ownerSessionId: null }, [], [history])).toEqual([]);
  });

  it('names the sessions to look at, the latest first, each once', () => {
    expect(
      ownersIn('ses_c', lines('1 move ses_a ses_b x', '2 move ses_b - parked', '3 move - ses_c unparked')),
    ).toEqual(['ses_c', 'ses_b', 'ses_a']);
  });

  it('leaves out what a newer version wrote, and is bounded', () => {
    expect(parseTraceLine('1 teleport a b c')).toBeUndefined();
    const many = Array.from({ length: 1_000 }, (_, at) => `${at} gap 1 2 flood`);
    const trace = buildTrace({ createdAt: 0, ownerSessionId: null }, lines(...many), []);
    expect(trace).toHaveLength(400);
    expect(trace.at(-1)?.at).toBe(999);
  });
});
