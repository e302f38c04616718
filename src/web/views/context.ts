/** What every view may reach: the app, and the terminals that are kept. */
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { App } from '../state/app.js';
import type { Conversation } from '../state/session-driver.js';
import type { Pool } from '../terminal/pool.js';
import type { CommandTerminal } from '../terminal/terminal.js';

export interface Page {
  readonly app: App;
  readonly terminals: Pool<CommandTerminal>;
  /** Puts a sentence where screen readers hear of it. */
  announce(sentence: string): void;
}

const PageContext = createContext<Page | undefined>(undefined);
export const PageProvider = PageContext.Provider;

export function usePage(): Page {
  const page = useContext(PageContext);
  if (page === undefined) throw new Error('a view was drawn outside of the page');
  return page;
}

export interface ConversationProps {
  readonly conversation: Conversation;
}
