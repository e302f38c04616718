/** The selected command: its facts, its terminal and what can be done with it. */
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks';
import { type Command, commandOf, isMine, isUnowned } from '../state/conversation.js';
import { clock, commandTitle, duration, moveSentence, originName, plural, sessionName, size } from '../state/words.js';
import { type CommandTerminal, createTerminal } from '../terminal/terminal.js';
import { type ConversationProps, usePage } from './context.js';
import { Close, Copy, Down, Download, Pause, Play, Search, Up } from './icons.js';
import { KillDialog, KillStages } from './kill.js';
import { StateSign, stateWords } from './state-sign.js';
import { StdinLine } from './stdin-line.js';
import { useNow, useStore } from './use-store.js';

export function TerminalView({ conversation }: ConversationProps) {
  const command = useStore(conversation.store, (state) => commandOf(state, state.selectedId));
  const hasCommands = useStore(conversation.store, (state) => state.commands.length > 0);
  if (command === undefined) {
    return (
      <section class="terminal-view" aria-label="Terminal">
        <div class="empty big">
          <p>
            <strong>{hasCommands ? 'Choose a command' : 'Nothing has run here yet'}</strong>
          </p>
          <p class="dim">
            {hasCommands
              ? 'Its output is shown here, from its first line on.'
              : 'Write a command below and press Enter. Try: for i in 1 2 3; do echo line $i; sleep 1; done'}
          </p>
        </div>
      </section>
    );
  }
  return <Selected key={command.commandId} conversation={conversation} command={command} />;
}

function Selected({ conversation, command }: ConversationProps & { command: Command }) {
  const { app, terminals, announce } = usePage();
  const { commandId, snapshot } = command;
  const taste = useStore(app.store, (state) => state.taste);
  const state = useStore(conversation.store, (whole) => whole);
  const [killing, setKilling] = useState(false);
  const [finding, setFinding] = useState(false);
  const [paused, setPaused] = useState(false);
  const [fault, setFault] = useState('');
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const host = useRef<HTMLDivElement>(null);
  const mine = isMine(state, command);
  const takesInput = mine && command.state === 'running' && (snapshot.pty !== undefined || snapshot.stdin === 'pipe');
  const typesInto = takesInput && snapshot.pty !== undefined;

  const terminal = terminals.use(commandId, () => {
    const made = createTerminal(commandId, conversation.openLog(commandId), `Output of ${commandTitle(snapshot)}`);
    made.look({ dark: document.documentElement.dataset.theme === 'dark', screenReader: taste.screenReader });
    made.onResize((cols, rows) => {
      const now = commandOf(conversation.store.get(), commandId);
      const own = now !== undefined && isMine(conversation.store.get(), now);
      if (own && now.state === 'running' && now.snapshot.pty !== undefined) conversation.resize(commandId, cols, rows);
    });
    return made;
  });
  const { feed, linesBelow, beginsLate, find } = terminal.status();

  useLayoutEffect(() => {
    const place = host.current;
    if (place === null) return;
    place.append(terminal.element);
    terminal.fit();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const sized = new ResizeObserver(() => {
      // Many lines are laid out anew: once when the size stays, not at every step of a drag.
      clearTimeout(timer);
      timer = setTimeout(terminal.fit, 80);
    });
    sized.observe(place);
    const stop = terminal.onStatus(() => draw(undefined as never));
    return () => {
      clearTimeout(timer);
      sized.disconnect();
      stop();
      terminal.pause(false);
      terminal.element.remove();
    };
  }, [terminal]);

  useEffect(() => {
    if (!typesInto) return terminal.onInput(undefined);
    terminal.onInput((data) => {
      conversation.write(commandId, data).catch((error: Error) => setFault(error.message));
    });
  }, [terminal, typesInto]);

  const togglePause = () => {
    terminal.pause(!paused);
    setPaused(!paused);
  };
  async function copy(): Promise<void> {
    const selected = terminal.selection();
    await navigator.clipboard.writeText(selected === '' ? terminal.text() : selected).then(
      () => announce(selected === '' ? 'The whole output was copied.' : 'The selection was copied.'),
      () => setFault('The browser did not allow to copy.'),
    );
  }
  async function download(): Promise<void> {
    try {
      const address = URL.createObjectURL(await conversation.downloadLog(commandId));
      const link = Object.assign(document.createElement('a'), { href: address, download: `${commandId}.log` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    } catch (error) {
      setFault(`The log could not be read: ${(error as Error).message}`);
    }
  }
  async function adopt(): Promise<void> {
    try {
      await conversation.adopt(commandId);
      announce('This tab has the command now.');
    } catch (error) {
      setFault(`It could not be taken over: ${(error as Error).message}`);
    }
  }
  const endFind = () => {
    setFinding(false);
    terminal.endFind();
  };

  return (
    <section
      class="terminal-view"
      aria-label="Terminal"
      onKeyDown={(event) => {
        if ((event.ctrlKey || event.metaKey) && event.key === 'f') {
          setFinding(true);
          event.preventDefault();
        } else if (event.key === 'Escape' && finding) endFind();
      }}
    >
      <header class="terminal-head">
        <h2 class="terminal-title" id="terminal-title" tabIndex={-1}>
          <StateSign command={command} />
          <code title={snapshot.script ?? snapshot.argv?.join(' ')}>{commandTitle(snapshot)}</code>
        </h2>
        <div class="terminal-actions">
          {isUnowned(command) && (
            <button type="button" class="primary" onClick={() => void adopt()}>
              Adopt
            </button>
          )}
          <button
            type="button"
            class="quiet"
            aria-label="Find in the output"
            title="Find (Ctrl+F)"
            onClick={() => setFinding(true)}
          >
            <Search />
          </button>
          <button
            type="button"
            class="quiet"
            aria-label={paused ? 'Go on' : 'Pause'}
            title={paused ? 'Go on (p)' : 'Pause the output (p)'}
            aria-pressed={paused}
            data-key="p"
            onClick={togglePause}
          >
            {paused ? <Play /> : <Pause />}
          </button>
          <button
            type="button"
            class="quiet"
            aria-label="Copy"
            title="Copy the selection, or everything (c)"
            data-key="c"
            onClick={() => void copy()}
          >
            <Copy />
          </button>
          <button
            type="button"
            class="quiet"
            aria-label="Download the log"
            title="Download the log"
            onClick={() => void download()}
          >
            <Download />
          </button>
          {command.state !== 'ended' && state.connection.state !== 'over' && (
            <button type="button" class="danger" data-key="x" title="End it (x)" onClick={() => setKilling(true)}>
              End…
            </button>
          )}
        </div>
        <Facts conversation={conversation} command={command} />
        <KillStages command={command} />
        {fault !== '' && (
          <p class="fault" role="alert">
            {fault}{' '}
            <button type="button" class="link" onClick={() => setFault('')}>
              Dismiss
            </button>
          </p>
        )}
      </header>
      {finding && <FindBar terminal={terminal} find={find} onClose={endFind} />}
      <div
        class="terminal-place"
        ref={host}
        data-feed={feed.state}
        data-seq={feed.seq}
        data-screen-reader={taste.screenReader}
      />
      <div class="terminal-foot">
        {(feed.state === 'reading' || feed.state === 'failed') && (
          <span class={feed.state === 'failed' ? 'fault' : 'dim'} role="status">
            {feed.state === 'failed'
              ? `The log can not be read: ${feed.message}`
              : `Reading the log…${feed.headSeq > 200 ? ` ${Math.floor((100 * feed.seq) / feed.headSeq)} %` : ''}`}
          </span>
        )}
        {feed.state === 'paused' && <span role="status">Paused. What comes meanwhile is kept, and follows.</span>}
        {beginsLate && <span class="dim">Its first lines are out of reach here. Download the log to read them.</span>}
        {linesBelow > 0 && feed.state !== 'paused' && (
          <button type="button" class="follow" data-key="f" onClick={() => terminal.follow()}>
            <Down /> {plural(linesBelow, 'line')} below, follow
          </button>
        )}
      </div>
      {takesInput && <StdinLine conversation={conversation} command={command} />}
      {killing && <KillDialog conversation={conversation} command={command} onClose={() => setKilling(false)} />}
    </section>
  );
}

function Facts({ conversation, command }: ConversationProps & { command: Command }) {
  const state = useStore(conversation.store, (whole) => whole);
  const nowMs = useNow(1_000, command.state !== 'ended');
  const { snapshot } = command;
  const { outcome } = snapshot;
  const over = state.connection.state === 'over';
  const mine = isMine(state, command);
  const moved = snapshot.originSessionId !== snapshot.ownerSessionId && typeof snapshot.ownerSessionId === 'string';
  return (
    <p class="terminal-facts">
      <span class="facts-state">
        {over && command.state !== 'ended' ? 'it was not over when this session ended' : stateWords(command, nowMs)}
      </span>
      {outcome !== undefined && <span>{duration(outcome.durationMs)}</span>}
      <span>{size(command.outputBytes)}</span>
      {outcome !== undefined && outcome.leftovers > 0 && (
        <span class="fault">{plural(outcome.leftovers, 'process', 'processes')} left over</span>
      )}
      {snapshot.createdAt !== undefined && <span>since {clock(snapshot.createdAt, nowMs)}</span>}
      {snapshot.pool !== undefined && snapshot.pool !== 'default' && <span>pool {snapshot.pool}</span>}
      {isUnowned(command) ? (
        <span class="facts-moved">Nobody’s: its tab closed. It runs on; adopt it to get its output here.</span>
      ) : moved ? (
        <span class="facts-moved">
          From {originName(snapshot.originSessionId, state)}, now with {sessionName(snapshot.ownerSessionId, state)}
          {snapshot.why !== undefined && `: ${moveSentence(snapshot.why)}`}
        </span>
      ) : (
        command.state !== 'ended' &&
        !over && <span>with {mine ? 'this tab' : `${sessionName(snapshot.ownerSessionId, state)}; you look on`}</span>
      )}
      {command.failure !== undefined && <span class="fault">{command.failure}</span>}
    </p>
  );
}

function FindBar(props: {
  readonly terminal: CommandTerminal;
  readonly find: { readonly index: number; readonly count: number } | undefined;
  readonly onClose: () => void;
}) {
  const { terminal, find, onClose } = props;
  const [text, setText] = useState('');
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const result =
    text === '' || find === undefined ? '' : find.count === 0 ? 'nothing found' : `${find.index + 1} of ${find.count}`;
  return (
    <search class="find">
      <input
        ref={input}
        type="search"
        aria-label="Find in the output"
        placeholder="Find in the output"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          terminal.find(event.currentTarget.value, true);
        }}
        onKeyDown={(event) => {
          if (event.key !== 'Enter') return;
          event.preventDefault();
          terminal.find(text, !event.shiftKey);
        }}
      />
      <span class="dim find-count" role="status">
        {result}
      </span>
      <button
        type="button"
        class="quiet"
        aria-label="Earlier match"
        title="Earlier (Enter)"
        onClick={() => terminal.find(text, true)}
      >
        <Up />
      </button>
      <button
        type="button"
        class="quiet"
        aria-label="Later match"
        title="Later (Shift+Enter)"
        onClick={() => terminal.find(text, false)}
      >
        <Down />
      </button>
      <button type="button" class="quiet" aria-label="Close the search" onClick={onClose}>
        <Close />
      </button>
    </search>
  );
}
