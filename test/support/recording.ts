/**
 * What one tab saw, in order, and the questions tests ask about it. Every check returns the faults it finds as sentences,
 * so that its twin can hand it a spoilt recording and see that it notices.
 */

/** Anything that came over a tab's sockets. `at` is its place in the order of arrival. */
export interface Arrival {
  readonly at: number;
  readonly timeMs: number;
  /** Which of the tab's connections, counted from 1. */
  readonly connection: number;
  readonly type: 'notification' | 'answer';
  /** The notification's name, or the method that is answered. */
  readonly method: string;
  // biome-ignore lint/suspicious/noExplicitAny: a recording holds whatever came; each check looks at what it needs
  readonly params: any;
}

export type Recording = readonly Arrival[];

const ENTRY_METHODS = new Set([
  'command.started',
  'command.output',
  'command.gap',
  'command.watch',
  'command.heartbeat',
  'command.ended',
]);

export const isEntry = (arrival: Arrival): boolean =>
  arrival.type === 'notification' && ENTRY_METHODS.has(arrival.method);

/** Entries of one command that came to the owner (not as a viewer), in order of arrival. */
export const entriesOf = (recording: Recording, commandId: string): Arrival[] =>
  recording.filter((a) => isEntry(a) && a.params.commandId === commandId && a.params.view !== true);

/** The bytes of an output entry. */
export const bytesOf = (arrival: Arrival): Buffer =>
  arrival.params.base64 === undefined
    ? Buffer.from(arrival.params.data ?? '', 'utf8')
    : Buffer.from(arrival.params.base64, 'base64');

/** All output bytes of a command as they came, optionally of one stream. */
export const outputOf = (recording: Recording, commandId: string, stream?: string): Buffer =>
  Buffer.concat(
    entriesOf(recording, commandId)
      .filter((a) => a.method === 'command.output' && (stream === undefined || a.params.stream === stream))
      .map(bytesOf),
  );

export interface DeliveryExpectation {
  readonly commandId: string;
  /** First seq that must come; 1 unless the tab took over in the middle. */
  readonly fromSeq?: number;
  /** Whether the command must have ended by now. */
  readonly ended?: boolean;
  /** Whether a gap is allowed; where it is not, every byte must have come. */
  readonly gaps?: boolean;
}

/** DE1, DE2, DE3: contiguous from `fromSeq`, nothing twice, offsets that fit, `ended` last and once. */
export function deliveryFaults(recording: Recording, expected: DeliveryExpectation): string[] {
  const { commandId, fromSeq = 1, ended = true, gaps = false } = expected;
  const faults: string[] = [];
  const entries = entriesOf(recording, commandId);
  let nextSeq = fromSeq;
  let nextByte: number | undefined = fromSeq === 1 ? 0 : undefined;
  let endings = 0;

  for (const entry of entries) {
    const { seq } = entry.params;
    const first = entry.method === 'command.gap' ? entry.params.fromSeq : seq;
    if (endings > 0) faults.push(`seq ${seq} (${entry.method}) came after ended`);
    if (first < nextSeq) faults.push(`seq ${first} came again or out of order, expected ${nextSeq}`);
    if (first > nextSeq) faults.push(`seqs ${nextSeq} to ${first - 1} are missing before ${first}`);
    nextSeq = Math.max(nextSeq, seq + 1);

    if (entry.method === 'command.started' && seq !== 1) faults.push(`started has seq ${seq}`);
    if (entry.method === 'command.output') {
      const size = bytesOf(entry).length;
      if (size === 0) faults.push(`output entry ${seq} is empty`);
      if (nextByte !== undefined && entry.params.at !== nextByte) {
        faults.push(`output entry ${seq} begins at byte ${entry.params.at}, expected ${nextByte}`);
      }
      nextByte = entry.params.at + size;
    }
    if (entry.method === 'command.gap') {
      if (!gaps) faults.push(`gap ${entry.params.fromSeq}–${entry.params.toSeq} (${entry.params.reason})`);
      if (entry.params.toSeq !== seq) faults.push(`gap has seq ${seq} and toSeq ${entry.params.toSeq}`);
      const { bytes } = entry.params;
      nextByte = bytes === undefined || nextByte === undefined ? undefined : nextByte + bytes;
    }
    if (entry.method === 'command.ended') {
      endings += 1;
      const total = entry.params.outcome?.outputBytes;
      if (nextByte !== undefined && total !== nextByte && entry.params.outcome?.reason !== 'lost') {
        faults.push(`ended says ${total} bytes, but ${nextByte} came or were stated as a gap`);
      }
    }
  }
  if (ended && endings === 0) faults.push('ended did not come');
  if (endings > 1) faults.push(`ended came ${endings} times`);
  return faults;
}

/** IS2: entries (and changes of owner) of commands that are not among these. */
export function foreignFaults(recording: Recording, own: Iterable<string>): string[] {
  const allowed = new Set(own);
  return recording
    .filter((a) => (isEntry(a) || a.method === 'command.owner') && a.type === 'notification')
    .filter((a) => !allowed.has(a.params.commandId))
    .map((a) => `${a.method} of ${a.params.commandId} came, which is not this tab's`);
}

/** PROTOCOL 3: an answer precedes every entry that it causes. */
export function answerOrderFaults(recording: Recording): string[] {
  const faults: string[] = [];
  const answeredAt = new Map<string, number>();
  for (const arrival of recording) {
    if (arrival.type !== 'answer' || arrival.method !== 'command.run') continue;
    // A submit that is repeated is answered again; the first answer is the one that counts.
    const { commandId } = arrival.params;
    if (commandId !== undefined && !answeredAt.has(commandId)) answeredAt.set(commandId, arrival.at);
  }
  for (const arrival of recording.filter(isEntry)) {
    const answered = answeredAt.get(arrival.params.commandId);
    if (answered !== undefined && arrival.at < answered) {
      faults.push(`${arrival.method} of ${arrival.params.commandId} came before the answer of its run`);
    }
  }
  return faults;
}

/** SE1: notifications that came over a connection after it was told that another one took its place. */
export function lateFaults(recording: Recording, connection: number, sinceMs: number): string[] {
  return recording
    .filter((a) => a.connection === connection && a.type === 'notification' && a.timeMs > sinceMs)
    .map((a) => `${a.method} came over connection ${connection} after it had lost the session`);
}
