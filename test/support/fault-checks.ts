/**
 * What must hold after any faults. Every check gives the faults it finds as sentences, so that its twin can hand it a
 * spoilt account and see that it notices.
 */
import type { Application, Asked, Seen } from './fault-load.js';

/** A command as Redis has it at the end, with its whole log as text. */
export interface Listed {
  readonly commandId: string;
  readonly label: string;
  readonly principal: string;
  readonly conversation: string;
  readonly state: string;
  readonly reason: string;
  readonly code: number | null;
  readonly workerId: string;
  readonly headSeq: number;
  readonly text: string;
  /** How often its program said that it was started. */
  readonly starts: number;
}

export type Page = Pick<Application, 'name' | 'principal' | 'conversation' | 'seen' | 'state'>;

export interface Tally {
  delivered: number;
  lost: number;
  duplicated: number;
  misdelivered: number;
}

/** DE1, DE2: what one application saw of one command follows on, once, and ends with the end. Gaps are none here. */
export function pageFaults(seen: readonly Seen[], tally: Tally): string[] {
  const faults: string[] = [];
  let next = seen[0]?.fromSeq ?? 1;
  let nextByte: number | undefined = next === 1 ? 0 : undefined;
  for (const [index, entry] of seen.entries()) {
    tally.delivered += 1;
    if (entry.fromSeq < next) {
      tally.duplicated += 1;
      faults.push(`seq ${entry.fromSeq} came again, expected ${next}`);
    }
    if (entry.fromSeq > next) {
      tally.lost += entry.fromSeq - next;
      faults.push(`seqs ${next} to ${entry.fromSeq - 1} are missing`);
    }
    next = Math.max(next, entry.seq + 1);
    if (entry.type === 'gap') {
      tally.lost += 1;
      faults.push(`a gap at ${entry.fromSeq}–${entry.seq}: ${entry.reason}`);
    }
    if (entry.type === 'output') {
      if (nextByte !== undefined && entry.at !== nextByte)
        faults.push(`byte ${entry.at} came where ${nextByte} was due`);
      nextByte = (entry.at ?? 0) + (entry.bytes?.length ?? 0);
    }
    if (entry.type === 'ended' && index < seen.length - 1) faults.push(`something came after ended (${entry.seq})`);
  }
  return faults;
}

/** All of one command: its log, its ending, and everything any application saw of it. */
export function commandFaults(
  command: Listed,
  asked: Asked | undefined,
  pages: readonly Page[],
  harmedWorkers: ReadonlySet<string>,
  tally: Tally,
): string[] {
  const { commandId, label, text, reason, starts } = command;
  if (asked === undefined) return [`nobody asked for it: label "${label}"`];
  const faults: string[] = [];

  // Its own log and ending.
  if (command.state !== 'ended') faults.push(`it is still ${command.state}`);
  const whole = reason === 'exited';
  if (whole ? text !== asked.output : !asked.output.startsWith(text)) {
    faults.push(`its log has ${text.length} bytes and is not what it printed (${asked.output.length})`);
  }
  if (whole && command.code !== asked.code) faults.push(`it exited with ${command.code}, not ${asked.code}`);
  if (starts > 1 || (whole && starts !== 1)) faults.push(`it was started ${starts} times`);
  if (reason === 'cancelled' && !asked.killed) faults.push('it was cancelled, and nobody asked for that');
  if ((reason === 'lost' || reason === 'worker_drained') && !harmedWorkers.has(command.workerId)) {
    faults.push(`it is ${reason}, though nothing happened to its worker`);
  }
  if (!['exited', 'cancelled', 'lost', 'worker_drained'].includes(reason)) faults.push(`it ended as ${reason}`);

  // Who saw it.
  const readers: { page: Page; seen: readonly Seen[] }[] = [];
  for (const page of pages) {
    const seen = page.seen.get(commandId);
    if (seen === undefined) continue;
    if (page.principal !== command.principal || page.conversation !== command.conversation) {
      tally.misdelivered += seen.length;
      faults.push(`${page.name} of ${page.principal} in ${page.conversation} saw ${seen.length} entries of it`);
    }
    faults.push(...pageFaults(seen, tally).map((fault) => `${page.name}: ${fault}`));
    const bytes = Buffer.concat(seen.map((entry) => entry.bytes ?? Buffer.alloc(0))).toString('utf8');
    const from = seen.find((entry) => entry.type === 'output')?.at ?? 0;
    if (text.slice(from, from + bytes.length) !== bytes)
      faults.push(`${page.name}: its bytes are not those of the log`);
    const owned = seen.filter((entry) => !entry.view);
    if (owned.length > 0) readers.push({ page, seen: owned });
  }
  readers.sort((a, b) => (a.seen[0]?.arrivedMs ?? 0) - (b.seen[0]?.arrivedMs ?? 0));
  if (asked.by.state === 'open') {
    for (const { page, seen } of readers) {
      if (page.name === asked.by.name) continue;
      tally.misdelivered += seen.length;
      faults.push(`${page.name} got it, though ${asked.by.name}, which asked for it, was never closed`);
    }
  }
  let next = 1;
  for (const { page, seen } of readers) {
    const first = seen[0]?.fromSeq ?? 1;
    if (first > next) {
      tally.lost += first - next;
      faults.push(`${page.name} began at ${first}: nobody saw ${next} to ${first - 1}`);
    }
    next = Math.max(next, (seen.at(-1)?.seq ?? 0) + 1);
  }
  if (next <= command.headSeq) {
    tally.lost += command.headSeq - next + 1;
    faults.push(`nobody saw ${next} to ${command.headSeq}`);
  }
  const endings = readers.filter(({ seen }) => seen.some((entry) => entry.type === 'ended'));
  if (endings.length === 0) faults.push('no application saw its end');
  return faults.map((fault) => `${label} (${commandId}): ${fault}`);
}
