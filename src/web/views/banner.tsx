/** States that a reader must know of before going on: offline, away, stopping node, replaced session, ending token. */
import type { ComponentChildren } from 'preact';
import { duration, replacedSentence } from '../state/words.js';
import { type ConversationProps, usePage } from './context.js';
import { Close } from './icons.js';
import { useNow, useStore } from './use-store.js';

const WARN_BEFORE_MS = 5 * 60_000;

export function Banners({ conversation }: ConversationProps) {
  const { app } = usePage();
  const { connection, replaced } = useStore(conversation.store, (state) => state);
  const online = useStore(app.store, (state) => state.online);
  const facts = useStore(app.store, (state) => state.facts);
  const nowMs = useNow(1_000);
  const leftMs = facts?.expiresAtMs === undefined ? Number.POSITIVE_INFINITY : facts.expiresAtMs - nowMs;

  return (
    <div class="banners">
      {!online && connection.state !== 'live' && (
        <Banner tone="bad" title="This device is offline.">
          Commands go on running. Their output is kept and comes when the connection is back.
        </Banner>
      )}
      {online && connection.state === 'away' && (
        <Banner tone="bad" title="No connection to a node.">
          Commands go on running, and their output is kept. {sentence(connection.why)}
        </Banner>
      )}
      {connection.state === 'live' && connection.leavingByMs !== undefined && (
        <Banner tone="plain" title="This node is being stopped.">
          The connection moves to another node by itself within{' '}
          {duration(Math.max(1_000, connection.leavingByMs - nowMs))}. Nothing is lost.
        </Banner>
      )}
      {replaced !== undefined && connection.state !== 'over' && (
        <Banner
          tone="plain"
          title="A new session."
          onClose={() => conversation.store.dispatch({ type: 'replaced_seen' })}
        >
          {replacedSentence(replaced)}
        </Banner>
      )}
      {leftMs < WARN_BEFORE_MS && connection.state === 'live' && (
        <Banner tone="plain" title={leftMs > 0 ? `The token ends in ${duration(leftMs)}.` : 'The token is over.'}>
          <button type="button" class="link" onClick={() => app.askToken('The token is about to end. Give a new one.')}>
            Give a new one
          </button>
        </Banner>
      )}
    </div>
  );
}

const sentence = (text: string): string => {
  const trimmed = text.trim();
  return trimmed === '' ? '' : `${trimmed[0]?.toUpperCase()}${trimmed.slice(1)}${trimmed.endsWith('.') ? '' : '.'}`;
};

function Banner(props: {
  readonly tone: 'bad' | 'plain';
  readonly title: string;
  readonly children: ComponentChildren;
  readonly onClose?: () => void;
}) {
  return (
    <div class={`banner ${props.tone}`}>
      <p>
        <strong role="status">{props.title}</strong> {props.children}
      </p>
      {props.onClose && (
        <button type="button" class="quiet" aria-label="Dismiss" onClick={props.onClose}>
          <Close />
        </button>
      )}
    </div>
  );
}
