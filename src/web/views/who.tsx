/** Who gets what: where each command came from, where its output goes, and why where that is not the same. */
import { type Command, isMine, isUnowned } from '../state/conversation.js';
import { commandTitle, moveSentence, originName, plural, runningFor, sessionName, shortId } from '../state/words.js';
import { type ConversationProps, usePage } from './context.js';
import { StateSign, stateWords } from './state-sign.js';
import { useNow, useStore } from './use-store.js';

export function Who({ conversation }: ConversationProps) {
  const { app } = usePage();
  const state = useStore(conversation.store, (whole) => whole);
  const nowMs = useNow(1_000);
  // Whoever gets output: everything that runs, and what ended here and can be looked at for its story.
  const open = state.commands.filter((command) => command.state !== 'ended');
  const ended = state.commands.filter((command) => command.state === 'ended').slice(0, 50);
  return (
    <section class="who" aria-label="Who gets what">
      <h2>Who gets what</h2>
      <p class="dim">
        Output goes to one tab: the one that started the command, as long as its session is open. Then it moves to
        another tab of the same person, and this page says why.
      </p>
      <h3>Tabs of this conversation</h3>
      <ul class="sessions">
        {state.sessions.map(({ sessionId, state: life, lastActiveAt }) => (
          <li key={sessionId} class={sessionId === state.sessionId ? 'mine' : ''}>
            <strong>{sessionName(sessionId, state)}</strong> <span class="dim">{shortId(sessionId)}</span>
            <span class={`life ${life}`}>{life === 'live' ? 'connected' : life}</span>
            <span class="dim">active {runningFor(nowMs - lastActiveAt)} ago</span>
            <span>gets {plural(openOf(open, sessionId), 'command')}</span>
          </li>
        ))}
        {state.sessions.length === 0 && <li class="dim">Reading the list…</li>}
      </ul>
      <h3 id="who-open">Commands that are not over</h3>
      {open.length === 0 ? (
        <p class="dim">Nothing is running or waiting.</p>
      ) : (
        <Rows
          conversation={conversation}
          commands={open}
          labelledBy="who-open"
          nowMs={nowMs}
          onOpen={() => app.show('terminal')}
        />
      )}
      {ended.length > 0 && (
        <>
          <h3 id="who-ended">Ended</h3>
          <Rows
            conversation={conversation}
            commands={ended}
            labelledBy="who-ended"
            nowMs={nowMs}
            onOpen={() => app.show('terminal')}
          />
        </>
      )}
    </section>
  );
}

const openOf = (commands: readonly Command[], sessionId: string): number =>
  commands.filter(({ snapshot }) => snapshot.ownerSessionId === sessionId).length;

function Rows(
  props: ConversationProps & {
    readonly commands: readonly Command[];
    readonly labelledBy: string;
    readonly nowMs: number;
    readonly onOpen: () => void;
  },
) {
  const { conversation, commands, labelledBy, nowMs, onOpen } = props;
  const { announce } = usePage();
  const state = conversation.store.get();
  return (
    <table class="who-table" aria-labelledby={labelledBy}>
      <thead>
        <tr>
          <th scope="col">Command</th>
          <th scope="col">Started by</th>
          <th scope="col">Goes to</th>
          <th scope="col">Because</th>
        </tr>
      </thead>
      <tbody>
        {commands.map((command) => {
          const { commandId, snapshot } = command;
          return (
            <tr key={commandId} class={isMine(state, command) ? 'mine' : ''} data-command={commandId}>
              <th scope="row">
                <button
                  type="button"
                  class="link who-command"
                  onClick={() => {
                    conversation.select(commandId);
                    onOpen();
                  }}
                >
                  <StateSign command={command} />
                  <code>{commandTitle(snapshot)}</code>
                </button>
                <span class="dim">{stateWords(command, nowMs)}</span>
              </th>
              <td data-label="Started by">
                {snapshot.parentCommandId === undefined
                  ? originName(snapshot.originSessionId, state)
                  : `command ${shortId(snapshot.parentCommandId)} of ${originName(snapshot.originSessionId, state)}`}
              </td>
              <td data-label="Goes to">
                {isUnowned(command) ? (
                  <>
                    nobody{' '}
                    <button
                      type="button"
                      onClick={() =>
                        conversation.adopt(commandId).then(
                          () => announce('This tab has the command now.'),
                          (error: Error) => announce(`It could not be taken over: ${error.message}`),
                        )
                      }
                    >
                      Adopt
                    </button>
                  </>
                ) : snapshot.ownerSessionId === null ? (
                  'nobody any more'
                ) : (
                  sessionName(snapshot.ownerSessionId, state)
                )}
              </td>
              <td data-label="Because" class="dim">
                {because(command)}
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

function because(command: Command): string {
  const { originSessionId, ownerSessionId, why } = command.snapshot;
  if (why !== undefined && originSessionId !== ownerSessionId) return moveSentence(why);
  if (isUnowned(command)) return 'no tab of its person was open, or it was to be kept';
  if (ownerSessionId === null) return 'everything of it was read';
  return 'it started it';
}
