/** The state of the connection in a few words, always in view. */
import { backlogOf } from '../state/conversation.js';
import { plural } from '../state/words.js';
import { type ConversationProps, usePage } from './context.js';
import { useNow, useStore } from './use-store.js';

export function ConnectionPill({ conversation }: ConversationProps) {
  const { app } = usePage();
  const connection = useStore(conversation.store, (state) => state.connection);
  const state = useStore(conversation.store, (whole) => whole);
  const online = useStore(app.store, (whole) => whole.online);
  const nowMs = useNow(500, connection.state === 'away' || connection.state === 'live');
  const { entries, commands } = backlogOf(state);

  /** Words that stay while the figures beside them run: only they are read out. */
  const [kind, words, figures] = ((): [string, string, string?] => {
    if (!online && connection.state !== 'live') return ['bad', 'Offline'];
    switch (connection.state) {
      case 'connecting':
        return ['busy', connection.attempt === 0 ? 'Connecting…' : 'Connecting again…'];
      case 'away':
        return ['bad', 'Away', `trying again in ${Math.ceil(Math.max(0, connection.retryAtMs - nowMs) / 1_000)} s`];
      case 'over':
        return ['bad', connection.cause === 'superseded' ? 'Taken over' : 'Closed'];
      case 'live':
        if (connection.leavingByMs !== undefined) return ['busy', 'Moving to another node…'];
        if (commands > 0)
          return ['busy', 'Catching up', `${plural(entries, 'entry', 'entries')} of ${plural(commands, 'command')}`];
        return ['good', 'Live'];
    }
  })();
  return (
    <span class={`pill ${kind}`} data-connection={connection.state}>
      <span class="pill-dot" aria-hidden="true" />
      <span role="status">{words}</span>
      {figures !== undefined && <span class="dim">{figures}</span>}
      {connection.state === 'away' && (
        <button type="button" class="link" onClick={() => conversation.retryNow()}>
          Try now
        </button>
      )}
    </span>
  );
}
