/** Every sentence and figure that the views show for a state of the protocol, in one place. Pure. */
import type { CommandSnapshot, GapReason, Outcome, OwnerWhy, ReplacedWhy } from '../../client/index.js';

type Tone = 'good' | 'bad' | 'plain';

/** The command as one line. */
export function commandTitle({ argv, script, commandId = '' }: Partial<CommandSnapshot>): string {
  const text = argv === undefined ? script : argv.map(quoted).join(' ');
  const line = (text ?? '').split('\n').find((candidate) => candidate.trim() !== '') ?? '';
  return line.trim() || `command ${shortId(commandId)}`;
}

const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** The last characters tell ids of one conversation apart; the first are its tag. */
export const shortId = (id: string): string => id.slice(-4);

export function sessionName(
  sessionId: string | null | undefined,
  mine: { readonly sessionId: string; readonly formerSessionIds: readonly string[] },
): string {
  if (sessionId === undefined) return 'not known yet';
  if (sessionId === null) return 'nobody';
  if (sessionId === mine.sessionId) return 'this tab';
  if (mine.formerSessionIds.includes(sessionId)) return 'this tab, before';
  return `tab ${shortId(sessionId)}`;
}

/** Who started it; a command without an origin was submitted over HTTP. */
export const originName = (...args: Parameters<typeof sessionName>): string =>
  args[0] === null ? 'no tab (HTTP)' : sessionName(...args);

/** Why a command is here and not with the tab that started it. */
export function moveSentence(why: OwnerWhy): string {
  switch (why) {
    case 'origin_closed':
      return 'the tab that started it had already closed';
    case 'owner_closed':
      return 'the tab that had it was closed or stayed away too long';
    case 'no_origin':
      return 'it was started outside of any tab';
    case 'unparked':
      return 'no tab was open when it lost its own, and it waited';
    case 'adopted':
      return 'it was taken over by hand';
    case 'inherited':
      return 'a command of this tab started it';
  }
}

export function outcomeTone({ reason, code }: Outcome): Tone {
  if (reason === 'exited') return code === 0 ? 'good' : 'bad';
  return reason === 'cancelled' ? 'plain' : 'bad';
}

/** How it ended, in a few words; the list leaves the signal of a wish out. */
export function outcomeWords({ reason, code, signal, error }: Outcome, brief = false): string {
  const words = (() => {
    switch (reason) {
      case 'exited':
        return code === 0 ? 'exited 0' : `exited ${code}`;
      case 'signaled':
        return `ended by ${signal ?? 'a signal'}`;
      case 'cancelled':
        return signal === null || brief ? 'ended on request' : `ended on request (${signal})`;
      case 'timed_out':
        return 'ran out of time';
      case 'idle_timeout':
        return 'was silent for too long';
      case 'expired':
        return 'waited too long in the queue';
      case 'spawn_failed':
        return 'could not be started';
      case 'output_limit':
        return 'wrote more than it may';
      case 'out_of_memory':
        return 'ran out of memory';
      case 'resource_limit':
        return 'reached a limit';
      case 'owner_gone':
        return 'ended with its tab';
      case 'worker_drained':
        return 'its worker was stopped';
      case 'lost':
        return 'its worker was lost';
      case 'kill_failed':
        return 'could not be ended';
      case 'refused':
        return 'was refused';
    }
  })();
  return error === undefined ? words : `${words}: ${error}`;
}

export function gapSentence(bytes: number | undefined, reason: GapReason): string {
  const amount = bytes === undefined ? 'some output' : `${bytes.toLocaleString('en')} bytes`;
  switch (reason) {
    case 'flood':
      return `${amount} left out: written faster than can be kept`;
    case 'spool':
      return `${amount} left out: written while the store was away`;
    case 'trimmed':
      return `${amount} no longer kept: the log holds its first and its last part`;
    case 'expired':
      return `${amount} no longer kept: past its retention`;
    case 'redis_lost':
      return `${amount} lost with the store`;
  }
}

export function replacedSentence(why: ReplacedWhy): string {
  switch (why) {
    case 'SESSION_IN_USE':
      return 'This tab is a copy of another one, so it got a session of its own. The other tab keeps its commands.';
    case 'SESSION_GONE':
      return 'This tab was away for longer than its session is kept. It has a new one; its commands may have moved to another tab.';
    case 'RESUME_DENIED':
      return 'The former session of this tab is not known any more. It has a new one.';
  }
}

/** `850 ms`, `4.2 s`, `3 min 07 s`, `2 h 05 min` */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${two(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

/** Whole seconds from one on, so that a running clock does not flicker. */
export const runningFor = (ms: number): string =>
  ms < 60_000 ? `${Math.max(0, Math.floor(ms / 1_000))} s` : duration(ms);

const two = (value: number): string => String(value).padStart(2, '0');

/** `0 B`, `12 B`, `3.4 kB`, `12 MB` */
export function size(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  const [value, unit] = bytes < 1_000_000 ? [bytes / 1_000, 'kB'] : [bytes / 1_000_000, 'MB'];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** Time of day, with the date where it was not today. */
export function clock(atMs: number, nowMs: number): string {
  const at = new Date(atMs);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (new Date(nowMs).toDateString() === at.toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time.slice(0, 5)}`;
}

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
