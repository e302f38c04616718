/** What happened: ends, watch matches, commands that came from elsewhere. A panel, and the switch for browser notices. */
import { useEffect, useState } from 'preact/hooks';
import { clock } from '../state/words.js';
import { type ConversationProps, usePage } from './context.js';
import { Dialog } from './dialog.js';
import { useStore } from './use-store.js';

const KINDS = { ended: 'Ended', watch: 'Matched', moved: 'Moved' } as const;

export function NoticesDialog({ conversation, onClose }: ConversationProps & { onClose: () => void }) {
  const { app } = usePage();
  const notices = useStore(conversation.store, (state) => state.notices);
  const [before] = useState(() => new Set(notices.filter(({ seen }) => seen).map(({ id }) => id)));
  // They were looked at when the panel closes; until then what is new stays marked.
  useEffect(() => () => conversation.store.dispatch({ type: 'notices_seen' }), [conversation]);
  const nowMs = Date.now();
  return (
    <Dialog title="Notices" onClose={onClose} class="side">
      <NotificationSwitch />
      {notices.length === 0 && (
        <p class="dim">Nothing yet. Ends, watch matches and commands that come from other tabs are told here.</p>
      )}
      <ul class="notices">
        {notices.map((notice) => (
          <li key={notice.id} class={`${notice.tone} ${before.has(notice.id) ? '' : 'news'}`}>
            <button
              type="button"
              class="notice"
              onClick={() => {
                conversation.select(notice.commandId);
                app.show('terminal');
                onClose();
              }}
            >
              <span class="notice-head">
                <span>{KINDS[notice.kind]}</span>
                <time>{clock(notice.atMs, nowMs)}</time>
              </span>
              <code>{notice.title}</code>
              <span>{notice.text}</span>
            </button>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

function NotificationSwitch() {
  const supported = 'Notification' in globalThis;
  const [permission, setPermission] = useState(supported ? Notification.permission : 'denied');
  if (!supported) return null;
  if (permission === 'granted')
    return <p class="dim">While this tab is in the background, the browser tells you too.</p>;
  if (permission === 'denied') {
    return (
      <p class="dim">The browser does not allow notifications of this page. Title and icon of the tab show them.</p>
    );
  }
  return (
    <p>
      <button type="button" onClick={() => void Notification.requestPermission().then(setPermission)}>
        Tell me also while this tab is in the background
      </button>
    </p>
  );
}
