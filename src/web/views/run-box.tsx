/** Runs a command: a script or a program with arguments, and where, how and for how long. Earlier ones come back with ↑. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { CommandSpecInput } from '../../client/index.js';
import { parseArgv, parseDuration } from '../state/argv.js';
import { commandOf } from '../state/conversation.js';
import { commandTitle } from '../state/words.js';
import { type ConversationProps, usePage } from './context.js';
import { History } from './icons.js';
import { useStore } from './use-store.js';

interface Draft {
  readonly kind: 'script' | 'program';
  readonly text: string;
  readonly cwd: string;
  readonly pool: string;
  readonly limit: string;
  readonly pty: boolean;
  readonly stdin: boolean;
}

const EMPTY: Draft = { kind: 'script', text: '', cwd: '', pool: '', limit: '', pty: false, stdin: false };
const MAX_HISTORY = 30;
const PTY_SIZE = { cols: 100, rows: 30 };

type Made = { readonly spec: CommandSpecInput } | { readonly fault: string };

function specOf(draft: Draft): Made {
  const { kind, text, cwd, pool, limit, pty, stdin } = draft;
  if (text.trim() === '') return { fault: 'Write a command to run.' };
  const runMs = limit.trim() === '' ? undefined : parseDuration(limit);
  if (limit.trim() !== '' && runMs === undefined) {
    return { fault: 'The time limit is a number with s, m or h, such as 90s or 10m.' };
  }
  const parsed = kind === 'program' ? parseArgv(text) : undefined;
  if (parsed?.ok === false) return { fault: parsed.message };
  return {
    spec: {
      ...(parsed === undefined ? { script: text } : { argv: [...parsed.argv] }),
      ...(cwd.trim() === '' ? {} : { cwd: cwd.trim() }),
      ...(pool.trim() === '' ? {} : { pool: pool.trim() }),
      ...(runMs === undefined ? {} : { timeouts: { runMs } }),
      ...(pty ? { pty: PTY_SIZE } : {}),
      ...(stdin && !pty ? { stdin: 'pipe' } : {}),
    },
  };
}

export function RunBox({ conversation }: ConversationProps) {
  const { app, announce } = usePage();
  const commands = useStore(conversation.store, (state) => state.commands);
  const live = useStore(conversation.store, (state) => state.connection.state === 'live');
  const facts = useStore(app.store, (state) => state.facts);
  const [draft, setDraft] = useState<Draft>(EMPTY);
  const [fault, setFault] = useState('');
  const [asking, setAsking] = useState(false);
  const [optionsOpen, setOptionsOpen] = useState(false);
  const [historyOpen, setHistoryOpen] = useState(false);
  const [place, setPlace] = useState(-1);
  const box = useRef<HTMLTextAreaElement>(null);
  const change = (next: Partial<Draft>) => setDraft((now) => ({ ...now, ...next }));
  const mayRun = facts === undefined || facts.scopes.includes('run') || facts.scopes.includes('admin');

  // What was run in this conversation, by any tab: a history that needs no store of its own.
  const history = useMemo(() => {
    const seen = new Map<string, Partial<Draft>>();
    for (const { snapshot } of commands) {
      const kind = snapshot.argv === undefined ? 'script' : 'program';
      const text = kind === 'script' ? (snapshot.script ?? '') : commandTitle(snapshot);
      if (text.trim() !== '' && !seen.has(text)) seen.set(text, { kind, text });
      if (seen.size === MAX_HISTORY) break;
    }
    return [...seen.values()];
  }, [commands]);

  useEffect(() => {
    const area = box.current;
    if (area === null) return;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, 180)}px`;
  }, [draft.text]);

  async function submit(): Promise<void> {
    const made = specOf(draft);
    if ('fault' in made) return setFault(made.fault);
    setFault('');
    setAsking(true);
    try {
      const commandId = await conversation.run(made.spec);
      conversation.select(commandId);
      app.show('terminal');
      const command = commandOf(conversation.store.get(), commandId);
      announce(`Started: ${command === undefined ? draft.text : commandTitle(command.snapshot)}`);
      change({ text: '' });
      setPlace(-1);
    } catch (error) {
      setFault((error as Error).message);
    } finally {
      setAsking(false);
    }
  }

  function recall(to: number): void {
    if (to < -1 || to >= history.length) return;
    setPlace(to);
    change(to === -1 ? { text: '' } : (history[to] ?? {}));
  }

  function onKeyDown(event: KeyboardEvent & { currentTarget: HTMLTextAreaElement }): void {
    const { value, selectionStart, selectionEnd } = event.currentTarget;
    const caret = selectionStart === selectionEnd ? selectionStart : -1;
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) void submit();
    else if (event.key === 'ArrowUp' && caret >= 0 && !value.slice(0, caret).includes('\n')) recall(place + 1);
    else if (event.key === 'ArrowDown' && place >= 0 && caret >= 0 && !value.slice(caret).includes('\n'))
      recall(place - 1);
    else return;
    event.preventDefault();
  }

  const chosen = [
    draft.cwd && `in ${draft.cwd}`,
    draft.pool && `pool ${draft.pool}`,
    draft.limit && `limit ${draft.limit}`,
    draft.pty && 'terminal',
    draft.stdin && !draft.pty && 'stdin',
  ].filter((part): part is string => typeof part === 'string' && part !== '');

  return (
    <form
      class="run"
      aria-label="Run a command"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {fault !== '' && (
        <p class="fault run-fault" role="alert">
          {fault}
        </p>
      )}
      {optionsOpen && (
        <div class="run-options" id="run-options">
          <fieldset class="tabs">
            <legend class="sr">What it is</legend>
            <button type="button" aria-pressed={draft.kind === 'script'} onClick={() => change({ kind: 'script' })}>
              Script
            </button>
            <button type="button" aria-pressed={draft.kind === 'program'} onClick={() => change({ kind: 'program' })}>
              Program
            </button>
          </fieldset>
          <label class="field">
            <span>Folder</span>
            <input
              value={draft.cwd}
              placeholder="the worker’s"
              spellcheck={false}
              onInput={(event) => change({ cwd: event.currentTarget.value })}
            />
          </label>
          <label class="field short">
            <span>Time limit</span>
            <input
              value={draft.limit}
              placeholder="none"
              spellcheck={false}
              onInput={(event) => change({ limit: event.currentTarget.value })}
            />
          </label>
          <label class="field short">
            <span>Pool</span>
            <input
              list="pools"
              value={draft.pool}
              placeholder={facts?.pools[0] ?? 'default'}
              spellcheck={false}
              onInput={(event) => change({ pool: event.currentTarget.value })}
            />
            <datalist id="pools">
              {facts?.pools.map((pool) => (
                <option key={pool} value={pool} />
              ))}
            </datalist>
          </label>
          <label class="check">
            <input
              type="checkbox"
              checked={draft.pty}
              onChange={(event) => change({ pty: event.currentTarget.checked })}
            />
            <span>A terminal of its own</span>
          </label>
          <label class="check">
            <input
              type="checkbox"
              checked={draft.stdin || draft.pty}
              disabled={draft.pty}
              onChange={(event) => change({ stdin: event.currentTarget.checked })}
            />
            <span>Takes input</span>
          </label>
        </div>
      )}
      {historyOpen && (
        <HistoryMenu
          history={history.map(({ text = '' }) => text)}
          onChoose={(index) => {
            change(history[index] ?? {});
            setHistoryOpen(false);
            box.current?.focus();
          }}
          onClose={() => {
            setHistoryOpen(false);
            box.current?.focus();
          }}
        />
      )}
      <div class="run-line">
        <span class="run-prompt" aria-hidden="true">
          {draft.kind === 'script' ? '$' : '›'}
        </span>
        <textarea
          id="run-text"
          ref={box}
          rows={1}
          aria-label={draft.kind === 'script' ? 'Script to run' : 'Program and arguments'}
          placeholder={draft.kind === 'script' ? 'Script to run' : 'Program and arguments'}
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          value={draft.text}
          disabled={!mayRun}
          onInput={(event) => change({ text: event.currentTarget.value })}
          onKeyDown={onKeyDown}
        />
        <button
          type="button"
          class="quiet"
          aria-label="History"
          title="History (↑)"
          aria-expanded={historyOpen}
          disabled={history.length === 0}
          onClick={() => setHistoryOpen(!historyOpen)}
        >
          <History />
        </button>
        <button
          type="button"
          class="quiet run-more"
          aria-expanded={optionsOpen}
          aria-controls="run-options"
          onClick={() => setOptionsOpen(!optionsOpen)}
        >
          Options
          {chosen.length > 0 && !optionsOpen && <span class="count">{chosen.length}</span>}
        </button>
        <button type="submit" class="primary" disabled={asking || !live || !mayRun} aria-keyshortcuts="Enter">
          {asking ? 'Asking…' : 'Run'}
        </button>
      </div>
      {!mayRun && <p class="dim run-note">The token does not allow to run commands: it has no scope “run”.</p>}
      {chosen.length > 0 && !optionsOpen && <p class="dim run-note">{chosen.join(' · ')}</p>}
    </form>
  );
}

function HistoryMenu(props: {
  readonly history: readonly string[];
  readonly onChoose: (index: number) => void;
  readonly onClose: () => void;
}) {
  const list = useRef<HTMLUListElement>(null);
  const step = (by: number) => {
    const buttons = [...(list.current?.querySelectorAll('button') ?? [])];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    buttons[Math.max(0, Math.min(buttons.length - 1, at + by))]?.focus();
  };
  useEffect(() => list.current?.querySelector('button')?.focus(), []);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape and arrows for the buttons inside
    <div
      class="history"
      onKeyDown={(event) => {
        if (event.key === 'Escape') props.onClose();
        else if (event.key === 'ArrowDown') step(1);
        else if (event.key === 'ArrowUp') step(-1);
        else return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <ul ref={list} aria-label="Earlier commands">
        {props.history.map((text, index) => (
          <li key={text}>
            <button type="button" onClick={() => props.onChoose(index)}>
              {text}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
