/**
 * One terminal: an xterm that reads a command's log through a feed. Its scrollback is bounded by memory, so that 10 MB of
 * lines stay in reach and more than that does not freeze the page.
 */
import { FitAddon } from '@xterm/addon-fit';
import { SearchAddon } from '@xterm/addon-search';
import { Unicode11Addon } from '@xterm/addon-unicode11';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { Terminal } from '@xterm/xterm';
import type { Entry } from '../../client/index.js';
import type { OpenLog } from '../state/session-driver.js';
import { type FeedProgress, startFeed } from './feed.js';
import { gapText } from './gap-text.js';
import { DARK, DARK_FIND, LIGHT, LIGHT_FIND } from './theme.js';

export interface TerminalStatus {
  readonly feed: FeedProgress;
  /** Lines below what is in view; 0 while it follows the output. */
  readonly linesBelow: number;
  /** The first lines have left the scrollback. */
  readonly beginsLate: boolean;
  readonly cols: number;
  readonly rows: number;
  readonly find?: { readonly index: number; readonly count: number };
}

export interface CommandTerminal {
  readonly commandId: string;
  readonly element: HTMLElement;
  status(): TerminalStatus;
  onStatus(listener: () => void): () => void;
  /** To the size of its element; does nothing while that is not shown. */
  fit(): void;
  focus(): void;
  follow(): void;
  pause(on: boolean): void;
  find(text: string, backwards: boolean): void;
  endFind(): void;
  selection(): string;
  /** Everything that is in the scrollback. */
  text(): string;
  look(look: { readonly dark: boolean; readonly screenReader: boolean }): void;
  /** What is typed into it; only where the command has a terminal of its own. */
  onInput(listener: ((data: string) => void) | undefined): void;
  onResize(listener: (cols: number, rows: number) => void): void;
  close(): void;
}

/** A cell takes 12 bytes: 180 MB where every line of it is full. */
const SCROLLBACK_CELLS = 15_000_000;
const MAX_SCROLLBACK = 200_000;

const scrollbackFor = (cols: number): number =>
  Math.min(MAX_SCROLLBACK, Math.floor(SCROLLBACK_CELLS / Math.max(20, cols)));

const FONT = 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

function openLink(_event: MouseEvent, address: string): void {
  // Output is not trusted: nothing but the web, and the new page learns nothing of this one.
  if (/^https?:\/\//i.test(address)) window.open(address, '_blank', 'noopener,noreferrer');
}

export function createTerminal(commandId: string, log: OpenLog, label: string): CommandTerminal {
  const element = document.createElement('div');
  element.className = 'xterm-host';
  const term = new Terminal({
    allowProposedApi: true,
    convertEol: true,
    cursorInactiveStyle: 'none',
    disableStdin: true,
    fontFamily: FONT,
    fontSize: 13,
    lineHeight: 1.2,
    linkHandler: { activate: openLink },
    minimumContrastRatio: 4.5,
    scrollback: scrollbackFor(120),
  });
  const fitting = new FitAddon();
  const search = new SearchAddon({ highlightLimit: 2_000 });
  term.loadAddon(fitting);
  term.loadAddon(search);
  term.loadAddon(new Unicode11Addon());
  term.loadAddon(new WebLinksAddon(openLink));
  term.unicode.activeVersion = '11';
  term.open(element);
  term.textarea?.setAttribute('aria-label', label);

  const listeners = new Set<() => void>();
  let status: TerminalStatus = {
    feed: { state: 'reading', seq: 0, headSeq: 0 },
    linesBelow: 0,
    beginsLate: false,
    cols: term.cols,
    rows: term.rows,
  };
  let onInput: ((data: string) => void) | undefined;
  let telling = false;
  let atLineStart = true;
  let dark = false;

  function change(next: Partial<TerminalStatus>): void {
    status = { ...status, ...next };
    if (telling) return;
    telling = true;
    requestAnimationFrame(() => {
      telling = false;
      for (const listener of [...listeners]) listener();
    });
  }
  const look = () => {
    const { baseY, viewportY } = term.buffer.active;
    const next = { linesBelow: baseY - viewportY, beginsLate: baseY >= (term.options.scrollback ?? 0) };
    if (next.linesBelow !== status.linesBelow || next.beginsLate !== status.beginsLate) change(next);
  };
  term.onScroll(look);
  term.onWriteParsed(look);
  element.addEventListener('wheel', () => requestAnimationFrame(look), { passive: true });
  element.addEventListener('keyup', look);
  element.addEventListener('pointerup', look);
  term.onData((data) => onInput?.(data));
  search.onDidChangeResults(({ resultIndex, resultCount }) =>
    change({ find: { index: resultIndex, count: resultCount } }),
  );
  term.attachCustomKeyEventHandler((event) => {
    // Without input of its own a terminal gives every key back to the page.
    if (onInput === undefined) {
      if (event.type === 'keydown') scrollBy(event);
      return false;
    }
    // The way out for the keyboard: Tab belongs to the program.
    if (event.key === 'Escape' && event.shiftKey) {
      term.blur();
      element.closest<HTMLElement>('[data-focus-home]')?.focus();
      return false;
    }
    const copies = (event.ctrlKey || event.metaKey) && event.key === 'c' && term.hasSelection();
    return !(copies || ((event.ctrlKey || event.metaKey) && event.key === 'f'));
  });

  /** Where nothing can be typed, the keys of a page scroll. */
  function scrollBy(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === 'PageUp') term.scrollPages(-1);
    else if (event.key === 'PageDown') term.scrollPages(1);
    else if (event.key === 'ArrowUp') term.scrollLines(-1);
    else if (event.key === 'ArrowDown') term.scrollLines(1);
    else if (event.key === 'Home') term.scrollToTop();
    else if (event.key === 'End') term.scrollToBottom();
    else return;
    event.preventDefault();
    look();
  }

  const feed = startFeed(log, {
    write(entry) {
      return new Promise((resolve) => {
        // A terminal of its own sends its line ends itself; a pipe sends bare line feeds.
        if (entry.type === 'output') term.options.convertEol = entry.stream !== 'pty';
        const content = entry.type === 'gap' ? gapText(entry, atLineStart) : contentOf(entry);
        if (content.length > 0) atLineStart = content.at(-1) === '\n' || content.at(-1) === 0x0a;
        term.write(content, resolve);
      });
    },
    onProgress: (progress) => change({ feed: progress }),
  });

  return {
    commandId,
    element,
    status: () => status,
    onStatus(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    fit() {
      if (element.clientWidth < 20 || element.clientHeight < 20) return;
      fitting.fit();
      term.options.scrollback = scrollbackFor(term.cols);
      change({ cols: term.cols, rows: term.rows });
    },
    focus: () => term.focus(),
    follow() {
      term.scrollToBottom();
      look();
    },
    pause: (on) => feed.pause(on),
    find(text, backwards) {
      const options = { decorations: dark ? DARK_FIND : LIGHT_FIND, incremental: false };
      if (text === '') search.clearDecorations();
      else if (backwards) search.findPrevious(text, options);
      else search.findNext(text, options);
    },
    endFind() {
      search.clearDecorations();
      const { find: _, ...rest } = status;
      status = rest;
      change({});
    },
    selection: () => term.getSelection(),
    text() {
      term.selectAll();
      const text = term.getSelection();
      term.clearSelection();
      return text;
    },
    look({ dark: isDark, screenReader }) {
      dark = isDark;
      term.options.theme = dark ? DARK : LIGHT;
      term.options.screenReaderMode = screenReader;
    },
    onInput(listener) {
      onInput = listener;
      term.options.disableStdin = listener === undefined;
      term.options.cursorInactiveStyle = listener === undefined ? 'none' : 'outline';
    },
    onResize(listener) {
      term.onResize(({ cols, rows }) => listener(cols, rows));
    },
    close() {
      feed.close();
      log.close();
      term.dispose();
      element.remove();
      listeners.clear();
    },
  };
}

function contentOf(entry: Extract<Entry, { type: 'output' }>): string | Uint8Array {
  if (entry.base64 === undefined) return entry.data ?? '';
  return Uint8Array.from(atob(entry.base64), (char) => char.charCodeAt(0));
}
