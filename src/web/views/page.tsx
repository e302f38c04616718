/** The whole page: what is in view, and the keys that work everywhere. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { App, Panel } from '../state/app.js';
import { createAttention } from '../state/attention.js';
import type { Conversation } from '../state/session-driver.js';
import { createPool } from '../terminal/pool.js';
import type { CommandTerminal } from '../terminal/terminal.js';
import { Banners } from './banner.js';
import { CommandList } from './command-list.js';
import { type Page, PageProvider } from './context.js';
import { HelpDialog } from './help.js';
import { NoticesDialog } from './notices.js';
import { OverNotice } from './over-page.js';
import { RunBox } from './run-box.js';
import { TerminalView } from './terminal-view.js';
import { TokenPage } from './token-page.js';
import { TopBar } from './top-bar.js';
import { useStore } from './use-store.js';
import { Who } from './who.js';

/** Terminals that are kept while others are looked at. Each may take much memory, so few. */
const KEPT_TERMINALS = 3;
const PANELS: readonly (readonly [Panel, string, string])[] = [
  ['commands', 'Commands', ''],
  ['terminal', 'Terminal', 't'],
  ['who', 'Who gets what', 'w'],
];

export function PageView({ app }: { readonly app: App }) {
  const [said, announce] = useState('');
  const terminals = useMemo(() => createPool<CommandTerminal>(KEPT_TERMINALS), []);
  const page = useMemo<Page>(() => ({ app, terminals, announce }), [app, terminals]);
  const { token, conversations, active, taste } = useStore(app.store, (state) => state);
  const conversation = conversations.find(({ name }) => name === active);
  useLook(app, terminals);
  useAttention(app);

  return (
    <PageProvider value={page}>
      {token === undefined || conversation === undefined ? (
        <TokenPage />
      ) : (
        <Console key={conversation.name} app={app} conversation={conversation} singleKeys={taste.singleKeys} />
      )}
      <div class="sr" role="log" aria-live="polite">
        {said}
      </div>
    </PageProvider>
  );
}

function Console(props: { readonly app: App; readonly conversation: Conversation; readonly singleKeys: boolean }) {
  const { app, conversation, singleKeys } = props;
  const panel = useStore(app.store, (state) => state.panel);
  const [dialog, setDialog] = useState<'notices' | 'help' | undefined>();
  const root = useRef<HTMLDivElement>(null);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || document.querySelector('dialog[open]') !== null) return;
      if (event.altKey && /^[1-9]$/.test(event.key)) {
        const name = app.store.get().conversations[Number(event.key) - 1]?.name;
        if (name === undefined) return;
        app.openConversation(name);
      } else {
        if (!singleKeys || event.ctrlKey || event.metaKey || event.altKey || isTextField(event.target)) return;
        if (!pressed(event.key)) return;
      }
      event.preventDefault();
    };
    /** @returns whether the key means something */
    const pressed = (key: string): boolean => {
      const focus = (selector: string) => root.current?.querySelector<HTMLElement>(selector)?.focus();
      if (key === 'n') focus('#run-text');
      else if (key === '/') focus('#command-search');
      else if (key === 'j' || key === 'k') step(conversation, key === 'j' ? 1 : -1);
      else {
        const button = root.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`);
        button?.click();
        return button !== null && button !== undefined;
      }
      return true;
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [app, conversation, singleKeys]);

  return (
    <div class="console" ref={root} data-panel={panel} data-conversation={conversation.name}>
      <a class="skip" href="#run-text">
        Write a command
      </a>
      <TopBar conversation={conversation} onNotices={() => setDialog('notices')} onHelp={() => setDialog('help')} />
      <Banners conversation={conversation} />
      <main class="work" data-focus-home tabIndex={-1}>
        <CommandList conversation={conversation} />
        <div class="stage">
          <nav class="panels" aria-label="Views">
            {PANELS.map(([value, label, key]) => (
              <button
                key={value}
                type="button"
                class={`panel-tab panel-${value}`}
                aria-current={panel === value ? 'page' : undefined}
                data-key={key === '' ? undefined : key}
                onClick={() => app.show(value)}
              >
                {label}
              </button>
            ))}
          </nav>
          <OverNotice conversation={conversation} onToken={app.askToken} />
          {panel === 'who' ? <Who conversation={conversation} /> : <TerminalView conversation={conversation} />}
        </div>
        <RunBox conversation={conversation} />
      </main>
      {dialog === 'notices' && <NoticesDialog conversation={conversation} onClose={() => setDialog(undefined)} />}
      {dialog === 'help' && <HelpDialog onClose={() => setDialog(undefined)} />}
    </div>
  );
}

/** Where letters are text: fields, and terminals that take input. */
const isTextField = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.matches('input, select, textarea:not([readonly])');

function step(conversation: Conversation, by: number): void {
  const { commands, selectedId } = conversation.store.get();
  const at = commands.findIndex(({ commandId }) => commandId === selectedId);
  const next = commands[Math.max(0, Math.min(commands.length - 1, at + by))];
  if (next !== undefined) conversation.select(next.commandId);
}

/** Light or dark, for the page and for what is drawn without its styles. */
function useLook(app: App, terminals: ReturnType<typeof createPool<CommandTerminal>>): void {
  const taste = useStore(app.store, (state) => state.taste);
  const conversations = useStore(app.store, (state) => state.conversations);
  useEffect(() => {
    const wish = matchMedia('(prefers-color-scheme: dark)');
    const look = () => {
      const dark = taste.theme === 'dark' || (taste.theme === 'system' && wish.matches);
      document.documentElement.dataset.theme = dark ? 'dark' : 'light';
      terminals.each((terminal) => terminal.look({ dark, screenReader: taste.screenReader }));
    };
    look();
    wish.addEventListener('change', look);
    return () => wish.removeEventListener('change', look);
  }, [taste, terminals, conversations]);
}

function useAttention(app: App): void {
  const { conversations, active } = useStore(app.store, (state) => state);
  const attention = useMemo(
    () =>
      createAttention(document, (name, notice) => {
        app.openConversation(name);
        app.store
          .get()
          .conversations.find((item) => item.name === name)
          ?.select(notice.commandId);
        app.show('terminal');
      }),
    [app],
  );
  useEffect(() => {
    const update = () => {
      const states = conversations.map(({ store }) => store.get());
      attention.update(active, states);
      // What somebody looks at is no news to them.
      const shown = conversations.find(({ name }) => name === active);
      const { selectedId, notices = [] } = shown?.store.get() ?? {};
      if (document.hidden || app.store.get().panel !== 'terminal' || selectedId === undefined) return;
      if (notices.some(({ seen, commandId }) => !seen && commandId === selectedId)) {
        shown?.store.dispatch({ type: 'notices_seen', commandId: selectedId });
      }
    };
    update();
    const stops = conversations.map(({ store }) => store.subscribe(update));
    document.addEventListener('visibilitychange', update);
    return () => {
      for (const stop of stops) stop();
      document.removeEventListener('visibilitychange', update);
    };
  }, [attention, conversations, active]);
}
