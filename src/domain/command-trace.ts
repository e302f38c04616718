/**
 * What happened to the entries of one command, for operators: every move of its owner, every time the session that owned it
 * was attached or lost its connection, and each gap, in the order of time. Pure: lines in, lines out.
 */

/** `from` and `to`: sessions of a move, session and node of an attach, seqs of a gap. */
export interface TraceLine {
  readonly at: number;
  readonly what: 'move' | 'attach' | 'away' | 'gap';
  readonly from: string;
  readonly to: string;
  /** The reason of a move or gap; the generation of an attach. */
  readonly why: string;
}

/** A session and its stored lines: `<ms> attach|away <generation> <node>`. */
export interface AttachHistory {
  readonly sessionId: string;
  readonly lines: readonly string[];
}

const MAX_LINES = 400;

/** A stored line of a command: `<ms> move|gap <from> <to> <why>`; undefined for what a newer version wrote. */
export function parseTraceLine(line: string): TraceLine | undefined {
  const [at, what, from = '', to = '', ...why] = line.split(' ');
  if (what !== 'move' && what !== 'gap') return undefined;
  return { at: Number(at), what, from, to, why: why.join(' ') };
}

/** Who owned it when: each owner with the time from which and until which. */
function tenures(createdAt: number, owner: string | null, moves: readonly TraceLine[]) {
  const first = moves[0]?.from ?? owner ?? '-';
  const list = [{ sessionId: first, fromMs: createdAt, toMs: Number.POSITIVE_INFINITY }];
  for (const { at, to } of moves) {
    const last = list.at(-1);
    if (last !== undefined) last.toMs = at;
    list.push({ sessionId: to, fromMs: at, toMs: Number.POSITIVE_INFINITY });
  }
  return list.filter(({ sessionId }) => sessionId !== '-');
}

/** Sessions whose attaches belong to the trace, the latest first. */
export const ownersIn = (owner: string | null, lines: readonly TraceLine[]): string[] => {
  const moves = lines.filter(({ what }) => what === 'move');
  const all = [...(owner === null ? [] : [owner]), ...moves.flatMap(({ from, to }) => [to, from]).reverse()];
  return [...new Set(all)].filter((id) => id !== '-');
};

/** The newest lines where there are too many. */
export function buildTrace(
  command: { readonly createdAt: number; readonly ownerSessionId: string | null },
  stored: readonly TraceLine[],
  histories: readonly AttachHistory[],
): readonly TraceLine[] {
  const moves = stored.filter(({ what }) => what === 'move');
  const attaches: TraceLine[] = [];
  for (const { sessionId, fromMs, toMs } of tenures(command.createdAt, command.ownerSessionId, moves)) {
    const lines = histories.find((history) => history.sessionId === sessionId)?.lines ?? [];
    const known = lines.map((line) => attachLine(sessionId, line)).filter((line) => line !== undefined);
    // Where it was when the command came to it, and what happened while it was there.
    const before = known.filter(({ at }) => at < fromMs).slice(-1);
    attaches.push(...before, ...known.filter(({ at }) => at >= fromMs && at <= toMs));
  }
  return [...stored, ...attaches].sort((a, b) => a.at - b.at).slice(-MAX_LINES);
}

function attachLine(sessionId: string, line: string): TraceLine | undefined {
  const [at, what, generation = '', node = ''] = line.split(' ');
  if (what !== 'attach' && what !== 'away') return undefined;
  return { at: Number(at), what, from: sessionId, to: node, why: `generation ${generation}` };
}
