/** A command's state as a sign with a shape of its own, and as words. */
import type { Command } from '../state/conversation.js';
import { outcomeTone, outcomeWords, runningFor } from '../state/words.js';
import { Done, Failed, Queued, Running, Stopped, Unknown } from './icons.js';

export function StateSign({ command }: { readonly command: Command }) {
  const { outcome } = command.snapshot;
  if (command.state === 'queued')
    return (
      <span class="sign queued">
        <Queued />
      </span>
    );
  if (command.state === 'running')
    return (
      <span class="sign running">
        <Running />
      </span>
    );
  if (outcome === undefined)
    return (
      <span class="sign">
        <Unknown />
      </span>
    );
  const tone = outcomeTone(outcome);
  const Sign = tone === 'good' ? Done : tone === 'plain' ? Stopped : outcome.reason === 'lost' ? Unknown : Failed;
  return (
    <span class={`sign ${tone}`}>
      <Sign />
    </span>
  );
}

/** `running 12 s`, `exited 0` */
export function stateWords(command: Command, nowMs: number, brief = false): string {
  const { startedAt, outcome, position, held, createdAt } = command.snapshot;
  if (command.state === 'queued') {
    if (held === 'delayed') return 'waits for its time';
    const line = held === undefined ? 'queued' : `held back by the limit of its ${held}`;
    if (position !== undefined) return position <= 1 ? `${line}, next` : `${line}, ${position - 1} before it`;
    return createdAt === undefined || nowMs - createdAt < 2_000 ? 'queued' : `queued ${runningFor(nowMs - createdAt)}`;
  }
  if (command.state === 'running') {
    return startedAt === undefined ? 'running' : `running ${runningFor(nowMs - startedAt)}`;
  }
  return outcome === undefined ? 'ended' : outcomeWords(outcome, brief);
}
