/** Ending a command: asked for with a confirmation, and every stage of it in view until it has ended. */
import { useState } from 'preact/hooks';
import type { Command } from '../state/conversation.js';
import { commandTitle, duration } from '../state/words.js';
import type { ConversationProps } from './context.js';
import { Dialog } from './dialog.js';
import { useNow } from './use-store.js';

const SIGNALS = [
  ['SIGTERM', 'Ask it to end', 'SIGTERM: most programs tidy up and leave'],
  ['SIGINT', 'Interrupt it', 'SIGINT: what Ctrl-C sends'],
  ['SIGKILL', 'End it at once', 'SIGKILL: it can not tidy up'],
] as const;

export function KillDialog(props: ConversationProps & { command: Command; onClose: () => void }) {
  const { conversation, command, onClose } = props;
  const [signal, setSignal] = useState<string>('SIGTERM');
  const [graceSeconds, setGrace] = useState(5);
  return (
    <Dialog title="End this command?" onClose={onClose}>
      <form
        class="kill-form"
        onSubmit={(event) => {
          event.preventDefault();
          void conversation.kill(command.commandId, signal, signal === 'SIGKILL' ? 0 : graceSeconds * 1_000);
          onClose();
        }}
      >
        <p class="kill-what">
          <code>{commandTitle(command.snapshot)}</code>
        </p>
        <fieldset>
          <legend class="sr">How</legend>
          {SIGNALS.map(([value, label, more]) => (
            <label key={value} class="choice">
              <input type="radio" name="signal" checked={signal === value} onChange={() => setSignal(value)} />
              <span>
                {label}
                <small>{more}</small>
              </span>
            </label>
          ))}
        </fieldset>
        {signal !== 'SIGKILL' && (
          <label class="field inline">
            <span>If it is still there, end it by force after</span>
            <input
              type="number"
              min={0}
              max={600}
              value={graceSeconds}
              onInput={(event) => setGrace(Math.max(0, Math.min(600, event.currentTarget.valueAsNumber || 0)))}
            />
            <span>seconds</span>
          </label>
        )}
        <p class="dim">Everything that it started is ended with it.</p>
        <footer class="dialog-foot">
          <button type="button" onClick={onClose}>
            Let it run
          </button>
          <button type="submit" class="danger">
            End the command
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** asked → signal sent → time until force → ended */
export function KillStages({ command }: { readonly command: Command }) {
  const { kill } = command;
  const nowMs = useNow(200, kill?.stage === 'signalled');
  if (kill === undefined) return null;
  if (kill.stage === 'refused') {
    return (
      <p class="fault stages" role="alert">
        It could not be ended: {kill.message}
      </p>
    );
  }
  const asking = kill.stage === 'asking';
  const leftMs = asking ? 0 : Math.max(0, kill.killAtMs - nowMs);
  return (
    <ol class="stages" aria-label="How far the end of this command has come" data-stage={kill.stage}>
      <li class="done">asked</li>
      <li class={asking ? 'now' : 'done'}>{asking ? `sending ${kill.signal}…` : `${kill.signal} sent`}</li>
      {!asking && kill.signal !== 'SIGKILL' && (
        <li class="now">{leftMs > 0 ? `by force in ${duration(leftMs)}` : 'by force now'}</li>
      )}
      <li>ended</li>
    </ol>
  );
}
