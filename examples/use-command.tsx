/** React: a session for a component tree, and a hook that shows one command as it runs. Nothing but `homing/client`. */
import {
  type CommandHandle,
  type CommandSpecInput,
  connect,
  type Outcome,
  type Session,
  type SessionState,
} from 'homing/client';
import { useCallback, useEffect, useRef, useState } from 'react';

/** A session for as long as the component is there. Tabs keep theirs across reloads, because `sessionStorage` does. */
export function useSession(options: { url: string; token: () => Promise<string>; conversation: string }) {
  const { url, conversation } = options;
  const [session, setSession] = useState<Session>();
  const [state, setState] = useState<SessionState>({ state: 'connecting', attempt: 0 });
  const token = useRef(options.token);
  token.current = options.token;

  useEffect(() => {
    const stop = new AbortController();
    let opened: Session | undefined;
    connect({
      url,
      conversation,
      token: () => token.current(),
      storage: sessionStorage,
      signal: stop.signal,
      listen: { status: (next) => stop.signal.aborted || setState(next) },
    }).then(
      (made) => {
        if (stop.signal.aborted) return made.leave();
        opened = made;
        setSession(made);
      },
      (error: Error) => stop.signal.aborted || setState({ state: 'closed', reason: error.message }),
    );
    return () => {
      stop.abort();
      // Leaving keeps the session for its grace: a page that comes back resumes it, and its commands are still its own.
      opened?.leave();
      setSession(undefined);
    };
  }, [url, conversation]);

  return { session, state };
}

export interface CommandView {
  readonly text: string;
  readonly outcome: Outcome | undefined;
  readonly error: string | undefined;
  readonly running: boolean;
  run(spec: CommandSpecInput): Promise<void>;
  kill(): Promise<void>;
}

/** What is shown is bounded, whatever a command prints; a terminal component would take `handle.bytes` instead. */
const MAX_SHOWN_CHARS = 100_000;

export function useCommand(session: Session | undefined): CommandView {
  const [text, setText] = useState('');
  const [outcome, setOutcome] = useState<Outcome>();
  const [error, setError] = useState<string>();
  const [handle, setHandle] = useState<CommandHandle>();

  useEffect(() => {
    if (handle === undefined) return;
    const stop = new AbortController();
    const read = async () => {
      for await (const piece of handle.text({ signal: stop.signal })) {
        setText((shown) => (shown + piece).slice(-MAX_SHOWN_CHARS));
      }
      setOutcome(await handle.ended);
    };
    read().catch((fault: Error) => stop.signal.aborted || setError(fault.message));
    return () => stop.abort();
  }, [handle]);

  const run = useCallback(
    async (spec: CommandSpecInput) => {
      setText('');
      setOutcome(undefined);
      setError(undefined);
      try {
        setHandle(await session?.run(spec));
      } catch (fault) {
        setError((fault as Error).message);
      }
    },
    [session],
  );
  const kill = useCallback(async () => void (await handle?.kill()), [handle]);
  const running = handle !== undefined && outcome === undefined && error === undefined;
  return { text, outcome, error, running, run, kill };
}

export function Tool(props: { session: Session | undefined; script: string }) {
  const { text, outcome, error, running, run, kill } = useCommand(props.session);
  return (
    <section>
      <button
        type="button"
        disabled={props.session === undefined || running}
        onClick={() => run({ script: props.script })}
      >
        Run
      </button>
      {running && (
        <button type="button" onClick={kill}>
          Stop
        </button>
      )}
      <pre>{text}</pre>
      {outcome && <p>{outcome.reason === 'exited' ? `exit ${outcome.code}` : outcome.reason}</p>}
      {error && <p role="alert">{error}</p>}
    </section>
  );
}
