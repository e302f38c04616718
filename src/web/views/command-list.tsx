/** The conversation's commands, newest first, with state, time and owner. A listbox: arrow keys choose, Enter goes in. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { type Command, isMine, isUnowned } from '../state/conversation.js';
import { unseenOf } from '../state/notices.js';
import { clock, commandTitle, duration, originName, sessionName, size } from '../state/words.js';
import { type ConversationProps, usePage } from './context.js';
import { Moved } from './icons.js';
import { StateSign, stateWords } from './state-sign.js';
import { useNow, useStore } from './use-store.js';

type Filter = 'all' | 'mine' | 'unowned';
const FILTERS: readonly (readonly [Filter, string])[] = [
  ['all', 'All'],
  ['mine', 'This tab'],
  ['unowned', 'Nobody’s'],
];

export function CommandList({ conversation }: ConversationProps) {
  const { app } = usePage();
  const state = useStore(conversation.store, (whole) => whole);
  const [filter, setFilter] = useState<Filter>('all');
  const [search, setSearch] = useState('');
  const nowMs = useNow(
    1_000,
    state.commands.some((command) => command.state !== 'ended'),
  );
  const listRef = useRef<HTMLDivElement>(null);
  const unowned = state.commands.filter(isUnowned).length;

  const shown = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return state.commands.filter(
      (command) =>
        (filter === 'all' || (filter === 'mine' ? isMine(state, command) : isUnowned(command))) &&
        (wanted === '' || textOf(command).includes(wanted)),
    );
  }, [state.commands, state.sessionId, filter, search]);

  useEffect(() => {
    listRef.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' });
  }, [state.selectedId]);

  const index = shown.findIndex(({ commandId }) => commandId === state.selectedId);
  const choose = (to: number) => {
    const command = shown[Math.max(0, Math.min(shown.length - 1, to))];
    if (command !== undefined) conversation.select(command.commandId);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, number> = {
      ArrowDown: index + 1,
      ArrowUp: index < 0 ? 0 : index - 1,
      Home: 0,
      End: shown.length - 1,
      PageDown: index + 10,
      PageUp: index - 10,
    };
    const to = steps[event.key];
    if (event.key === 'Enter' && index >= 0) app.show('terminal');
    else if (to !== undefined) choose(to);
    else return;
    event.preventDefault();
  };

  return (
    <section class="commands" aria-label="Commands">
      <div class="commands-tools">
        <fieldset class="tabs">
          <legend class="sr">Which commands</legend>
          {FILTERS.map(([value, label]) => (
            <button key={value} type="button" aria-pressed={filter === value} onClick={() => setFilter(value)}>
              {label}
              {value === 'unowned' && unowned > 0 && <span class="count">{unowned}</span>}
            </button>
          ))}
        </fieldset>
        <input
          id="command-search"
          type="search"
          class="commands-search"
          aria-label="Find a command"
          placeholder="Find a command"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </div>
      {shown.length === 0 ? (
        <Nothing conversation={conversation} filter={filter} searching={search.trim() !== ''} />
      ) : (
        <div
          ref={listRef}
          id="command-list"
          class="command-rows"
          role="listbox"
          tabIndex={0}
          aria-label="Commands, newest first"
          aria-activedescendant={index < 0 ? undefined : `row-${state.selectedId}`}
          onKeyDown={onKeyDown}
        >
          {shown.map((command) => (
            <Row
              key={command.commandId}
              conversation={conversation}
              command={command}
              selected={command.commandId === state.selectedId}
              nowMs={nowMs}
            />
          ))}
        </div>
      )}
      {state.list.next !== undefined && filter === 'all' && (
        <button type="button" class="commands-more" onClick={() => void conversation.loadOlder()}>
          Load older commands
        </button>
      )}
      {state.list.state === 'failed' && (
        <p class="fault commands-fault" role="alert">
          The list could not be read: {state.list.message}. It is tried again.
        </p>
      )}
    </section>
  );
}

const textOf = ({ snapshot }: Command): string =>
  `${snapshot.script ?? snapshot.argv?.join(' ') ?? ''} ${snapshot.commandId} ${Object.values(snapshot.labels ?? {}).join(' ')}`.toLowerCase();

function Row(props: ConversationProps & { command: Command; selected: boolean; nowMs: number }) {
  const { conversation, command, selected, nowMs } = props;
  const { app } = usePage();
  const state = conversation.store.get();
  const { snapshot } = command;
  const unseen = unseenOf(state.notices.filter(({ commandId }) => commandId === command.commandId));
  const mine = isMine(state, command);
  const fromElsewhere = mine && snapshot.originSessionId !== state.sessionId;
  const owner = command.state !== 'ended' && snapshot.ownerSessionId === null ? 'nobody’s' : ownerName(state, command);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the listbox has the keys
    <div
      id={`row-${command.commandId}`}
      class={`row ${mine ? 'mine' : ''}`}
      role="option"
      tabIndex={-1}
      aria-selected={selected}
      data-command={command.commandId}
      data-state={command.state}
      onClick={() => {
        conversation.select(command.commandId);
        app.show('terminal');
      }}
    >
      <StateSign command={command} />
      <span class="row-title">{commandTitle(snapshot)}</span>
      {unseen > 0 && <span class="count news">{unseen} new</span>}
      <span class="row-facts">
        <span class="row-state">{stateWords(command, nowMs, true)}</span>
        {command.state === 'ended' && snapshot.outcome !== undefined && (
          <span>{duration(snapshot.outcome.durationMs)}</span>
        )}
        {command.state !== 'ended' && command.outputBytes > 0 && <span>{size(command.outputBytes)}</span>}
        <span class={`row-owner ${mine ? 'mine' : ''}`}>
          {fromElsewhere && <Moved />}
          {fromElsewhere ? `from ${originName(snapshot.originSessionId, state)}` : owner}
        </span>
        {snapshot.createdAt !== undefined && <time class="row-time">{clock(snapshot.createdAt, nowMs)}</time>}
      </span>
    </div>
  );
}

/** An ended command that everything was read of has no owner any more: then it says who started it. */
const ownerName = (state: Parameters<typeof sessionName>[1], { snapshot }: Command): string =>
  snapshot.ownerSessionId === null
    ? originName(snapshot.originSessionId, state)
    : sessionName(snapshot.ownerSessionId, state);

function Nothing(props: ConversationProps & { filter: Filter; searching: boolean }) {
  const { list, commands, connection } = useStore(props.conversation.store, (state) => state);
  if (list.state === 'loading') {
    return (
      <div class="empty" aria-busy={connection.state === 'connecting'}>
        <div class="ghost-row" />
        <div class="ghost-row" />
        <div class="ghost-row" />
        <p class="dim">{connection.state === 'over' ? 'Not connected.' : 'Reading the list…'}</p>
      </div>
    );
  }
  if (props.searching) return <p class="empty dim">No command fits what you look for.</p>;
  if (props.filter === 'unowned') {
    return (
      <p class="empty dim">
        Nothing waits for an owner. A command comes here when its tab closed and nobody took it over.
      </p>
    );
  }
  if (props.filter === 'mine' && commands.length > 0) return <p class="empty dim">This tab has no commands.</p>;
  return (
    <div class="empty">
      <p>
        <strong>No commands yet</strong>
      </p>
      <p class="dim">Run one below. Its output comes to this tab, and to no other.</p>
    </div>
  );
}
