/**
 * Calls for attention while nobody looks: the tab's title and icon, and browser notifications where they are permitted.
 * What is shown follows from the state alone, so repeating it shows the same.
 */
import type { ConversationState } from './conversation.js';
import { type Notice, unseenOf } from './notices.js';

export interface TabSigns {
  readonly title: string;
  readonly icon: 'quiet' | 'running' | 'news' | 'bad' | 'away';
}

/** Pure. Bad news wins over good, news over what runs. */
export function signsOf(active: ConversationState | undefined, all: readonly ConversationState[]): TabSigns {
  const unseen = all.reduce((sum, { notices }) => sum + unseenOf(notices), 0);
  const bad = all.some(({ notices }) => notices.some(({ seen, tone }) => !seen && tone === 'bad'));
  const running = all.reduce(
    (sum, state) =>
      sum +
      state.commands.filter(
        (command) => command.state === 'running' && command.snapshot.ownerSessionId === state.sessionId,
      ).length,
    0,
  );
  const away = active !== undefined && active.connection.state !== 'live';
  const name = active === undefined ? 'Homing' : `${active.name} – Homing`;
  const marks = [unseen > 0 ? `(${unseen})` : '', away ? '⚠' : running > 0 ? '▶' : ''].filter((mark) => mark !== '');
  return {
    title: [...marks, name].join(' '),
    icon: bad ? 'bad' : unseen > 0 ? 'news' : away ? 'away' : running > 0 ? 'running' : 'quiet',
  };
}

const ICON_COLOURS = {
  quiet: '#7c8794',
  running: '#1f9d8b',
  news: '#2f6fde',
  bad: '#d1453b',
  away: '#b7791f',
} as const;

/** The mark of Homing (a way that leads back to its beginning), with a dot for news. */
export function iconSource(icon: TabSigns['icon']): string {
  const colour = ICON_COLOURS[icon];
  const dot = icon === 'news' || icon === 'bad' ? `<circle cx="25" cy="7" r="7" fill="${colour}"/>` : '';
  const stroke = dot === '' ? colour : '#7c8794';
  const way = `<path d="M9 27V14l7-7 7 7v5a5 5 0 0 1-10 0v-1" fill="none" stroke="${stroke}" stroke-width="3.4" stroke-linecap="round" stroke-linejoin="round"/>`;
  return `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${way}${dot}</svg>`)}`;
}

export function createAttention(document: Document, onClick: (conversation: string, notice: Notice) => void) {
  let shown: TabSigns | undefined;
  let newestId = new Map<string, number>();

  return {
    /** @param conversations every conversation of the page, the active one named */
    update(active: string, conversations: readonly ConversationState[]): void {
      const signs = signsOf(
        conversations.find(({ name }) => name === active),
        conversations,
      );
      if (signs.title !== shown?.title) document.title = signs.title;
      if (signs.icon !== shown?.icon) {
        document.querySelector('link[rel="icon"]')?.setAttribute('href', iconSource(signs.icon));
      }
      shown = signs;
      const before = newestId;
      newestId = new Map(conversations.map(({ name, notices }) => [name, notices[0]?.id ?? 0]));
      for (const { name, notices } of conversations) {
        const known = before.get(name);
        // What a reload brought back was told before it.
        if (known === undefined) continue;
        for (const notice of notices) if (notice.id > known && !notice.seen) notify(name, notice);
      }
    },
  };

  function notify(conversation: string, notice: Notice): void {
    if (!document.hidden || !('Notification' in globalThis) || Notification.permission !== 'granted') return;
    const tag = `${conversation}:${notice.commandId}:${notice.kind}`;
    const shownNotice = new Notification(notice.title, { body: `${notice.text} · ${conversation}`, tag });
    shownNotice.onclick = () => {
      window.focus();
      onClick(conversation, notice);
      shownNotice.close();
    };
  }
}
