/** The bar at the top: conversations, the connection, notices, look and help. */
import { useState } from 'preact/hooks';
import { unseenOf } from '../state/notices.js';
import type { Conversation } from '../state/session-driver.js';
import { isConversationName } from '../state/token.js';
import { plural, shortId } from '../state/words.js';
import { ConnectionPill } from './connection-pill.js';
import { type ConversationProps, usePage } from './context.js';
import { Dialog } from './dialog.js';
import { Bell, Mark, Plus } from './icons.js';
import { useStore } from './use-store.js';

export function TopBar(props: ConversationProps & { onNotices: () => void; onHelp: () => void }) {
  const { conversation, onNotices, onHelp } = props;
  const { app } = usePage();
  const { conversations, active, taste, facts } = useStore(app.store, (state) => state);
  const unseen = useStore(conversation.store, (state) => unseenOf(state.notices));
  const sessionId = useStore(conversation.store, (state) => state.sessionId);
  const [opening, setOpening] = useState(false);
  const [leaving, setLeaving] = useState(false);

  return (
    <header class="top">
      <h1 class="brand">
        <Mark />
        <span>Homing</span>
      </h1>
      <nav class="conversations" aria-label="Conversations">
        {conversations.map((item, index) => (
          <ConversationTab key={item.name} conversation={item} index={index} active={item.name === active} />
        ))}
        <button
          type="button"
          class="quiet"
          aria-label="Open a conversation"
          title="Open a conversation"
          onClick={() => setOpening(true)}
        >
          <Plus />
        </button>
      </nav>
      <ConnectionPill conversation={conversation} />
      <div class="top-tools">
        <button
          type="button"
          class="quiet"
          title={`${facts?.principal ?? ''} · session ${sessionId}`}
          onClick={() => setLeaving(true)}
        >
          <span class="sr">This tab’s session: </span>
          {sessionId === '' ? '…' : shortId(sessionId)}
        </button>
        <button
          type="button"
          class="quiet"
          data-key="i"
          aria-label={unseen > 0 ? `Notices, ${unseen} new` : 'Notices'}
          title="Notices (i)"
          onClick={onNotices}
        >
          <Bell />
          {unseen > 0 && <span class="count news">{unseen}</span>}
        </button>
        <label class="look">
          <span class="sr">Look</span>
          <select
            value={taste.theme}
            onChange={(event) => app.setTaste({ theme: event.currentTarget.value as typeof taste.theme })}
          >
            <option value="system">Auto</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        <button type="button" class="quiet" data-key="?" aria-label="Keys and help" title="Keys (?)" onClick={onHelp}>
          ?
        </button>
      </div>
      {opening && <OpenDialog onClose={() => setOpening(false)} />}
      {leaving && <SessionDialog conversation={conversation} onClose={() => setLeaving(false)} />}
    </header>
  );
}

function ConversationTab(props: {
  readonly conversation: Conversation;
  readonly index: number;
  readonly active: boolean;
}) {
  const { conversation, index, active } = props;
  const { app } = usePage();
  const { notices, commands, sessionId } = useStore(conversation.store, (state) => state);
  const unseen = unseenOf(notices);
  const running = commands.filter(
    ({ state, snapshot }) => state === 'running' && snapshot.ownerSessionId === sessionId,
  ).length;
  return (
    <button
      type="button"
      class="conversation"
      aria-current={active ? 'page' : undefined}
      title={index < 9 ? `Alt+${index + 1}` : undefined}
      onClick={() => app.openConversation(conversation.name)}
    >
      {conversation.name}
      {running > 0 && (
        <span class="count run">
          {running}
          <span class="sr"> running</span>
        </span>
      )}
      {unseen > 0 && !active && (
        <span class="count news">
          {unseen}
          <span class="sr"> new</span>
        </span>
      )}
    </button>
  );
}

function OpenDialog({ onClose }: { readonly onClose: () => void }) {
  const { app } = usePage();
  const facts = useStore(app.store, (state) => state.facts);
  const [name, setName] = useState('');
  const valid = isConversationName(name.trim());
  return (
    <Dialog title="Open a conversation" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!valid) return;
          app.openConversation(name.trim());
          onClose();
        }}
      >
        <label class="field">
          <span>Name</span>
          <input
            list="conversation-names"
            value={name}
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <datalist id="conversation-names">
            {facts?.conversations
              ?.filter((item) => !item.endsWith('*'))
              .map((item) => (
                <option key={item} value={item} />
              ))}
          </datalist>
        </label>
        <p class="dim">
          {name !== '' && !valid
            ? 'A name has 1 to 128 letters, digits and . _ : -'
            : 'This tab gets a session of its own in it. Commands and output of one conversation never appear in another.'}
        </p>
        <footer class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={!valid}>
            Open
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function SessionDialog({ conversation, onClose }: ConversationProps & { onClose: () => void }) {
  const { app } = usePage();
  const state = useStore(conversation.store, (whole) => whole);
  const facts = useStore(app.store, (whole) => whole.facts);
  const owned = state.commands.filter(
    (command) => command.state !== 'ended' && command.snapshot.ownerSessionId === state.sessionId,
  ).length;
  const others = state.sessions.filter(({ sessionId }) => sessionId !== state.sessionId).length;
  return (
    <Dialog title="This tab’s session" onClose={onClose}>
      <dl class="facts-list">
        <dt>Conversation</dt>
        <dd>{state.name}</dd>
        <dt>Person</dt>
        <dd>{facts?.principal ?? 'not known'}</dd>
        <dt>Session</dt>
        <dd>
          <code>{state.sessionId}</code>
        </dd>
      </dl>
      <p>
        {owned === 0
          ? 'It has no commands that are not over.'
          : `It has ${plural(owned, 'command')} that ${owned === 1 ? 'is' : 'are'} not over. ${
              others > 0
                ? 'If the session is closed, the output goes to the other tab that was used last.'
                : 'No other tab is open: if the session is closed, they run on without one and wait.'
            }`}
      </p>
      <p class="dim">Closing is final. To come back later, just leave the page: the session is kept for a while.</p>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Keep it
        </button>
        <button
          type="button"
          class="danger"
          onClick={() => {
            onClose();
            void app.closeConversation(conversation.name);
          }}
        >
          Close the session
        </button>
      </footer>
    </Dialog>
  );
}
