/** What stands in place of the terminal when the session is over: why, and what can be done about it. */
import type { OverCause } from '../state/connection.js';
import type { ConversationProps } from './context.js';
import { useStore } from './use-store.js';

const TEXTS: Readonly<Record<OverCause, readonly [title: string, text: string, action: string]>> = {
  superseded: [
    'This session is open somewhere else',
    'Another page took it over, and gets its output from now on. This page shows what it had until then.',
    'Use a new session here',
  ],
  closed: [
    'The session of this tab is closed',
    'Its commands moved to another open tab, or run on without one until somebody adopts them.',
    'Open a new session',
  ],
  token: ['The token is not accepted', 'Give another one to go on.', 'Give a token'],
  fault: ['The connection was ended', 'Trying again by itself would only repeat it.', 'Try again'],
};

export function OverNotice(props: ConversationProps & { onToken: (reason: string) => void }) {
  const connection = useStore(props.conversation.store, (state) => state.connection);
  if (connection.state !== 'over') return null;
  const [title, text, action] = TEXTS[connection.cause];
  return (
    <div class="over" role="alert" data-cause={connection.cause}>
      <div>
        <h2>{title}</h2>
        <p>{text}</p>
        {(connection.cause === 'fault' || connection.cause === 'token') && <p class="dim">{connection.reason}</p>}
      </div>
      <button
        type="button"
        class="primary"
        onClick={() => {
          if (connection.cause === 'token') props.onToken(connection.reason);
          else if (connection.cause === 'fault') props.conversation.start();
          else props.conversation.startAnew();
        }}
      >
        {action}
      </button>
    </div>
  );
}
