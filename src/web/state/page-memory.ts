/**
 * What a reload keeps beside the client's own memory: in sessionStorage, which ends with the tab, what belongs to a tab; in
 * localStorage taste alone. A storage that is full or forbidden costs this comfort and nothing else.
 */
import type { Notice } from './notices.js';

export interface RememberedPage {
  readonly conversations: readonly string[];
  readonly active: string;
}

export interface RememberedConversation {
  readonly selectedId?: string;
  readonly notices: readonly Notice[];
  readonly formerSessionIds: readonly string[];
}

export interface Taste {
  readonly theme: 'system' | 'light' | 'dark';
  readonly singleKeys: boolean;
  readonly screenReader: boolean;
}

export const TASTE: Taste = { theme: 'system', singleKeys: true, screenReader: false };

const TOKEN = 'homing-web:token';
const PAGE = 'homing-web:page';
const TASTE_KEY = 'homing-web:taste';
const conversationKey = (name: string) => `homing-web:conversation:${name}`;

type TextStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

export function createPageMemory(tab: TextStorage, browser: TextStorage) {
  const read = <T>(storage: TextStorage, key: string): Partial<T> | undefined => {
    try {
      const value: unknown = JSON.parse(storage.getItem(key) ?? 'null');
      return typeof value === 'object' && value !== null ? (value as Partial<T>) : undefined;
    } catch {
      return undefined;
    }
  };
  const write = (storage: TextStorage, key: string, value: unknown) => {
    try {
      storage.setItem(key, JSON.stringify(value));
    } catch {
      // Full or forbidden: see above.
    }
  };

  return {
    token: (): string | undefined => read<{ token: string }>(tab, TOKEN)?.token,
    setToken: (token: string) => write(tab, TOKEN, { token }),
    page(): RememberedPage | undefined {
      const { conversations, active } = read<RememberedPage>(tab, PAGE) ?? {};
      return Array.isArray(conversations) && typeof active === 'string' ? { conversations, active } : undefined;
    },
    setPage: (page: RememberedPage) => write(tab, PAGE, page),
    conversation(name: string): RememberedConversation {
      const { selectedId, notices, formerSessionIds } = read<RememberedConversation>(tab, conversationKey(name)) ?? {};
      return {
        ...(typeof selectedId === 'string' ? { selectedId } : {}),
        notices: Array.isArray(notices) ? notices : [],
        formerSessionIds: Array.isArray(formerSessionIds) ? formerSessionIds : [],
      };
    },
    setConversation: (name: string, value: RememberedConversation) => write(tab, conversationKey(name), value),
    taste: (): Taste => ({ ...TASTE, ...read<Taste>(browser, TASTE_KEY) }),
    setTaste: (taste: Taste) => write(browser, TASTE_KEY, taste),
  };
}

export type PageMemory = ReturnType<typeof createPageMemory>;
