/** The page as a whole: its token, its conversations (each with a session of its own), and what is in view. */

import type { PageMemory, Taste } from './page-memory.js';
import { type Conversation, createConversation } from './session-driver.js';
import { createStore, type Store } from './store.js';
import { firstConversation, readFragment, readToken, type TokenFacts } from './token.js';

export type Panel = 'commands' | 'terminal' | 'who';

export interface AppState {
  /** Absent: the page asks for one. */
  readonly token: string | undefined;
  readonly facts: TokenFacts | undefined;
  /** Why a token is asked for again. */
  readonly tokenFault?: string;
  readonly conversations: readonly Conversation[];
  readonly active: string;
  readonly panel: Panel;
  readonly taste: Taste;
  readonly online: boolean;
}

export interface App {
  readonly store: Store<AppState, Partial<AppState>>;
  useToken(token: string): void;
  /** @param fault shown where the token is asked for */
  askToken(fault: string): void;
  openConversation(name: string): void;
  /** Takes a conversation out of this tab; its session is closed. */
  closeConversation(name: string): Promise<void>;
  show(panel: Panel): void;
  setTaste(taste: Partial<Taste>): void;
  close(): void;
}

/** One `touch` in this time is enough to say that the user is here. */
const TOUCH_EVERY_MS = 15_000;

export function createApp(window: Window, memory: PageMemory): App {
  const { location, history, document, navigator } = window;
  const url = new URL('.', location.href.split('#')[0] as string).href;
  const defer = (run: () => void) => void setTimeout(run, 0);

  const fragment = readFragment(location.hash);
  if (fragment.token !== undefined) {
    memory.setToken(fragment.token);
    // Before anything else can see or send the address.
    history.replaceState(null, '', location.pathname + location.search);
  }
  const token = fragment.token ?? memory.token();
  const facts = token === undefined ? undefined : readToken(token);
  const remembered = memory.page();
  const first = fragment.conversation ?? remembered?.active ?? firstConversation(facts);

  const store = createStore<AppState, Partial<AppState>>(
    {
      token,
      facts,
      conversations: [],
      active: first,
      panel: 'terminal',
      taste: memory.taste(),
      online: navigator.onLine,
    },
    (state, change) => ({ ...state, ...change }),
    defer,
  );
  const { get, dispatch } = store;

  function makeConversation(name: string): Conversation {
    const conversation = createConversation({
      name,
      url,
      token: () => get().token ?? '',
      storage: window.sessionStorage,
      restored: memory.conversation(name),
      defer,
    });
    conversation.store.subscribe(() => {
      const { selectedId, notices, formerSessionIds } = conversation.store.get();
      memory.setConversation(name, { notices, formerSessionIds, ...(selectedId === undefined ? {} : { selectedId }) });
    });
    conversation.start();
    return conversation;
  }

  function openAll(names: readonly string[], active: string): void {
    dispatch({ conversations: names.map(makeConversation), active });
    remember();
  }

  function remember(): void {
    const { conversations, active } = get();
    memory.setPage({ conversations: conversations.map(({ name }) => name), active });
  }

  // ------------------------------------------------------------------------------------------------- the browser's side

  let touchedAtMs = 0;
  const onUser = () => {
    const nowMs = Date.now();
    if (document.hidden || nowMs - touchedAtMs < TOUCH_EVERY_MS) return;
    touchedAtMs = nowMs;
    get()
      .conversations.find(({ name }) => name === get().active)
      ?.touch();
  };
  const onOnline = () => {
    dispatch({ online: true });
    for (const conversation of get().conversations) conversation.retryNow();
  };
  const onOffline = () => dispatch({ online: false });
  /** A link with a fresh token or another conversation, opened in a tab that is here already. */
  const onHash = () => {
    const given = readFragment(location.hash);
    if (given.token === undefined && given.conversation === undefined) return;
    history.replaceState(null, '', location.pathname + location.search);
    if (given.token !== undefined) app.useToken(given.token);
    if (given.conversation !== undefined) app.openConversation(given.conversation);
  };
  window.addEventListener('online', onOnline);
  window.addEventListener('offline', onOffline);
  window.addEventListener('hashchange', onHash);
  for (const type of ['pointerdown', 'keydown', 'focus']) window.addEventListener(type, onUser);

  const app: App = {
    store,
    useToken(given) {
      memory.setToken(given);
      const { conversations, active } = get();
      dispatch({ token: given, facts: readToken(given), tokenFault: '' });
      if (conversations.length > 0) {
        for (const conversation of conversations) conversation.start();
        return;
      }
      const wanted = remembered?.active ?? fragment.conversation ?? firstConversation(readToken(given));
      openAll(remembered?.conversations ?? [wanted], active === '' ? wanted : active);
    },
    askToken: (fault) => dispatch({ token: undefined, tokenFault: fault }),
    openConversation(name) {
      const { conversations } = get();
      const there = conversations.some((conversation) => conversation.name === name);
      dispatch({ active: name, conversations: there ? conversations : [...conversations, makeConversation(name)] });
      remember();
    },
    async closeConversation(name) {
      const closing = get().conversations.find((conversation) => conversation.name === name);
      await closing?.closeSession();
      const { conversations, active } = get();
      // The last one stays, and says that its session is closed.
      if (conversations.length === 1 || closing === undefined) return;
      closing.leave();
      const rest = conversations.filter((conversation) => conversation !== closing);
      dispatch({ conversations: rest, active: active === name ? (rest[0]?.name ?? '') : active });
      remember();
    },
    show: (panel) => dispatch({ panel }),
    setTaste(change) {
      const taste = { ...get().taste, ...change };
      memory.setTaste(taste);
      dispatch({ taste });
    },
    close() {
      window.removeEventListener('online', onOnline);
      window.removeEventListener('offline', onOffline);
      window.removeEventListener('hashchange', onHash);
      for (const type of ['pointerdown', 'keydown', 'focus']) window.removeEventListener(type, onUser);
      for (const conversation of get().conversations) conversation.leave();
    },
  };

  if (token !== undefined) {
    const names = remembered?.conversations ?? [];
    openAll(names.includes(first) ? names : [...names, first], first);
  }
  return app;
}
